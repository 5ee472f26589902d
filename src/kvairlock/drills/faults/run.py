"""Carries out the fault matrix: each row on real processes, and what came of it beside what must.

One stack serves for many rows. One that does not hold gets the next one a fresh stack, so that one
failure is not many. At the end one row is carried out with a guard off, where it has to fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path

from kvairlock.core.guards import Guard
from kvairlock.core.terms import LandingPolicy
from kvairlock.drills.faults import judge
from kvairlock.drills.faults.bench import TENANTS, Bench, Kind, started
from kvairlock.drills.faults.play import Play
from kvairlock.drills.faults.table import FaultTable, Row, shipped
from kvairlock.drills.stack import DrillFailed, Keys, make_keys, workplace
from kvairlock.drills.table_row import TableRow

ROUND = "faults"
PROOF = Kind(LandingPolicy.DIRECT, frozenset({Guard.DRAIN}))
"""Where the window is the pool and nothing waits for a writer, rows have to fail."""
PROVES = "prefill-long-stop-draining"
"""The row that is carried out there: its writer goes on when the pages are another's."""


Progress = Callable[[str], None]


def names() -> tuple[str, ...]:
    """Return the names of all rows."""
    return tuple(row.cell.name for row in shipped().rows)


def run_faults(
    progress: Progress, keep: Path | None = None, only: Collection[str] = ()
) -> list[TableRow]:
    """Carry out the fault matrix, and the row that has to fail with a guard off.

    Args:
        progress: Told each row before it is carried out.
        keep: Keep settings, logs and evidence in this folder.
        only: Names or shell patterns of rows; empty for all of them, and the one that must fail.

    Raises:
        FaultTableWrong: No row has such a name.
        DrillFailed: A stack does not start.
    """
    table = shipped()
    rows = table.chosen(only)
    with workplace(keep) as folder:
        keys = make_keys(folder, TENANTS)
        done = run_rows(table, rows, Kind(), keys, folder / "guarded", progress)
        if not only:
            proof = table.chosen({PROVES})
            done += run_rows(table, proof, PROOF, keys, folder / "unguarded", progress)
    return done


def run_rows(
    table: FaultTable,
    rows: Sequence[Row],
    kind: Kind,
    keys: Keys,
    folder: Path,
    progress: Progress,
) -> list[TableRow]:
    """Carry out rows on one kind of stack.

    Args:
        table: The matrix that they are of.
        rows: The rows.
        kind: The kind of stack.
        keys: The keys of its tenants.
        folder: Where the stacks' files go.
        progress: Told each row before it is carried out.

    Raises:
        DrillFailed: A stack does not start.
    """
    done: list[TableRow] = []
    benches = _Benches(table, kind, keys, folder)
    with benches:
        for number, row in enumerate(rows, start=1):
            progress(f"[{number}/{len(rows)}] {row.cell.name}")
            bench = benches.get()
            done.append(_carry_out(bench, row, kind, table))
            if not done[-1].held:
                benches.discard()
    return done


class _Benches:
    """One stack at a time, started when it is needed."""

    def __init__(self, table: FaultTable, kind: Kind, keys: Keys, folder: Path) -> None:
        self._table, self._kind, self._keys, self._folder = table, kind, keys, folder
        self._open = ExitStack()
        self._bench: Bench | None = None
        self._count = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.discard()

    def get(self) -> Bench:
        if self._bench is None:
            self._count += 1
            place = self._folder / f"stack-{self._count}"
            context = started(self._table.stack, self._kind, self._keys, place)
            self._bench = self._open.enter_context(context)
        return self._bench

    def discard(self) -> None:
        self._bench = None
        self._open.close()


def _carry_out(bench: Bench, row: Row, kind: Kind, table: FaultTable) -> TableRow:
    began_s, reply = time.monotonic(), None
    try:
        seen = Play(bench, row, table.stack.short_ms).run()
        reply = seen.reply
        wrong = judge.complaints(row, seen)
        saw = "; ".join((str(seen), *(f"BUT {what}" for what in wrong)))
    except DrillFailed as failed:
        wrong, saw = (str(failed),), f"BUT it could not be carried out: {failed}"
    return TableRow(
        drill=f"fault:{row.cell.name}",
        round=ROUND,
        guards_off=tuple(sorted(map(str, kind.off))),
        held=not wrong,
        failed_as_expected=bool(wrong) if kind.off else None,
        expected=judge.expected(row),
        saw=saw,
        refusal=reply.refusal if reply else None,
        http_status=(reply.status or None) if reply else None,
        seconds=round(time.monotonic() - began_s, 2),
    )
