"""What can be seen of a request from outside, in one word: the worst that came to light of it.

An answer with the own canary can still be a leak: what it was made from counts, as the receiver
recorded it, and what lies behind it in the pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kvairlock.core.errors import REASONS, Reason
from kvairlock.drills.client import CONNECTION_LOST


class Sight(StrEnum):
    """The closed list of what may be seen; drills name them."""

    OWN = "own"
    REFUSED = "refused"
    LEFT = "left"
    DENIED = "denied"
    LOST = "lost"
    WRONG = "wrong"
    UNVOUCHED = "unvouched"
    TAIL = "tail"
    SHARED = "shared"
    FOREIGN = "foreign"


SIGHTS: dict[Sight, str] = {
    Sight.OWN: "its own answer",
    Sight.REFUSED: "a typed refusal",
    Sight.LEFT: "nothing: its client left",
    Sight.DENIED: "no pages within the longest wait",
    Sight.LOST: "nothing: the connection was lost",
    Sight.WRONG: "an answer from pages that do not hold its prompt",
    Sight.UNVOUCHED: "an answer from pages that were never admitted for it",
    Sight.TAIL: "another tenant's slots behind its prompt",
    Sight.SHARED: "an answer from pages that another tenant's scope keeps",
    Sight.FOREIGN: "another tenant's canary",
}
"""Each of them in words."""

UNTYPED = {REASONS[Reason.CAPACITY].code: Sight.DENIED, CONNECTION_LOST: Sight.LOST}
"""Codes that say that nobody judged the request."""

LEAKS = frozenset({Sight.UNVOUCHED, Sight.TAIL, Sight.SHARED, Sight.FOREIGN})
"""What no request may show while the guards that are on hold."""


class Vouched(StrEnum):
    """Whether the decode node recorded that it admitted pages for this very request."""

    ADMITTED = "admitted"
    NEVER = "never"
    UNSEEN = "unseen"
    """The evidence is not at hand: nothing can be said."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What came to light about one request.

    Args:
        tenant: Who asked.
        http_status: What the client got; 499 if it left.
        error: The error object, empty if there was none.
        text: The answer.
        sent_tokens: Length of its prompt.
        prompt_tokens: The same as the engine reported it; None without an answer.
        asked_tokens: What it asked for, in the unit of the limit that it was to fill, or None.
        limit_tokens: That limit, or None.
        own: Whether its own canary is in the answer.
        foreign: Tenants whose canary is in it.
        vouched: Whether pages were admitted for it.
        sharers: Tenants whose kept pages were read for it; itself is not among them.
        tail: Whether another's bytes were behind its prompt.
    """

    tenant: str
    http_status: int
    error: Mapping[str, object]
    text: str
    sent_tokens: int
    prompt_tokens: int | None
    asked_tokens: int | None
    limit_tokens: int | None
    own: bool
    foreign: tuple[str, ...]
    vouched: Vouched
    sharers: tuple[str, ...]
    tail: bool

    @property
    def refusal(self) -> str | None:
        """The typed code of the refusal, if it was one."""
        code = self.error.get("code")
        return str(code) if code else None

    @property
    def sight(self) -> Sight:
        """The worst that was seen."""
        if self.foreign:
            return Sight.FOREIGN
        if self.sharers:
            return Sight.SHARED
        if self.tail:
            return Sight.TAIL
        if self.refusal is not None:
            return UNTYPED.get(self.refusal, Sight.REFUSED)
        if self.http_status == REASONS[Reason.CANCELLED].http_status:
            return Sight.LEFT
        if self.vouched is Vouched.NEVER:
            return Sight.UNVOUCHED
        return Sight.OWN if self.own else Sight.WRONG
