"""Results of drills that an operator has posted: the document that `kvairlock drill --json` prints.

Drills run outside of the gateway, most of them on stacks of their own, so the gateway knows of one
only what it is told. What it keeps is who may be shown it: the name of the drill, what was off, and
whether it came out as it must. It keeps that in memory, of this life, and the page says so.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kvairlock.core.guards import Guard
from kvairlock.gateway.errors import bad_request

BODY_BYTES_MAX = 1024 * 1024
DRILLS_MAX = 200
"""Drills that are kept; of more, those are forgotten whose result came first."""

Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9 ._-]{0,63}\Z")]


class PostedRow(msgspec.Struct, frozen=True):
    """One run, as far as it is shown; the other fields of a row are not even kept."""

    drill: Name
    round: Name
    guards_off: frozenset[Guard]
    held: bool
    failed_as_expected: bool | None
    seconds: Annotated[float, Meta(ge=0)]


class Posted(msgspec.Struct, frozen=True):
    """The document, as far as it is read."""

    rows: tuple[PostedRow, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one run, and when the gateway was told."""

    row: PostedRow
    at_unix_s: int

    @property
    def outcome(self) -> str:
        """What came out, in a word."""
        if self.row.failed_as_expected is None:
            return "held" if self.row.held else "leaked"
        return "failed as expected" if self.row.failed_as_expected else "proved nothing"


class DrillResults:
    """The last result of each drill, for each set of guards that was off."""

    def __init__(self) -> None:
        self._results: OrderedDict[tuple[str, frozenset[Guard]], Result] = OrderedDict()

    def post(self, body: bytes) -> int:
        """Take a document and return how many results it has.

        Raises:
            Refused: 400, it is no such document.
        """
        try:
            posted = msgspec.json.decode(body, type=Posted)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            message = f"not what `kvairlock drill --json` prints: {error}"
            raise bad_request(message, "rows") from None
        for row in posted.rows:
            self._keep(Result(row, int(time.time())))
        return len(posted.rows)

    def shown(self) -> list[dict[str, Any]]:
        """Return all results, the latest first."""
        return [
            {
                "drill": result.row.drill,
                "round": result.row.round,
                "guards_off": sorted(result.row.guards_off),
                "outcome": result.outcome,
                "seconds": result.row.seconds,
                "at_unix_s": result.at_unix_s,
            }
            for result in reversed(self._results.values())
        ]

    def _keep(self, result: Result) -> None:
        key = result.row.drill, result.row.guards_off
        self._results[key] = result
        self._results.move_to_end(key)
        if len(self._results) > DRILLS_MAX:
            self._results.popitem(last=False)
