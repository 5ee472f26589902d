"""`kvairlock explore` and `kvairlock swarm`: what they print, and their exit statuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kvairlock.cli import main
from kvairlock.sim import crowd
from kvairlock.sim.outcome import Fault, Violation
from kvairlock.sim.swarm import Run
from kvairlock.sim.worlds import WORLDS


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    said = capsys.readouterr()
    code = ended.value.code
    return code if isinstance(code, int) else 0, said.out, said.err


def test_one_world_is_explored(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = ran(capsys, "explore", "--world", "team-crash", "--json")
    found: dict[str, Any] = json.loads(out)
    assert status == 0
    assert (found["complete"], found["violations"], found["adequate"]) == (True, 0, None)
    assert found["budgets"] == {"team-crash": {"crashes": 1}}
    assert found["states"] == found["worlds"][0]["states"] > 500
    assert found["transitions"] > found["states"]
    assert found["per_second"] > 0


def test_what_was_found_is_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = ran(capsys, "explore", "--world", "team-crash")
    assert status == 0
    assert "all explored" in out
    assert "0 violations, complete" in out


def test_worlds_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = ran(capsys, "explore", "--list", "--json")
    assert [row["name"] for row in json.loads(out)] == [*(w.name for w in WORLDS), "large"]


def test_a_world_that_there_is_not_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = ran(capsys, "explore", "--world", "huge")
    assert status == 2
    assert "no world huge" in err


def test_the_guards_have_worlds_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = ran(capsys, "explore", "--mutants", "--world", "ends")
    assert (status, out) == (2, "")
    assert "--mutants has worlds of its own" in err


def test_a_run_is_made_again_by_its_whole_name_only(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("2026", "2026/", "/7", "2026/x"):
        status, out, err = ran(capsys, "swarm", "--again", name, "--json")
        assert (status, out) == (2, "")
        assert f"no run is called {name}" in err


def test_one_run_is_made_again(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = ran(capsys, "swarm", "--again", "2026/0", "--json")
    found = json.loads(out)
    assert status == 0
    assert (found["seed"], found["runs"], found["violations"]) == ("2026/0", 1, 0)
    assert found["failures"] == []


def test_a_failing_run_is_status_1_and_names_its_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Run(violation=Violation(Fault.LEAK, "made up"))
    monkeypatch.setattr(crowd, "run", lambda seed: broken)
    monkeypatch.setattr(crowd, "shrink", lambda plan, made, fault: made)
    status, out, _ = ran(capsys, "swarm", "--again", "2026/7", "--json")
    found = json.loads(out)
    assert status == 1
    assert found["violations"] == 1
    assert (found["failures"][0]["seed"], found["failures"][0]["violation"]) == (
        "2026/7",
        "leak: made up",
    )


def test_a_rare_state_that_is_missed_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = ran(capsys, "swarm", "--seconds", "1", "--seed", "short", "--json")
    found = json.loads(out)
    assert found["runs"] >= 1
    assert found["violations"] == 0
    assert status == (1 if found["sometimes_missed"] else 0)
