"""The story of a run in words: one line for each edge, from *admit* to *drain*.

The chapters are those in which docs and code tell the life of a request. The words come from one
table; an event without a row in it is told by its own name and fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kvairlock.pictures.book import ADMITTED
from kvairlock.pictures.edges import Edge, Life, Who
from kvairlock.pictures.names import page_ranges

RANGES_MAX = 3


class Chapter(StrEnum):
    """The parts of the life of a request, and what happens beside it."""

    ADMIT = "admit"
    FILL = "fill"
    HAND_OVER = "hand over"
    VERDICT = "verdict"
    READ = "read"
    END = "end"
    DRAIN = "drain"
    BESIDE = "beside"


class Tone(StrEnum):
    """How a line has to be read."""

    PLAIN = "plain"
    REFUSED = "refused"
    """Something was refused, or broke."""


_C = Chapter

TELLING: dict[str, tuple[Chapter, str]] = {
    "request_admitted": (
        _C.ADMIT,
        "admitted at {stage}: {prompt_tokens} prompt tokens, at most {max_tokens} more",
    ),
    "request_refused": (_C.ADMIT, "refused at {stage}: {reason}"),
    "request_retried": (_C.ADMIT, "attempt {attempt} after {reason}"),
    "parameters_stripped": (_C.ADMIT, "the client's {names} were taken out"),
    "request_recomputed": (_C.FILL, "{tokens} tokens are computed here: {reason}"),
    "pages_allocated": (_C.ADMIT, "{pages} allocated, lease {lease}"),
    "prefix_reused": (_C.FILL, "{pages} reused as a prefix of {tokens} tokens"),
    "range_computed": (_C.FILL, "tokens [{start}, {stop}) computed into {pages}"),
    "window_granted": (_C.HAND_OVER, "window {window} granted to {peer} for {pages}"),
    "write_ended": (
        _C.HAND_OVER,
        "the write into window {window} is {status}: {bytes_written} bytes from {pages}",
    ),
    "write_repeated": (
        _C.HAND_OVER,
        "a copy of the ended write into window {window} ran: {bytes_written} bytes",
    ),
    "receipt_sent": (_C.HAND_OVER, "receipt: {outcome}, tokens [{start}, {stop})"),
    "pages_offered": (_C.HAND_OVER, "{pages} offered to {peer}"),
    "pages_claimed": (_C.HAND_OVER, "{pages} claimed by {peer}, a {reader} reader"),
    "remote_read_started": (_C.HAND_OVER, "a read of {peer}'s pages into {pages} began"),
    "remote_read_ended": (_C.HAND_OVER, "the read into {pages} is {status}"),
    "pages_validated": (_C.VERDICT, "asked afterwards about {pages}: {outcome}"),
    "pages_returned": (_C.DRAIN, "{pages} returned"),
    "pages_revoked": (_C.DRAIN, "{pages} revoked from a {reader} reader: {reason}"),
    "verdict": (
        _C.VERDICT,
        "verdict: {outcome}, tokens [{start}, {stop}) of {expected_tokens}; checked: {checks}",
    ),
    "read_started": (_C.READ, "reads {pages}"),
    "read_ended": (_C.READ, "reads no more"),
    "mapping_refused": (_C.READ, "a step was refused {pages}: stale in its page table"),
    "request_ended": (
        _C.END,
        "ended: {end}; {computed_tokens} tokens confirmed, {generated_tokens} generated",
    ),
    "response_sent": (
        _C.END,
        "the client was told: status {http_status}, {prompt_tokens} prompt tokens, "
        "{generated_tokens} generated",
    ),
    "end_came_later": (_C.END, "a later end, {end}, changed nothing"),
    "prefix_kept": (_C.END, "{pages} kept as a prefix, lease {lease}"),
    "drain_began": (_C.DRAIN, "{pages} drain, lease {lease}; cause: {cause}"),
    "drain_ended": (_C.DRAIN, "{pages} free again after {wait_ms} ms, fence: {fence}"),
    "window_fenced": (_C.DRAIN, "window {window} fenced: {fence}, {wait_ms} ms after the end"),
    "message_ignored": (_C.BESIDE, "{message} ignored: {reason}"),
    "frame_refused": (_C.BESIDE, "a frame from {peer} refused: {reason}"),
    "peer_up": (_C.BESIDE, "link to {peer} is up"),
    "peer_lost": (_C.BESIDE, "link to {peer} is lost"),
    "drill_marked": (_C.BESIDE, "drill {drill}: {phase}"),
    "drill_requested": (_C.ADMIT, "asked by drill {drill}"),
    "evidence_lost": (_C.BESIDE, "{records} records could not be kept"),
    "invariant_broken": (_C.BESIDE, "the books do not hold: {invariant}"),
    "failpoint": (_C.BESIDE, "failpoint {point}: {action}"),
}
"""Events with words of their own: the chapter, and the words around their fields."""

UNTOLD = frozenset({"beat", "node_started", "node_closed"})
"""Events that are in the accounts of their lives."""

_REFUSALS = frozenset({"request_refused", "mapping_refused", "frame_refused", "invariant_broken"})
_PAGES = frozenset({"pages", "source_pages", "verified"})
_WHO = frozenset({"tenant", "request"})
_FIGURES = ": {asked} asked, {limit_name} is {limit}"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a story.

    Args:
        at_ns: When.
        life: Where.
        who: Whose request it is about, if it is about one.
        chapter: The part of the request's life.
        words: What happened.
        tone: Whether something was refused.
    """

    at_ns: int
    life: Life
    who: Who | None
    chapter: Chapter
    words: str
    tone: Tone


def tell(edges: Iterable[Edge]) -> tuple[Line, ...]:
    """Tell what happened.

    Args:
        edges: In order.
    """
    return tuple(_line(edge) for edge in edges if edge.event not in UNTOLD)


def _line(edge: Edge) -> Line:
    chapter, words = TELLING.get(edge.event, (Chapter.BESIDE, _plain(edge)))
    if edge.event == "request_refused" and edge.fields["limit"] is not None:
        words += _FIGURES
    said = words.format_map({name: _said(name, value) for name, value in edge.fields.items()})
    return Line(edge.at_ns, edge.life, edge.who, chapter, said, _tone(edge))


def _plain(edge: Edge) -> str:
    """Return words for an event by the names of the schema."""
    fields = [name for name in edge.fields if name not in _WHO]
    return edge.event.replace("_", " ") + "".join(f", {name}: {{{name}}}" for name in fields)


def _tone(edge: Edge) -> Tone:
    refused = edge.event == "verdict" and edge.fields["outcome"] != ADMITTED
    return Tone.REFUSED if refused or edge.event in _REFUSALS else Tone.PLAIN


def _said(name: str, value: Any) -> str:
    if not isinstance(value, list | tuple):
        return "not recorded" if value is None or value == "" else str(value)
    if name in _PAGES:
        return page_ranges(value, RANGES_MAX)
    return ", ".join(map(str, value)) or "nothing"
