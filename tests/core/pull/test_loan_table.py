"""Every cell of the loan's table, against expectations that are written out here."""

from __future__ import annotations

import pytest

from kvairlock.core.errors import InvariantBroken
from kvairlock.core.protocol.pull.loans import LOAN, LoanSignal, LoanStage, move

GRID = """
          claim    read     land  stand  revoke   return
offered   claimed  .        .     .      revoked  returned
claimed   .        reading  .     .      revoked  returned
reading   .        .        read  .      .        .
read      .        .        .     stood  revoked  returned
stood     .        .        .     .      .        returned
revoked   .        .        .     .      .        returned
returned  .        .        .     .      .        .
"""


def grid() -> dict[str, dict[str, str]]:
    head, *rows = [line.split() for line in GRID.strip().splitlines()]
    return {row[0]: dict(zip(head, row[1:], strict=True)) for row in rows}


CELLS = [(stage, signal) for stage in LoanStage for signal in LoanSignal]


def test_the_grid_covers_every_name() -> None:
    assert list(grid()) == [str(stage) for stage in LoanStage] == [str(s) for s in LOAN]
    assert all(list(row) == [str(s) for s in LoanSignal] for row in grid().values())
    assert len(CELLS) == 7 * 6


@pytest.mark.parametrize(("stage", "signal"), CELLS)
def test_a_cell_of_the_loan_table(stage: LoanStage, signal: LoanSignal) -> None:
    expected = grid()[stage][signal]
    if expected == ".":
        assert signal not in LOAN[stage]
        with pytest.raises(InvariantBroken, match=f"{signal} in {stage}"):
            move(stage, signal)
    else:
        assert move(stage, signal) == LOAN[stage][signal] == expected


def after(stage: LoanStage) -> set[LoanStage]:
    """Every stage that can follow, however late."""
    found: set[LoanStage] = set()
    waiting = [stage]
    while waiting:
        new = set(LOAN[waiting.pop()].values()) - found
        found |= new
        waiting += new
    return found


def test_what_was_taken_back_is_never_believed() -> None:
    assert LoanStage.STOOD not in after(LoanStage.REVOKED)


def test_every_loan_can_be_returned_and_nothing_follows() -> None:
    assert all(LoanStage.RETURNED in after(s) for s in LoanStage if s is not LoanStage.RETURNED)
    assert after(LoanStage.RETURNED) == set()


def test_a_read_ends_before_its_loan_does() -> None:
    assert set(LOAN[LoanStage.READING].values()) == {LoanStage.READ}
