"""The runner of the fault matrix: what it reports, and which stack a row gets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvairlock.drills.client import Reply
from kvairlock.drills.faults import run as faults
from kvairlock.drills.faults.bench import Bench, Kind
from kvairlock.drills.faults.judge import Seen
from kvairlock.drills.faults.run import PROOF, run_faults, run_rows
from kvairlock.drills.faults.table import FaultTableWrong, Row, Stack, shipped
from kvairlock.drills.stack import DrillFailed, Keys
from kvairlock.drills.table_row import TableRow

ROWS = shipped().chosen({"gateway-stop-*"})
ANSWERED, REFUSED = Reply(200, "own"), Reply(503, error={"code": "node_lost"})
GOOD = Seen(
    "own answer, afterwards", ANSWERED, "completed", "completed", "acknowledged", 20, 30, ()
)
LEFT = Seen("nothing: it has left", None, "cancelled", "cancelled", "sealed", None, 30, ())
NO_KEYS = cast("Keys", None)


@dataclass
class Stacks:
    """Stands for stacks: what was started and stopped, and what is seen on them, row by row."""

    seen: list[Seen | DrillFailed]
    moves: list[str] = field(default_factory=list)

    @contextmanager
    def started(self, times: Stack, kind: Kind, keys: Keys, folder: Path) -> Iterator[Bench]:
        self.moves.append(f"start {folder.name}")
        yield cast("Bench", SimpleNamespace())
        self.moves.append(f"stop {folder.name}")

    def play(self, bench: Bench, row: Row, short_ms: int) -> Any:
        assert short_ms == shipped().stack.short_ms
        return SimpleNamespace(run=self.run)

    def run(self) -> Seen:
        self.moves.append("row")
        seen = self.seen.pop(0)
        if isinstance(seen, DrillFailed):
            raise seen
        return seen


def carried_out(
    monkeypatch: pytest.MonkeyPatch,
    stacks: Stacks,
    kind: Kind = Kind(),  # noqa: B008
) -> tuple[list[TableRow], list[str]]:
    told: list[str] = []
    monkeypatch.setattr(faults, "started", stacks.started)
    monkeypatch.setattr(faults, "Play", stacks.play)
    rows = run_rows(shipped(), ROWS, kind, NO_KEYS, Path("folder"), told.append)
    return rows, told


def test_rows_that_hold_share_a_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = Stacks([GOOD, GOOD, GOOD, GOOD, LEFT])
    rows, told = carried_out(monkeypatch, stacks)
    assert stacks.moves == ["start stack-1", *["row"] * 5, "stop stack-1"]
    assert [row.held for row in rows] == [True] * 5
    assert told[0] == "[1/5] gateway-stop-queued"
    assert (rows[0].drill, rows[0].round) == ("fault:gateway-stop-queued", "faults")
    assert (rows[0].guards_off, rows[0].failed_as_expected) == ((), None)
    assert "own answer, afterwards" in rows[0].expected
    assert "BUT" not in rows[0].saw


def test_after_a_row_that_does_not_hold_there_is_a_fresh_stack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = DrillFailed("waited 30 s for evidence of peer_lost")
    stacks = Stacks([GOOD, LEFT, failed, GOOD, LEFT])
    rows, _ = carried_out(monkeypatch, stacks)
    assert [row.held for row in rows] == [True, False, False, True, True]
    assert rows[1].saw.endswith(
        "BUT the client got something else; BUT decode recorded another "
        "end; BUT prefill recorded another end; BUT the window was not "
        "fenced on that evidence"
    )
    assert rows[2].saw == f"BUT it could not be carried out: {failed}"
    assert stacks.moves == [
        "start stack-1", "row", "row", "stop stack-1",
        "start stack-2", "row", "stop stack-2",
        "start stack-3", "row", "row", "stop stack-3",
    ]  # fmt: skip


def test_with_a_guard_off_a_row_has_failed_as_expected_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, _ = carried_out(monkeypatch, Stacks([GOOD, LEFT, GOOD, GOOD, LEFT]), PROOF)
    assert {row.guards_off for row in rows} == {("drain",)}
    assert [(row.held, row.failed_as_expected) for row in rows[:2]] == [
        (True, False),
        (False, True),
    ]


def test_a_row_says_what_the_client_got(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = replace(GOOD, client="503 node_lost, meanwhile", reply=REFUSED)
    failed = DrillFailed("a stack does not start")
    rows, _ = carried_out(monkeypatch, Stacks([GOOD, refused, LEFT, failed, GOOD]))
    assert [(row.http_status, row.refusal) for row in rows[:4]] == [
        (200, None),
        (503, "node_lost"),
        (None, None),
        (None, None),
    ]


def test_an_unknown_name_is_refused_before_anything_is_started() -> None:
    with pytest.raises(FaultTableWrong, match="gateway-hiccup"):
        run_faults(lambda _: None, only={"gateway-hiccup"})
