"""`kvairlock coverage` against a gateway that answers as a test has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvairlock.cli import operator as module
from kvairlock.cli.operator import Operator
from kvairlock.core.guards import GUARDS
from kvairlock.runtime.secrets import write_private

from .conftest import Command

VERIFIED = {"verified": 75, "by_generation": 25, "local": 0, "observed": 0, "uncovered": 0}
SAMPLED = {
    "node": "decode-0",
    "guard": "integrity",
    "mode": "enforcing",
    "checks": "sampled 0.25",
    "waiver": "sampling",
}
OBSERVING = {**SAMPLED, "mode": "observing", "checks": "full", "waiver": "pilot"}
PILOT = {
    "name": "pilot",
    "state": "in_force",
    "relaxes": ["prefill-0/decode-0 integrity observing: pilot"],
    "conditions": "pilot tenants only",
    "owner": "serving team",
    "expires_unix_s": 1798675200,
    "seconds_left": 90061,
    "evidence": "30 days without a would-be refusal",
}
Serve = Callable[[Any], None]


def route(**more: Any) -> dict[str, Any]:
    plain = {
        "route": "prefill-0/decode-0",
        "pages_read": 100,
        "reads": VERIFIED,
        "relaxed": [],
        "unstated": [],
    }
    return {**plain, **more}


def reads(**more: int) -> dict[str, Any]:
    counted = {**dict.fromkeys(VERIFIED, 0), **more}
    return {"reads": counted, "pages_read": sum(counted.values())}


@pytest.fixture
def serve(home: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Lets a gateway answer with a status."""
    write_private(home / "key", "kva-operator")
    monkeypatch.setenv("KVAIRLOCK_API_KEY", "kva-operator")

    def run(status: Any) -> None:
        def opened(url: str, key: str) -> Operator:
            answer = httpx.Response(200, json=status)
            return Operator(url, key, httpx.MockTransport(lambda _: answer))

        monkeypatch.setattr(module, "Operator", opened)

    return run


def told(*routes: dict[str, Any], waivers: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {"coverage": list(routes), "waivers": list(waivers), "other": 1}


@pytest.mark.parametrize(
    ("more", "covered"),
    [
        ({}, True),
        ({"relaxed": [SAMPLED]}, True),
        (reads(), True),
        (reads(local=4), True),
        (reads(verified=1_000_000, observed=1), False),
        (reads(verified=9, uncovered=1), False),
        ({"relaxed": [OBSERVING]}, False),
        ({"relaxed": [{**SAMPLED, "mode": "disabled", "waiver": ""}]}, False),
        ({"pages_read": None, "reads": {}}, False),
        ({"unstated": ["prefill-0"]}, False),
        ({"pages_read": 100, "reads": {}}, False),
        ({"pages_read": 101, "reads": VERIFIED}, False),
        ({"pages_read": 75, "reads": {"verified": 75}}, False),
    ],
)
def test_a_route_is_covered_if_all_is_stated_checked_and_enforcing(
    kvairlock: Command, serve: Serve, more: dict[str, Any], covered: bool
) -> None:
    serve(told(route(), route(route="prefill-1/decode-0", **more)))
    ran = kvairlock("coverage", "--json")
    assert ran.status == (0 if covered else 1)
    assert (ran.json["ok"], [r["covered"] for r in ran.json["routes"]]) == (
        covered,
        [True, covered],
    )
    said = kvairlock("coverage")
    assert said.status == ran.status
    last = said.out.splitlines()[-1]
    fine = "every route is covered"
    if more == reads():
        fine += "; no page was read yet on prefill-1/decode-0"
    assert last == (fine if covered else "not covered: prefill-1/decode-0")


def test_that_nothing_was_read_yet_is_not_called_covered(kvairlock: Command, serve: Serve) -> None:
    serve(told(route(**reads())))
    ran = kvairlock("coverage")
    assert ran.status == 0
    assert ran.out.splitlines()[-1] == "no page was read yet; every guard enforces"


def test_shares_are_of_all_reads(kvairlock: Command, serve: Serve) -> None:
    serve(told(route(**reads(verified=1, by_generation=1, observed=2))))
    (found,) = kvairlock("coverage", "--json").json["routes"]
    assert found["shares"] == {
        "verified": 0.25,
        "by_generation": 0.25,
        "local": 0.0,
        "observed": 0.5,
        "uncovered": 0.0,
    }
    assert "25.00 %" in kvairlock("coverage").out


def test_waivers_are_shown_with_all_that_they_must_say(kvairlock: Command, serve: Serve) -> None:
    old = {**PILOT, "name": "old", "state": "expired", "seconds_left": 0}
    serve(told(route(relaxed=[OBSERVING]), waivers=(PILOT, old)))
    ran = kvairlock("coverage")
    words = " ".join(ran.out.split())
    for said in ("pilot", "serving team", "1:01:01", "pilot tenants only", "expired"):
        assert said in words
    assert "observing" in words
    shown = kvairlock("coverage", "--json").json["waivers"]
    assert shown == [PILOT, old]


def test_what_is_not_stated_is_named(kvairlock: Command, serve: Serve) -> None:
    serve(told(route(pages_read=None, reads={}, unstated=["decode-0"])))
    ran = kvairlock("coverage")
    assert ran.status == 1
    assert ran.out.count("not stated") == 2
    assert "decode-0" in ran.out


@pytest.mark.parametrize("status", [{}, {"coverage": []}, told({"route": "a/b"}), told()])
def test_a_gateway_that_does_not_say_is_status_1(
    kvairlock: Command, serve: Serve, status: dict[str, Any]
) -> None:
    serve(status)
    ran = kvairlock("coverage")
    assert (ran.status, ran.out) == (1, "")
    assert "the gateway does not say what is needed" in ran.err


def test_the_list_of_guards_says_which_can_observe_and_why_others_cannot(
    kvairlock: Command,
) -> None:
    listed = {row["guard"]: row for row in kvairlock("guards", "--json").json}
    assert list(listed) == list(GUARDS)
    for guard, row in GUARDS.items():
        assert (listed[guard]["can_observe"], listed[guard]["observing"]) == (
            row.can_observe,
            row.observing,
        )
    assert "no: it zeroes bytes" in " ".join(kvairlock("guards").out.split())
