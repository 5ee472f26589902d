"""Figures become what Prometheus reads: by the table, in both formats, complete and harmless."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.openmetrics import parser as strict
from prometheus_client.parser import text_string_to_metric_families as plain

from kvairlock.core.checks import Cover, Coverage
from kvairlock.core.errors import InvariantBroken
from kvairlock.core.messages import NodeStatus
from kvairlock.core.promise.capacity import Basis, CapacityReport
from kvairlock.core.terms import Fence, Incarnation, NodeName, Role, Route
from kvairlock.core.waits import BOUNDS_MS, Wait, Waited
from kvairlock.metrics import nodes
from kvairlock.metrics.exposition import OPENMETRICS_TYPE, accepts_openmetrics, render
from kvairlock.metrics.families import Gathering, Tallies
from kvairlock.metrics.table import LABELS, METRICS, PREFIX, Kind, exposed, series
from tests.promtool import Promtool

D = NodeName("decode-0")
STEP = 3
REPORT = CapacityReport(
    node=D,
    role=Role.DECODE,
    incarnation=Incarnation("d-1"),
    epoch=0,
    fingerprint="f",
    basis=Basis("recall@2", "float32", "tp1", 0, "9.9.9", ""),
    page_tokens=16,
    pages=8,
    landing_pages=4,
    windows=4,
    context_tokens=4096,
    groups=(),
)
WAITS = (
    Waited(Wait.DRAIN, "256", "cancelled", Fence.ACKNOWLEDGED, 3, 40_050, {10: 1, 25: 1}),
    Waited(Wait.QUEUE, "other", "granted", None, 1, 7, {10: 1}),
    Waited(Wait.HANDOVER, "256", "admitted", None, 1, 30, {50: 1}),
    Waited(Wait.WINDOW, "256", "", Fence.SEALED, 1, 1, {1: 1}),
    Waited(Wait.WINDOW, "256", "ended", Fence.SEALED, 1, 4, {5: 1}),
)
STATUS = NodeStatus(
    report=REPORT,
    pages={"free": 5, "draining": 3},
    windows=2,
    windows_draining=1,
    requests={"granted": 1},
    links=(),
    counters={
        "refused.decode_admission.capacity": 2,
        "would_refuse.range.range": 1,
        "verdict.range": 4,
        "ended.failed": 4,
        "recomputed": 5,
        "evidence_records": 77,
    },
    fences={"acknowledged": 6},
    window_fences={"sealed": 2},
    points=(),
    relaxed=(),
    coverage=(Coverage(Route(NodeName("prefill-0"), D), 5, 4, 3, 2, 1),),
    waits=WAITS,
)


def openmetrics(text: str) -> list[Metric]:
    """Read OpenMetrics, strictly."""
    return list(strict.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def gathered(status: NodeStatus = STATUS, role: Role = Role.DECODE) -> Gathering:
    into = Gathering()
    nodes.show(D, role, status, into)
    return into


def values(figures: Gathering) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All samples, without the node's own labels."""
    found = {}
    for family in openmetrics(render(figures, "application/openmetrics-text")[0].decode()):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in ("node", "role")}
            found[sample.name, tuple(sorted(labels.items()))] = sample.value
    return found


# The table


def test_names_follow_the_conventions() -> None:
    for name, row in METRICS.items():
        assert name.islower()
        assert not name.startswith(PREFIX)
        assert not name.endswith(("_total", "_info", "_count", "_sum", "_bucket"))
        assert name.endswith(row.unit), "the unit stands at the end"
        assert row.kind is not Kind.HISTOGRAM or row.unit == "seconds"
        assert row.help
        assert not row.help.endswith(".")
    assert exposed("requests") == "kvairlock_requests_total"
    assert exposed("build") == "kvairlock_build_info"
    assert "kvairlock_drain_wait_seconds_bucket" in series()


def test_every_label_is_in_the_closed_list_and_none_is_about_a_client() -> None:
    used = {label for row in METRICS.values() for label in row.labels}
    assert used == set(LABELS)
    assert not {"tenant", "request", "key", "user", "owner", "scope", "prompt"} & used


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("nothing", {}),
        ("pages", {"node": "d"}),
        ("pages", {"node": "d", "role": "decode", "stage": "free", "tenant": "acme"}),
    ],
)
def test_what_the_table_does_not_have_is_not_shown(name: str, labels: dict[str, str]) -> None:
    with pytest.raises(InvariantBroken):
        Gathering().add(name, 1, **labels)


# A node's figures


def test_a_nodes_figures_are_shown_under_their_rows() -> None:
    found = values(gathered())
    for name, labels, value in (
        ("build_info", {"version": "9.9.9", "model": "recall", "revision": "2"}, 1),
        ("capacity_tokens", {}, 128),
        ("pages", {"stage": "draining"}, 3),
        ("windows", {"state": "open"}, 1),
        ("windows", {"state": "draining"}, 1),
        ("fences_total", {"memory": "lease", "fence": "acknowledged"}, 6),
        ("fences_total", {"memory": "window", "fence": "acknowledged"}, 0),
        ("fences_total", {"memory": "window", "fence": "sealed"}, 2),
        ("node_refusals_total", {"stage": "decode_admission", "reason": "capacity"}, 2),
        ("node_would_refuse_total", {"guard": "range", "reason": "range"}, 1),
        ("verdicts_total", {"outcome": "range"}, 4),
        ("node_ends_total", {"end": "failed"}, 4),
        ("node_events_total", {"name": "recomputed"}, 5),
        ("evidence_records_total", {}, 77),
    ):
        assert found[f"kvairlock_{name}", tuple(sorted(labels.items()))] == value
    reads = {dict(k[1])["check"]: v for k, v in found.items() if "page_reads" in k[0]}
    assert reads == {"verified": 5, "by_generation": 4, "local": 3, "observed": 2, "uncovered": 1}
    assert set(reads) == set(Cover)


def test_what_alerts_wait_for_is_shown_before_it_happened() -> None:
    found = values(gathered(replace(STATUS, counters={}, fences={})))
    assert found["kvairlock_verdicts_total", (("outcome", "integrity"),)] == 0
    for memory in ("lease", "window"):
        told = (("fence", "unproven"), ("memory", memory))
        assert found["kvairlock_fences_total", told] == 0
    assert found["kvairlock_invariants_broken_total", ()] == 0


def test_what_a_node_does_not_state_is_not_shown_as_nothing() -> None:
    silent = replace(STATUS, counters={}, coverage=None, waits=None, window_fences=None)
    found = values(gathered(silent))
    names = {name for name, _ in found}
    assert not any(("memory", "window") in labels for _, labels in found)
    for absent in ("page_reads", "drain_wait", "evidence_lost", "evidence_records"):
        assert not any(absent in name for name in names)


def test_a_prefill_node_gives_no_verdicts() -> None:
    found = values(gathered(replace(STATUS, counters={}), Role.PREFILL))
    assert not any(name == "kvairlock_verdicts_total" for name, _ in found)


def test_a_histogram_counts_what_took_at_most_so_long() -> None:
    found = values(gathered())
    told = (("cause", "cancelled"), ("fence", "acknowledged"), ("length", "256"))
    name = "kvairlock_drain_wait_seconds"
    below = {
        float(dict(labels)["le"]): value
        for (one, labels), value in found.items()
        if one == f"{name}_bucket" and dict(labels)["cause"] == "cancelled"
    }
    assert [below[ms / 1000] for ms in (5, 10, 25, 300_000)] == [0, 1, 2, 2]
    assert below[float("inf")] == found[f"{name}_count", told] == 3
    assert found[f"{name}_sum", told] == 40.05
    assert len(below) == len(BOUNDS_MS) + 1


def test_waits_that_a_row_does_not_tell_apart_are_one_histogram() -> None:
    labels = (("fence", "sealed"), ("length", "256"))
    assert values(gathered())["kvairlock_window_wait_seconds_count", labels] == 2


@pytest.mark.parametrize(
    "said",
    [
        {"pages": {"acme": 3}},
        {"requests": {"acme": 3}},
        {"fences": {"acme": 3}},
        {"window_fences": {"acme": 3}},
        {"counters": {"acme": 3}},
        {"counters": {"verdict.acme": 3}},
        {"counters": {"ended.acme": 3}},
        {"counters": {"refused.acme.range": 3}},
        {"counters": {"refused.verdict.acme": 3}},
        {"counters": {"refused.verdict.range.acme": 3}},
        {"counters": {"would_refuse.acme.range": 3}},
    ],
    ids=str,
)
def test_a_name_of_no_closed_list_is_not_shown(said: dict[str, dict[str, int]]) -> None:
    text = render(gathered(replace(STATUS, **said)), "")[0].decode()  # type: ignore[arg-type]
    assert "acme" not in text


def test_a_figure_of_another_kind_than_its_row_is_refused() -> None:
    labels = dict.fromkeys(METRICS["queue_wait_seconds"].labels, "x")
    with pytest.raises(InvariantBroken, match="queue_wait_seconds"):
        Gathering().add("queue_wait_seconds", 1, **labels)
    with pytest.raises(InvariantBroken, match="retries"):
        Gathering().add_waits("retries", (), reason="x")


# The answer


@pytest.mark.parametrize(
    ("accept", "asked"),
    [
        ("", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5", True),
        ("Application/OpenMetrics-Text", True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0.000, text/plain", False),
        ("text/plain;q=1,application/openmetrics-text;q=0.1", False),
        ("text/plain,application/openmetrics-text", True),
        ("application/openmetrics-text;q=much", False),
        ("application/openmetrics-text;version=nonsense;escaping=\x00", True),
        ("application/openmetrics-texts", False),
    ],
)
def test_openmetrics_is_answered_where_it_is_asked_for(accept: str, asked: bool) -> None:
    assert accepts_openmetrics(accept) is asked
    body, kind = render(gathered(), accept)
    assert (kind == OPENMETRICS_TYPE) is asked
    assert body.endswith(b"# EOF\n") is asked


def test_both_formats_say_the_same() -> None:
    figures = gathered()
    new, _ = render(figures, "application/openmetrics-text")
    old, _ = render(figures, "")
    said = [
        {(s.name, tuple(s.labels.items())): s.value for f in families for s in f.samples}
        for families in (openmetrics(new.decode()), plain(old.decode()))
    ]
    own = [{k: v for k, v in each.items() if k[0].startswith(PREFIX)} for each in said]
    assert own[0] == own[1]
    assert own[0]
    assert not any("_created" in name for name, _ in own[0])


def test_openmetrics_states_units_and_types() -> None:
    text = render(gathered(), "application/openmetrics-text")[0].decode()
    families = {f.name: f for f in openmetrics(text)}
    drains = families["kvairlock_drain_wait_seconds"]
    assert (drains.unit, drains.type) == ("seconds", "histogram")
    assert families["kvairlock_build"].type == "info"
    assert families["kvairlock_fences"].type == "counter"


def test_the_answer_passes_promtool(promtool: Promtool) -> None:
    done = promtool("check", "metrics", stdin=render(gathered(), "")[0].decode())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Counters of a process


def test_counters_rise_by_one_and_are_summed_up_over_labels() -> None:
    tallies = Tallies("parameters_stripped")
    for reason in ("capacity", "capacity", "timeout"):
        tallies.count("retries", reason=reason)
    into = Gathering()
    tallies.show(into)
    found = values(into)
    assert found["kvairlock_retries_total", (("reason", "capacity"),)] == 2
    assert found["kvairlock_parameters_stripped_total", ()] == 0
    assert tallies.totals("retries") == {(): 3}
    assert tallies.totals("retries", "reason") == {("capacity",): 2, ("timeout",): 1}


@given(st.lists(st.sampled_from(list(product(("256", "more"), ("completed", "failed"))))))
def test_what_is_told_apart_by_length_rises_by_a_whole_step_and_never_falls(
    ends: list[tuple[str, str]],
) -> None:
    tallies, shown = Tallies(step=STEP), Counter[tuple[str, ...]]()
    for length, outcome in ends:
        tallies.count("requests", outcome=outcome, model="m", length=length, version="1")
        before, shown = shown, shown_of(tallies)
        assert all(count > 0 for count in shown.values()), "nothing tells that one came"
        rises = [shown[series] - before[series] for series in shown | before]
        assert all(rise == 0 or rise >= STEP for rise in rises)
    counted = tallies.totals("requests", "length", "outcome")
    assert all(0 <= counted[series] - shown[series] < STEP for series in counted)


def shown_of(tallies: Tallies) -> Counter[tuple[str, ...]]:
    """What is shown, by length and outcome."""
    into = Gathering()
    tallies.show(into)
    samples = [sample for family in into.collect() for sample in family.samples]
    return Counter({(s.labels["length"], s.labels["outcome"]): int(s.value) for s in samples})
