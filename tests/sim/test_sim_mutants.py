"""Each guard is missed when it is off, and holds alone; the committed table says what is found."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from kvairlock.core.guards import GUARDS, Guard
from kvairlock.sim.family import TITLES, Row, explore_mutant, table_of
from kvairlock.sim.mutants import MUTANTS

COMMITTED = Path(__file__).parents[2] / "docs" / "mutants.json"
NUMBER = {mutant.guard: number for number, mutant in enumerate(MUTANTS)}


@cache
def row(guard: Guard) -> Row:
    return explore_mutant(NUMBER[guard])


def test_every_guard_has_one_row_in_their_order() -> None:
    assert [mutant.guard for mutant in MUTANTS] == list(GUARDS)


@pytest.mark.parametrize("guard", Guard)
def test_alone_it_holds_in_every_schedule(guard: Guard) -> None:
    alone = row(guard).alone
    assert alone.violation == ""
    assert alone.complete


@pytest.mark.parametrize("guard", Guard)
def test_without_it_the_shortest_schedule_breaks_what_it_is_there_for(guard: Guard) -> None:
    found = row(guard)
    assert found.caught
    assert found.without.fault in {fault.value for fault in found.mutant.seeks}
    assert len(found.without.transcript) > found.without.schedule >= 3
    assert found.without.transcript[-1].strip() == f"!! {found.without.violation}"


@pytest.mark.parametrize("guard", Guard)
def test_the_committed_row_is_what_is_found_now(guard: Guard) -> None:
    rows = {entry["guard"]: entry for entry in json.loads(COMMITTED.read_text())["rows"]}
    assert rows[guard] == json.loads(json.dumps(row(guard).document())), (
        "run `kvairlock explore --mutants --json > docs/mutants.json`"
    )


def test_the_table_has_a_line_for_each_guard() -> None:
    lines = table_of(json.loads(COMMITTED.read_text())["rows"])
    assert [line[0] for line in lines] == [guard.value for guard in Guard]
    assert all(len(line) == len(TITLES) and all(line[:4]) for line in lines)
