"""What evidence says about one page: who held it, who could reach it, and what was noted of it.

    page 9   |--reserved--landing--readable--draining--|  stay of one owner
               |------------- window -------------|       touch: who could reach the page, and how
                           c    w    v                    marks: computed, written, verdict

Histories are values: pages with the same history are one row of a picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from kvairlock.core.memory.page import PageStage
from kvairlock.pictures.edges import Who


class Ending(StrEnum):
    """How a stay ended, as far as it is recorded."""

    DRAINED = "drained"
    """Its pages went back to the free list, on the evidence that is named."""
    PROCESS_CLOSED = "process_closed"
    """The process closed its books in order, and held the pages until then."""
    NOT_RECORDED = "not_recorded"
    """No record says. The pages count as held until the last record of the run."""


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """A part of a stay: the stage of the page, from here until the next part."""

    began_ns: int
    stage: PageStage


@dataclass(frozen=True, slots=True)
class Stay:
    """The time for which one owner held a page.

    Args:
        who: The owner.
        began_ns: When the page was allocated.
        ended_ns: When it went back, or until when it counts as held.
        ending: What is known of the end.
        fence: The evidence on which it was drained, empty if it was not.
        parts: The stages that it went through, in order.
        generation: In which the owner had the page, or None if no record says. Pages that differ in
            nothing else have one history.
    """

    who: Who
    began_ns: int
    ended_ns: int
    ending: Ending
    fence: str
    parts: tuple[Part, ...]
    generation: int | None = field(default=None, compare=False)

    def stages(self) -> Iterator[tuple[PageStage, int, int]]:
        """Yield each stage, with the times from when until when."""
        ends_ns = [*(part.began_ns for part in self.parts[1:]), self.ended_ns]
        for part, ended_ns in zip(self.parts, ends_ns, strict=True):
            yield part.stage, part.began_ns, ended_ns


class Reach(StrEnum):
    """How somebody can reach a page."""

    READ = "read"
    PREFIX = "prefix"
    SOURCE = "source"
    WINDOW = "window"
    WINDOW_FILE = "window_file"
    LOAN = "loan"
    FETCH = "fetch"


@dataclass(frozen=True, slots=True)
class ReachRow:
    """What a way to reach a page is.

    Args:
        does: What somebody does, or may do, with the page, as a verb.
        about: The same for a legend.
    """

    does: str
    about: str


REACHES: dict[Reach, ReachRow] = {
    Reach.READ: ReachRow("reads", "decode reads the page in its steps"),
    Reach.PREFIX: ReachRow("shares", "a later prompt uses the page as its prefix"),
    Reach.SOURCE: ReachRow("writes from", "prefill's write reads the page as its source"),
    Reach.WINDOW: ReachRow("may write into", "a window is open over the page itself"),
    Reach.WINDOW_FILE: ReachRow(
        "may write beside", "a window is open that is a file of its own: no way to the page"
    ),
    Reach.LOAN: ReachRow("may read", "the page is on loan to a remote reader"),
    Reach.FETCH: ReachRow("reads into", "a one-sided read of ours stores into the page"),
}


@dataclass(frozen=True, slots=True)
class Touch:
    """The time for which somebody could reach a page.

    Args:
        reach: How.
        who: For whose request.
        under: Whose stay allows it: the same, or whose prefix it is.
        began_ns: Since when.
        ended_ns: Until when, or the last record of the run if no record says.
        name: The window or claim.
        scopes: Of a prefix: for whom its user shares and for whom it was computed, by pseudonyms;
            empty if no record says.
    """

    reach: Reach
    who: Who
    under: Who
    began_ns: int
    ended_ns: int
    name: str
    scopes: tuple[str, str] = ("", "")

    @property
    def is_declared(self) -> bool:
        """Whether both have one scope, by records: such a prefix may be shared."""
        mine, creators = self.scopes
        return mine == creators != ""


class MarkKind(StrEnum):
    """What was noted about a page at one moment."""

    COMPUTED = "computed"
    WRITTEN = "written"
    ADMITTED = "admitted"
    REFUSED = "refused"
    REUSED = "reused"


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment in the history of a page."""

    at_ns: int
    kind: MarkKind
    who: Who


@dataclass(frozen=True, slots=True)
class History:
    """What evidence says about one page in one life of its node."""

    stays: tuple[Stay, ...]
    touches: tuple[Touch, ...]
    marks: tuple[Mark, ...]

    def times_ns(self) -> set[int]:
        """Return every time at which something changes."""
        times = {at for stay in self.stays for at in (stay.began_ns, stay.ended_ns)}
        times |= {part.began_ns for stay in self.stays for part in stay.parts}
        times |= {at for touch in self.touches for at in (touch.began_ns, touch.ended_ns)}
        return times | {mark.at_ns for mark in self.marks}

    def within(self, began_ns: int, ended_ns: int) -> History:
        """Return what of it is seen between two times, both included."""
        return History(
            tuple(s for s in self.stays if s.began_ns <= ended_ns and s.ended_ns >= began_ns),
            tuple(t for t in self.touches if t.began_ns <= ended_ns and t.ended_ns >= began_ns),
            tuple(m for m in self.marks if began_ns <= m.at_ns <= ended_ns),
        )
