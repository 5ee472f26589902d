"""Which drills are on, so that an audit can tell their requests from everybody else's.

    POST /drill/marks {"drill": "range", "phase": "began"}     an operator's key
    ... requests with `x-kvairlock-drill: range` ...           labelled in the evidence
    POST /drill/marks {"drill": "range", "phase": "ended"}

The header counts only while an operator has a drill of that name on: no client can make its own
requests look like a drill's. A label hides nothing, and changes nothing about a request.
"""

from __future__ import annotations

import re
from enum import StrEnum

from starlette.datastructures import Headers

from kvairlock.gateway.errors import ApiError, Refused
from kvairlock.runtime.recording import Sink

DRILL_HEADER = "x-kvairlock-drill"
"""Which drill a request is of."""

DRILLS_MAX = 64
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""What a drill may be called."""


class Phase(StrEnum):
    """What a marker says of a drill."""

    BEGAN = "began"
    ENDED = "ended"


class DrillMarks:
    """The drills that are on at one gateway.

    Args:
        evidence: Where each marker is recorded.
    """

    def __init__(self, evidence: Sink) -> None:
        self._evidence = evidence
        self._on: set[str] = set()

    def mark(self, drill: str, phase: Phase) -> None:
        """Take note that a drill begins or has ended; both may be said again.

        Raises:
            Refused: 409, too many are on at one time.
        """
        if phase is Phase.BEGAN:
            self._begin(drill)
        else:
            self._on.discard(drill)
        self._evidence.record("drill_marked", None, {"drill": drill, "phase": phase.value})

    def named(self, headers: Headers) -> str:
        """Return the drill that a request is of, empty if it is of none that is on."""
        name = headers.get(DRILL_HEADER, "")
        return name if name in self._on else ""

    def _begin(self, drill: str) -> None:
        if len(self._on | {drill}) > DRILLS_MAX:
            message = f"{DRILLS_MAX} drills are on; mark those that have ended"
            raise Refused(ApiError(409, "too_many_drills", message, "drill"))
        self._on.add(drill)
