"""`/metrics` of a running stack: all processes show figures, in both formats, of nobody."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics import parser

from kvairlock import __version__
from kvairlock.drills.stack import wait_for
from kvairlock.metrics.exposition import OPENMETRICS_TYPE
from kvairlock.metrics.table import LABELS, METRICS, Kind, Shown, exposed, series
from tests.promtool import Promtool

from .served import Served, serving

SETTINGS = """
[metrics]
group_requests_min = 5

[[prefill]]
name = "prefill-0"
pages = 128

[[decode]]
name = "decode-0"
pages = 256

[limits]
beat_ms = 50
"""
TENANTS = {"zebra-corp": "group:savanna", "quokka-corp": "private"}
PLANTED = "planted-words-of-a-prompt"
ASKED, LONG = 5, 8000
OPEN = {"accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}
PROCESSES = ("gateway", "prefill-0", "decode-0")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A stack that has answered, refused, and turned away."""
    with serving(tmp_path_factory.mktemp("metrics"), SETTINGS, TENANTS) as running:
        for tenant in TENANTS:
            for _ in range(ASKED):
                running.serves(tenant)
        for _ in range(ASKED):
            _ask(running, "zebra-corp", PLANTED * LONG)
        running.http.post("/v1/completions", headers={"authorization": "Bearer kva-wrong"}, json={})
        wait_for("the gateway to know the last drain", lambda: _drained(running))
        yield running


def _ask(stack: Served, tenant: str, prompt: str) -> None:
    body = {"model": "recall", "prompt": prompt, "max_tokens": 1}
    refused = stack.http.post("/v1/completions", headers=stack.auth(tenant), json=body)
    assert refused.status_code == 400, refused.text


def _drained(stack: Served) -> bool | None:
    told = {"node": "decode-0", "memory": "lease"}
    drains = counted(read(stack, "gateway"), "fences_total", **told)
    return True if drains == len(TENANTS) * ASKED else None


def text(stack: Served, name: str, headers: dict[str, str] = OPEN) -> httpx.Response:
    response = httpx.get(stack.facts["metrics"][name], headers=headers, timeout=10)
    assert response.status_code == 200
    return response


def read(stack: Served, name: str) -> dict[str, Metric]:
    """What a process shows, by a parser that takes nothing but OpenMetrics."""
    families = parser.text_string_to_metric_families(text(stack, name).text)  # type: ignore[no-untyped-call]
    return {family.name: family for family in families}


def counted(families: dict[str, Metric], name: str, **labels: str) -> float:
    samples = [s for family in families.values() for s in family.samples]
    wanted = labels.items()
    return sum(
        s.value for s in samples if s.name == f"kvairlock_{name}" and wanted <= s.labels.items()
    )


@pytest.mark.parametrize("name", PROCESSES)
def test_every_process_speaks_openmetrics_where_it_is_asked_for(stack: Served, name: str) -> None:
    answer = text(stack, name)
    assert answer.headers["content-type"] == OPENMETRICS_TYPE
    assert answer.text.endswith("# EOF\n")
    families = read(stack, name)
    for family in families.values():
        if family.name.startswith("kvairlock_"):
            row = METRICS[family.name.removeprefix("kvairlock_")]
            assert (family.type, family.unit) == (row.kind.value, row.unit)
    assert "process_resident_memory_bytes" in families
    plain = text(stack, name, headers={})
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")


@pytest.mark.parametrize("name", PROCESSES)
def test_what_is_shown_passes_promtool(stack: Served, name: str, promtool: Promtool) -> None:
    done = promtool("check", "metrics", stdin=text(stack, name, headers={}).text)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_metric_that_a_quiet_stack_has_is_shown_by_whom_the_table_says(
    stack: Served,
) -> None:
    shown = {
        name: {s.name for f in read(stack, name).values() for s in f.samples} for name in PROCESSES
    }
    rare = {"would_refuse", "retries", "relaxed", "node_would_refuse", "node_refusals"}
    rare |= {"waiver_expiry_timestamp_seconds", "node_requests", "commitment_violations"}
    for name, row in METRICS.items():
        ending = "_count" if row.kind is Kind.HISTOGRAM else ""
        if name not in rare:
            assert f"{exposed(name)}{ending}" in shown["gateway"], name
        if row.shown is Shown.GATEWAY:
            assert exposed(name) not in shown["decode-0"] | shown["prefill-0"]
    own = {name for names in shown.values() for name in names if name.startswith("kvairlock_")}
    assert own <= series().keys()


def test_a_node_and_the_gateway_say_the_same_of_it(stack: Served) -> None:
    own, passed_on = read(stack, "decode-0"), read(stack, "gateway")
    for name, labels in (
        ("pages", {"stage": "free"}),
        ("page_reads_total", {"check": "verified"}),
        ("verdicts_total", {"outcome": "admitted"}),
        ("fences_total", {"memory": "lease"}),
        ("fences_total", {"memory": "window"}),
        ("queue_wait_seconds_count", {}),
    ):
        of_node = counted(own, name, node="decode-0", **labels)
        assert of_node == counted(passed_on, name, node="decode-0", **labels)
        assert of_node > 0


def test_what_runs_is_said_of_every_process(stack: Served) -> None:
    told = {"version": __version__, "model": "recall"}
    for node in PROCESSES:
        assert counted(read(stack, "gateway"), "build_info", node=node, **told) == 1


def test_requests_are_counted_by_length_and_one_of_them_is_not_shown(stack: Served) -> None:
    families = read(stack, "gateway")
    total = len(TENANTS) * ASKED
    assert counted(families, "requests_total") == total + ASKED
    assert counted(families, "requests_total", length="256", outcome="completed") == total
    assert counted(families, "requests_total", length="more", outcome="rejected") == ASKED
    assert counted(families, "requests_total", outcome="invalid") == 0, "there was one"
    refused = {"reason": "context_length", "stage": "gateway"}
    assert counted(families, "refusals_total", length="more", **refused) == ASKED
    assert counted(families, "queue_wait_seconds_count", node="decode-0", length="256") == total


@pytest.mark.parametrize("name", PROCESSES)
def test_no_series_names_a_tenant_a_key_a_request_or_a_prompt(stack: Served, name: str) -> None:
    said = text(stack, name).text
    ends = stack.records.all("request_ended")
    requests, pseudonyms = ({end[who] for end in ends} for who in ("request", "tenant"))
    assert len(requests) >= len(TENANTS) * ASKED
    planted = {*TENANTS, *TENANTS.values(), "operator", PLANTED, "kva-", "savanna"}
    planted |= set(stack.keys.of.values()) | requests | pseudonyms
    assert not [word for word in planted if word in said]
    assert not re.search(r"cmpl-[0-9a-f]", said)
    labels = set(re.findall(r'[{,]([a-z_]+)="', said))
    assert labels <= LABELS.keys() | {"le"}


@pytest.mark.parametrize("name", ["prefill-0", "decode-0"])
def test_a_nodes_port_serves_nothing_else_and_only_here(stack: Served, name: str) -> None:
    url = httpx.URL(stack.facts["metrics"][name])
    assert url.host == "127.0.0.1"
    assert httpx.get(url.copy_with(path="/status"), timeout=10).status_code == 404
    assert httpx.post(url, timeout=10).status_code == 405


def test_the_stack_says_where_its_metrics_are(stack: Served) -> None:
    said = stack.log.read_text()
    assert all(stack.facts["metrics"][name] in said for name in PROCESSES)


def test_a_port_that_is_taken_is_said_with_what_to_do(stack: Served, tmp_path: Path) -> None:
    port = httpx.URL(stack.facts["metrics"]["decode-0"]).port
    taken = SETTINGS.replace('name = "decode-0"', f'name = "decode-0"\nmetrics_port = {port}')
    with pytest.raises(Exception, match="metrics_port"), serving(tmp_path, taken, TENANTS):
        pytest.fail("two nodes cannot have one port")
