"""What faults cost, as its users run it: every load leaves its sign, and none leaks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvairlock.drills.cost.loads import LOADS
from kvairlock.runtime.settings import RetrySettings


def cost(*words: object, timeout_s: int = 170) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "kvairlock", "cost", "--json", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_every_load_shows_its_sign_and_none_leaks() -> None:
    status, said, progress = cost("--requests", 40, "--rounds", 1)
    told = json.loads(said)
    assert (status, told["ok"], told["problems"]) == (0, True, []), said
    assert (told["seed"], told["rounds"], told["requests"]) == (2026, 1, 40)
    loads = {load["name"]: load for load in told["loads"]}
    assert list(loads) == [load.name for load in LOADS]
    for each in LOADS:
        check_any(loads[each.name], 40 * each.crowding)
    check_faults(loads)
    assert "round 1 of 1" in progress


def check_any(load: dict[str, Any], requests: int) -> None:
    """What holds in every load."""
    assert (load["foreign"], load["left_over"], load["requests"]) == (0, 0, requests)
    assert load["answered"] > 0
    assert load["first_ms_p50"]["median"] <= load["first_ms_p99"]["median"]
    assert load["first_ms_p99"]["median"] <= load["total_ms_p99"]["median"]
    shares = [load["held_back"][role]["max"]["most"] for role in ("prefill", "decode")]
    assert all(0 <= share <= 1 for share in shares)
    assert {wait["memory"] for wait in load["waits"]} == {"pages", "window"}
    budget = RetrySettings()
    assert load["second_attempts"] <= budget.share * load["answered"] + budget.burst
    assert load["submits"] <= load["sent"] + load["second_attempts"]


def check_faults(loads: dict[str, dict[str, Any]]) -> None:
    """What each fault shows."""
    assert loads["cancels"]["left"] > 0
    assert loads["over-long"]["refused"]["context_length_exceeded"] == 8
    for name in ("overload", "overload, retried"):
        assert loads[name]["refused"].keys() & {"tenant_share_exceeded", "route_full"}
    assert loads["overload"]["sent"] == loads["overload"]["requests"]
    assert loads["overload, retried"]["sent"] > loads["overload, retried"]["requests"]
    stopped, killed = loads["prefill stopped"], loads["decode killed"]
    assert stopped["second_attempts"] + stopped["refused"].get("node_lost", 0) > 0
    assert killed["second_attempts"] + killed["refused"].get("node_lost", 0) > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--requests", "0"), "--requests"),
        (("--rounds", "0"), "--rounds"),
        (("--concurrency", "1"), "--concurrency"),
        (("--keep", Path(__file__).parent), "is not empty"),
    ],
)
def test_wrong_options_start_nothing(words: tuple[object, ...], message: str) -> None:
    status, said, wrong = cost(*words)
    assert (status, said) == (2, "")
    assert message in wrong
