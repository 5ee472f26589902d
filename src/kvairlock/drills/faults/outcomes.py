"""What a row of the fault matrix can expect: what the client gets, and the end that a node records.

The codes and statuses that clients get, and the ends that reasons mean, are those of the tables in
the core: a row names the reason only.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from kvairlock.core.ends import End, end_for
from kvairlock.core.errors import REASONS, Reason


class When(StrEnum):
    """Whether something is done or told while a mishap lasts, or once it is over."""

    MEANWHILE = "meanwhile"
    AFTERWARDS = "afterwards"


class RecordedEnd(StrEnum):
    """What a node records as the end of a request: none, completed, or a reason."""

    NOTHING = "nothing"
    COMPLETED = "completed"
    CANCELLED = Reason.CANCELLED.value
    PEER_LOST = Reason.PEER_LOST.value

    @property
    def words(self) -> str:
        """The end, and the reason where it says more."""
        if self in (RecordedEnd.NOTHING, RecordedEnd.COMPLETED):
            return self.value
        return recorded(end_for(Reason(self.value)), self.value)


def recorded(end: End, reason: str) -> str:
    """Return the words for the end and the reason of a `request_ended` record."""
    return f"{end} ({reason})" if reason and reason != end else str(end)


class _Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="gets"):
    """What a client gets; its text is how reports and pages say it."""


class Answer(_Outcome, frozen=True, tag="answer"):
    """Its own answer, whole."""

    when: When

    def __str__(self) -> str:
        """Say it in words."""
        return f"own answer, {self.when}"


class Refused(_Outcome, frozen=True, tag="refusal"):
    """An HTTP error with the code of a reason."""

    when: When
    reason: Reason

    def __str__(self) -> str:
        """Say it in words."""
        row = REASONS[self.reason]
        return f"{row.http_status} {row.code}, {self.when}"


class CutShort(_Outcome, frozen=True, tag="error-event"):
    """The beginning of its own answer, then an error event with the code of a reason."""

    when: When
    reason: Reason

    def __str__(self) -> str:
        """Say it in words."""
        return f"first tokens, then error event {REASONS[self.reason].code}, {self.when}"


class Disconnected(_Outcome, frozen=True, tag="lost-connection"):
    """Its connection is lost."""

    when: When

    def __str__(self) -> str:
        """Say it in words."""
        return f"connection lost, {self.when}"


class Left(_Outcome, frozen=True, tag="nothing"):
    """Nothing: it has left before."""

    def __str__(self) -> str:
        """Say it in words."""
        return "nothing: it has left"


Outcome = Answer | Refused | CutShort | Disconnected | Left
"""All that a client can be said to get."""
