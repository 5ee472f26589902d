"""The soak as its users run it: good with the guards on, and not good with enough of them off."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvairlock.cli.soak import SEED
from kvairlock.drills.soak.plan import REPEATING, Ask, Plan
from kvairlock.sink.reading import read_folder

INCIDENT = "contract,capacity,outcome,input,range,page_index,integrity,scrub"
"""What lets a rejected prompt be read: everything that looks at it on its way."""


def soak(*words: object, timeout_s: int = 110) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "kvairlock", "soak", "--json", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    return done.returncode, json.loads(done.stdout or '{"said": ""}') | {"stderr": done.stderr}


def drawn(count: int) -> list[Ask]:
    """What the command draws for three tenants."""
    plan = Plan(SEED, [f"tenant-{number}" for number in range(3)], REPEATING)
    return [plan.draw() for _ in range(count)]


@pytest.mark.slow
def test_nothing_leaks_and_nothing_remains(tmp_path: Path) -> None:
    status, told = soak("--requests", 100, "--tenants", 3, "--keep", tmp_path)
    assert (status, told["ok"], told["problems"]) == (0, True, []), told
    ends = ("completed", "cancelled", "too_long")
    assert sum(told[end] for end in ends) + sum(told["refused"].values()) == 100
    nothing = ("foreign", "stray", "pages_lost", "windows_left", "requests_left")
    assert [told[figure] for figure in nothing] == [0] * len(nothing)
    assert told["own"] == told["completed"] > 40
    assert told["cancelled"] > 15
    overlong = [ask for ask in drawn(100) if ask.overlong]
    stay = [ask for ask in overlong if ask.leave is None]
    assert 0 < len(stay) <= told["too_long"] <= len(overlong)
    assert told["reused_tokens"] > 0
    assert told["evidence"]["waited"] > 20
    assert set(told["descriptors"]) == {"gateway", "prefill-0", "prefill-1", "decode-0"}
    assert all(len(rss["samples"]) > 5 for rss in told["rss_mib"].values())
    assert len(read_folder(tmp_path / "evidence")) == told["evidence"]["records"]


@pytest.mark.slow
def test_with_the_guards_of_the_incident_off_canaries_cross() -> None:
    status, told = soak("--requests", 200, "--tenants", 3, "--guards-off", INCIDENT)
    assert (status, told["ok"]) == (1, False)
    assert told["foreign"] > 0
    assert told["landing"] == "direct"
    assert told["guards_off"] == INCIDENT.split(",")
    assert any("canary of another request" in problem for problem in told["problems"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--guards-off", "scrub,hope"), "no guard hope"),
        (("--model", "recoil"), "recoil"),
        (("--requests", "0"), "--requests"),
        (("--keep", Path(__file__).parent), "is not empty"),
    ],
)
def test_wrong_options_start_nothing(words: tuple[object, ...], message: str) -> None:
    status, told = soak(*words)
    assert status == 2
    assert message in told["stderr"]
