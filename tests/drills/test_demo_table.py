"""The demo's judgement and its table: what counts as expected, and what a person is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvairlock.core.guards import Guard
from kvairlock.drills.canaries import Canaries
from kvairlock.drills.demo.run import (
    CASES,
    LEAKS,
    OWN,
    TOO_LONG,
    Expect,
    Row,
    _print_table,
    settings,
)
from kvairlock.drills.demo.scenarios import SCENARIOS, Outcome
from kvairlock.runtime.settings import parse

ANSWERED = Outcome("a story", False, True, None, 200, "[0, 4)", "p: 1 page", "own", "admitted")
LEAKED = replace(ANSWERED, leaked=True, own=False)
REFUSED = replace(ANSWERED, own=False, refusal="context_length_exceeded", http_status=400)


@pytest.mark.parametrize(
    ("expect", "outcome", "met"),
    [
        (OWN, ANSWERED, True),
        (OWN, LEAKED, False),
        (OWN, REFUSED, False),
        (OWN, replace(ANSWERED, own=False), False),
        (LEAKS, LEAKED, True),
        (LEAKS, ANSWERED, False),
        (LEAKS, REFUSED, False),
        (LEAKS, replace(LEAKED, own=True), False),
        (TOO_LONG, REFUSED, True),
        (TOO_LONG, ANSWERED, False),
        (TOO_LONG, replace(REFUSED, http_status=200), False),
        (TOO_LONG, replace(REFUSED, refusal="prefill_rejected"), False),
        (TOO_LONG, replace(REFUSED, leaked=True), False),
    ],
)
def test_only_what_must_come_out_is_as_expected(
    expect: Expect, outcome: Outcome, met: bool
) -> None:
    assert expect.met_by(outcome) is met


def test_every_case_has_usable_settings_and_known_scenarios() -> None:
    for case in CASES:
        stack = parse(settings(case))
        assert set(stack.drill.guards_off) == set(case.off)
        assert set(case.expects) <= set(SCENARIOS)
    unguarded, guarded = CASES[0], CASES[1]
    assert set(unguarded.off) == set(Guard)
    assert not guarded.off
    assert set(guarded.expects) == set(unguarded.expects) == set(SCENARIOS)


@pytest.mark.parametrize("columns", ["90", "200"])
def test_the_table_says_what_was_not_as_expected(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("FORCE_COLOR", "1")
    row = Row(
        "the incident", "on", "own answer", "[0, 9)", "p: 1 of 9 pages", "read [x]", True, None,
        200, "admitted", "", ok=False,
    )  # fmt: skip
    _print_table([row, replace(row, leaked=False, ok=True)], 1.0, False)
    shown = capsys.readouterr().out
    for part in ("the incident", "[0, 9)", "p: 1 of 9 pages", "read [x]", "NO", "2 rows, "):
        assert part in shown
    assert "NOT as expected" in shown


def test_prompts_have_their_length_and_one_canary_each() -> None:
    canaries = Canaries(3)
    prompts = [canaries.prompt("acme", size) for size in (120, 400, 900)]
    assert [len(p.text) for p in prompts] == [120, 400, 900]
    assert all(p.text.count(p.canary) == 1 and p.text.endswith(" SECRET:") for p in prompts)
    assert len({p.canary for p in prompts}) == 3
    assert canaries.foreign(prompts[0], prompts[1].canary) == (prompts[1],)
    assert canaries.foreign(prompts[0], prompts[0].canary) == ()
    assert Canaries(3).prompt("acme", 120).text == prompts[0].text
