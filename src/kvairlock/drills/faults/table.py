"""The fault matrix as data: what happens to what in which phase of a request, and what must follow.

`faults.toml` holds rules; each covers some cells of the matrix

    {gateway, prefill, decode}     x  {crash, stop, long-stop}             x  phases of a request
    {links between two of them}    x  {partition, long-partition, reset}   x  phases of a request

and the loader insists that every cell has exactly one: a case that nobody thought of is an error,
not a pass. The runner, the reference page and `kvairlock drill --faults` all read this one table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Annotated

import msgspec
from msgspec import Meta

from kvairlock.core.errors import KvairlockError
from kvairlock.core.terms import Fence
from kvairlock.drills.faults.outcomes import Outcome, RecordedEnd, When

SHIPPED = files("kvairlock.drills.faults") / "faults.toml"


class FaultTableWrong(KvairlockError):
    """The table cannot be used, or has no such row; the message says which and why."""

    code = "fault_table_wrong"


class Struck(StrEnum):
    """What the mishap happens to: a process, or the links between two."""

    GATEWAY = "gateway"
    PREFILL = "prefill"
    DECODE = "decode"
    PREFILL_DECODE = "prefill+decode"
    GATEWAY_DECODE = "gateway+decode"
    GATEWAY_PREFILL = "gateway+prefill"


class Mishap(StrEnum):
    """What happens: the short ones are over before anybody counts as lost."""

    CRASH = "crash"
    STOP = "stop"
    LONG_STOP = "long-stop"
    PARTITION = "partition"
    LONG_PARTITION = "long-partition"
    RESET = "reset"

    @property
    def is_noticed(self) -> bool:
        """Whether the peers of what is struck come to count it as lost."""
        return self not in (Mishap.STOP, Mishap.PARTITION)


class Phase(StrEnum):
    """How far a request has come when it happens."""

    QUEUED = "queued"
    COMPUTING = "computing"
    WRITTEN = "written"
    DECODING = "decoding"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Cell:
    """One case of the matrix."""

    struck: Struck
    mishap: Mishap
    phase: Phase

    @property
    def name(self) -> str:
        """Its name in reports."""
        return f"{self.struck}-{self.mishap}-{self.phase}"


OF_A_PROCESS = (Mishap.CRASH, Mishap.STOP, Mishap.LONG_STOP)
OF_LINKS = (Mishap.PARTITION, Mishap.LONG_PARTITION)
POSSIBLE: Mapping[Struck, tuple[Mishap, ...]] = {
    Struck.GATEWAY: OF_A_PROCESS,
    Struck.PREFILL: OF_A_PROCESS,
    Struck.DECODE: OF_A_PROCESS,
    Struck.PREFILL_DECODE: (*OF_LINKS, Mishap.RESET),
    # By the gateway's channels a drill ends what it began, so they are held and never broken.
    Struck.GATEWAY_DECODE: OF_LINKS,
    Struck.GATEWAY_PREFILL: OF_LINKS,
}
"""What can happen to what."""

CELLS: tuple[Cell, ...] = tuple(
    Cell(struck, mishap, phase)
    for phase in Phase
    for struck, mishaps in POSSIBLE.items()
    for mishap in mishaps
)
"""The whole matrix, in the order in which it is carried out."""


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """A table of the file: all fields are required, and no other is known."""


Milliseconds = Annotated[int, Meta(ge=1)]
Words = Annotated[str, Meta(min_length=1)]


class Stack(_Strict, frozen=True):
    """The times of the stack that the matrix is carried out on.

    Args:
        beat_ms: Time between two signs of life.
        lost_ms: Silence after which a node counts as lost.
        short_ms: How long a short mishap lasts.
    """

    beat_ms: Milliseconds
    lost_ms: Milliseconds
    short_ms: Milliseconds


class Bounds(_Strict, frozen=True):
    """How long things may take after one kind of mishap.

    Args:
        does: What the mishap is, for people.
        client_ms: From its beginning (told meanwhile) or its end until the client knows.
        next_ms: From its end until the next request on the route has been answered.
    """

    does: Words
    client_ms: Milliseconds
    next_ms: Milliseconds


class Rule(_Strict, frozen=True):
    """What must follow, for some cells.

    Args:
        struck: What the mishap happens to.
        mishap: What happens.
        phase: How far the request has come.
        let_go: When the thread goes on by which the request is held in its phase.
        client: What its client gets.
        decode: How the request has ended in decode's records; any of these.
        prefill: The same in prefill's.
        fence: The recorded evidence on which its window was fenced; any of these, none for none.
        why: The reason, for people.
    """

    struck: tuple[Struck, ...]
    mishap: tuple[Mishap, ...]
    phase: tuple[Phase, ...]
    let_go: When
    client: Outcome
    decode: Annotated[tuple[RecordedEnd, ...], Meta(min_length=1)]
    prefill: Annotated[tuple[RecordedEnd, ...], Meta(min_length=1)]
    fence: tuple[Fence, ...]
    why: Words

    def cells(self) -> Iterator[Cell]:
        """The cells that it is about."""
        for struck, mishap, phase in product(self.struck, self.mishap, self.phase):
            if mishap in POSSIBLE[struck]:
                yield Cell(struck, mishap, phase)


class _File(_Strict, frozen=True):
    """All of the file."""

    stack: Stack
    phases: dict[Phase, Words]
    mishap: dict[Mishap, Bounds]
    rule: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One cell and what must follow."""

    cell: Cell
    rule: Rule
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class FaultTable:
    """The matrix: one row for each cell, in the order in which they are carried out.

    Args:
        stack: The times of its stack.
        phases: What each phase is, for people.
        mishaps: What each mishap is, and how long things may take after it.
        rows: The rows.
    """

    stack: Stack
    phases: Mapping[Phase, str]
    mishaps: Mapping[Mishap, Bounds]
    rows: tuple[Row, ...]

    def chosen(self, only: Collection[str]) -> tuple[Row, ...]:
        """Return the rows of some names or shell patterns; all rows for none.

        Raises:
            FaultTableWrong: Nothing has one of the names.
        """
        names = [row.cell.name for row in self.rows]
        for pattern in only:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise FaultTableWrong(f"no row of the fault matrix is called {pattern}")
        return tuple(
            row
            for row in self.rows
            if not only or any(fnmatchcase(row.cell.name, pattern) for pattern in only)
        )


def parse(text: str) -> FaultTable:
    """Read a table.

    Raises:
        FaultTableWrong: It is no TOML, a field is missing, unknown or of another kind, a rule is
            about no cell, or a cell has no rule or two.
    """
    try:
        file = msgspec.toml.decode(text, type=_File)
    except msgspec.DecodeError as error:
        raise FaultTableWrong(f"the fault matrix cannot be read: {error}") from None
    missing = [str(mishap) for mishap in Mishap if mishap not in file.mishap]
    missing += [str(phase) for phase in Phase if phase not in file.phases]
    if missing:
        raise FaultTableWrong(f"the fault matrix does not say what this is: {', '.join(missing)}")
    rules = _by_cell(file.rule)
    rows = tuple(Row(cell, rules[cell], file.mishap[cell.mishap]) for cell in CELLS)
    return FaultTable(file.stack, file.phases, file.mishap, rows)


def _by_cell(rules: Collection[Rule]) -> dict[Cell, Rule]:
    found: dict[Cell, Rule] = {}
    for rule in rules:
        cells = tuple(rule.cells())
        if not cells:
            raise FaultTableWrong(f"a rule is about nothing that can happen: {rule.why}")
        for cell in cells:
            if cell in found:
                raise FaultTableWrong(f"two rules for {cell.name}")
            found[cell] = rule
    without = [cell.name for cell in CELLS if cell not in found]
    if without:
        raise FaultTableWrong(f"no rule for {', '.join(without)}")
    return found


@cache
def shipped() -> FaultTable:
    """Return the table that comes with the package."""
    return parse(SHIPPED.read_text())
