"""A stack with waivers: what a guard only observes goes through, is on record, and is not covered.

One decode node serves two routes. On the first `layout` observes; on the second a sample of the
pages is digested. A prefill node with a flaw stores pages of another layout, and states it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kvairlock.drills.stack import wait_for
from kvairlock.runtime.failpoints import Flaw
from kvairlock.runtime.secrets import write_private

from .served import OPERATOR, Served, error_of, serving, text_of

FIRST, SECOND = "prefill-0/decode-0", "prefill-1/decode-0"
PAGES_DIGESTED = 2
NODES = """
[gateway]

[commitment]
context_tokens = 1024

[breaker]
failures = 1000
violations = 1000

[[prefill]]
name = "prefill-0"
pages = 128
prefix_share = 0

[[prefill]]
name = "prefill-1"
pages = 128
prefix_share = 0

[[decode]]
name = "decode-0"
pages = 256

[limits]
beat_ms = 50

[drill]
enabled = true
"""
PILOT = """
[[waiver]]
name = "pilot"
guards = ["layout"]
mode = "observing"
routes = ["prefill-0/decode-0"]
conditions = "pilot tenants only"
owner = "serving"
expires = {expires}
evidence = "30 days without a would-be refusal"
"""
SAMPLING = """
[[waiver]]
name = "sampling"
checks = "sampled"
share = 0.01
routes = ["prefill-1/decode-0"]
conditions = "long prompts"
owner = "serving"
expires = {expires}
evidence = "a month of drills without a torn page"
"""


def settings(*waivers: str, ends_in: timedelta) -> str:
    expires = (datetime.now(UTC) + ends_in).isoformat(timespec="seconds")
    return NODES + "".join(waiver.format(expires=expires) for waiver in waivers)


@pytest.fixture(scope="module")
def waived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("waived")
    text = settings(PILOT, SAMPLING, ends_in=timedelta(hours=1))
    with serving(folder, text, {"acme": "private"}, operators=True) as stack:
        yield stack


def ask_with_a_flaw(stack: Served, route: str) -> Any:
    """Ask once on a route whose prefill node does wrong."""
    prefill = route.partition("/")[0]
    stack.client.point(prefill, "arm", Flaw.LAYOUT)
    prompt = stack.canaries.prompt("acme", 120)
    response = stack.post(prompt, route)
    stack.client.point(prefill, "release", Flaw.LAYOUT)
    return prompt, response


def coverage(stack: Served, folder: Path) -> tuple[int, dict[str, Any]]:
    """What `kvairlock coverage` says, and its exit status."""
    key = folder / "operator.key"
    if not key.exists():
        write_private(key, stack.keys.of[OPERATOR])
    words = ["coverage", "--url", stack.url, "--key-file", str(key), "--json"]
    ran = subprocess.run(
        [sys.executable, "-m", "kvairlock", *words], capture_output=True, text=True, check=False
    )
    assert not ran.stderr, ran.stderr
    document: dict[str, Any] = json.loads(ran.stdout)
    return ran.returncode, document


def test_where_the_guard_observes_the_fault_goes_through_and_is_on_record(waived: Served) -> None:
    prompt, response = ask_with_a_flaw(waived, FIRST)
    assert response.status_code == 200
    assert text_of(response) != prompt.canary, "pages of another layout were read"
    seen = waived.one("would_refuse", node="decode-0")
    assert (seen["guard"], seen["route"]) == ("layout", FIRST)
    assert (seen["reason"], seen["stage"]) == ("model_layout", "verdict")
    verdict = waived.records.last("verdict", outcome="admitted")
    assert verdict["observed"] == ["layout"]
    assert "layout" not in verdict["checks"]


def test_on_another_route_of_the_same_node_it_is_refused(waived: Served) -> None:
    _, response = ask_with_a_flaw(waived, SECOND)
    assert response.status_code == 502
    assert error_of(response)["code"] == "model_layout_mismatch"
    verdict = waived.records.last("verdict", outcome="model_layout")
    assert (verdict["observed"], verdict["verified"]) == ([], [])


def test_of_a_sample_only_the_digested_pages_are_verified(waived: Served) -> None:
    waived.serves("acme", SECOND, characters=600)
    verdict = waived.records.last("verdict", policy="sampled 0.01")
    assert len(verdict["verified"]) == PAGES_DIGESTED < len(verdict["pages"])
    assert verdict["verified"][-1] == verdict["pages"][-1], "the last page is in every sample"
    assert set(verdict["verified"]) < set(verdict["pages"])
    assert "integrity" not in verdict["checks"]


def test_coverage_says_which_reads_nothing_vouched_for_and_why(
    waived: Served, tmp_path: Path
) -> None:
    waived.serves("acme", FIRST)
    waived.serves("acme", SECOND, characters=600)

    def counted() -> dict[str, Any] | None:
        _, said = coverage(waived, tmp_path)
        first, second = said["routes"]
        return said if first["pages_read"] and second["pages_read"] else None

    said = wait_for("the node to report its reads", counted)
    status, _ = coverage(waived, tmp_path)
    first, second = said["routes"]
    assert (status, said["ok"]) == (1, False)
    assert (first["covered"], second["covered"]) == (False, True)
    assert first["reads"]["observed"] == first["pages_read"]
    assert first["relaxed"] == [
        {
            "node": "decode-0",
            "guard": "layout",
            "mode": "observing",
            "checks": "full",
            "waiver": "pilot",
        }
    ]
    assert second["reads"]["observed"] == second["reads"]["uncovered"] == 0
    assert second["reads"]["verified"] > 0
    assert second["reads"]["by_generation"] > 0
    assert {w["name"]: w["state"] for w in said["waivers"]} == {
        "pilot": "in_force",
        "sampling": "in_force",
    }


def test_every_process_records_its_waivers_with_who_answers_for_them(waived: Served) -> None:
    for node in ("gateway", "prefill-0", "decode-0"):
        began = waived.records.all("waiver_began", node=node)
        assert {(b["waiver"], b["owner"]) for b in began} == {
            ("pilot", "serving"),
            ("sampling", "serving"),
        }
        (started,) = waived.records.all("node_started", node=node)
        assert started["relaxed"] == [
            f"{FIRST} layout observing: pilot",
            f"{SECOND} integrity enforcing sampled 0.01: sampling",
        ]


@pytest.mark.slow
def test_a_waiver_ends_by_itself_without_a_restart(tmp_path: Path) -> None:
    """The stack has that long to start; it waits for the record of the end, not for the time."""
    text = settings(PILOT, ends_in=timedelta(seconds=30))
    with serving(tmp_path, text, {"acme": "private"}, operators=True) as stack:
        stack.serves("acme", FIRST)
        (started,) = stack.records.all("node_started", node="decode-0")
        assert started["relaxed"] == [f"{FIRST} layout observing: pilot"]

        def ended() -> bool | None:
            nodes = ("gateway", "prefill-0", "decode-0")
            found = [stack.records.all("guards_changed", node=node) for node in nodes]
            return True if all(found) else None

        wait_for("all processes to see the waiver end", ended)
        assert stack.one("guards_changed", node="decode-0")["relaxed"] == []
        assert stack.one("waiver_expired", node="decode-0")["waiver"] == "pilot"
        _, response = ask_with_a_flaw(stack, FIRST)
        assert response.status_code == 502
        assert error_of(response)["code"] == "model_layout_mismatch"
        assert stack.records.all("would_refuse") == []
        status, said = coverage(stack, tmp_path)
        assert (status, [w["state"] for w in said["waivers"]]) == (1, ["expired"])
        first, _ = said["routes"]
        assert first["relaxed"] == []
        assert first["reads"]["observed"] > 0, "the time before stays uncovered"
