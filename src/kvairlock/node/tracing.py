"""Spans of a node: what the core is told and wants done, translated by the table of spans.

    event  --told-->  +--------+
    effect --done-->  |  rows  |  begins?  a span under its parent's
    record --done-->  +--------+  ends?    the span is over

The core knows nothing of this. A request has spans if its message brought a context; for all others
this is one look into an empty table. What outlives a request (a window, a drain, a write) keeps
its spans until its own end.

What goes wrong in here costs a request its spans, which count as dropped, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from kvairlock.core.effects import Effect, Record, Send
from kvairlock.core.events import Event, Landed
from kvairlock.core.messages import Receipt
from kvairlock.core.terms import Role, TransferId
from kvairlock.runtime.traces.table import LANDED_NOT_YET, RECEIPT_SENT, REFUSED, SPANS, SpanRow
from kvairlock.runtime.traces.tracer import Figure, Span, Tracer

ENDED, REFUSAL = "request_ended", "request_refused"

Key = tuple[str, object]

log = structlog.get_logger("kvairlock.traces")


@dataclass(slots=True)
class Traced:
    """The spans of one request on this node.

    Args:
        root: What all others are under.
        open: Those that have begun, by row and by what tells several of a row apart.
        over: Whether the request has ended; what outlives it may still be open.
    """

    root: Span
    open: dict[Key, Span] = field(default_factory=dict)
    over: bool = False


class NodeTraces:
    """The spans of one node.

    Args:
        role: Which rows of the table are its own.
        tracer: Where spans go.
    """

    def __init__(self, role: Role, tracer: Tracer) -> None:
        self._root, self._tracer = role.value, tracer
        self._rows = {n: row for n, row in SPANS.items() if row.role is role and n != self._root}
        self._requests: dict[TransferId, Traced] = {}
        self._over: list[TransferId] = []
        self._lost = 0

    @property
    def dropped(self) -> int:
        """How many spans of the node were lost."""
        return self._tracer.dropped + self._lost

    def __len__(self) -> int:
        """Return how many requests have spans that are not over."""
        return len(self._requests)

    def begin(self, name: TransferId, context: str) -> None:
        """Take note of a request that came with a context, once."""
        if name in self._requests:
            return
        with self._sparing_the_node(name):
            root = self._tracer.under(context, self._root)
            if root is not None:
                self._requests[name] = Traced(root)

    def context(self, name: TransferId, row: str) -> str:
        """Return what a peer puts its own spans under; empty if there is no such span."""
        traced = self._requests.get(name)
        span = traced.open.get((row, None)) if traced else None
        if span is not None:
            with self._sparing_the_node(name):
                return span.context
        return ""

    def told(self, event: Event) -> None:
        """Translate what the core is about to be told."""
        if self._requests:
            self._forget()
            self._cue(event)

    def done(self, effect: Effect) -> None:
        """Translate what the core wants done, or recorded."""
        if self._requests:
            self._cue(effect)

    def refused(self, name: TransferId) -> None:
        """Take note that nothing has come of a request: the core does not know it."""
        traced = self._requests.get(name)
        if traced is not None and not traced.over:
            with self._sparing_the_node(name):
                self._end(name, traced)

    @contextmanager
    def _sparing_the_node(self, name: TransferId) -> Iterator[None]:
        """Drop a request's spans where something goes wrong with them."""
        try:
            yield
        except Exception:
            if not self._lost:
                log.exception("spans of a request are dropped; further ones are only counted")
            traced = self._requests.pop(name, None)
            self._lost += 1 + (len(traced.open) if traced else 0)

    def _cue(self, thing: Event | Effect) -> None:
        name = _transfer_of(thing)
        traced = self._requests.get(name) if name is not None else None
        if name is not None and traced is not None:
            with self._sparing_the_node(name):
                self._translate(name, traced, thing)

    def _translate(self, name: TransferId, traced: Traced, thing: Event | Effect) -> None:
        cue = _cue_of(thing)
        for row_name, row in self._rows.items():
            if cue in row.ends:
                self._row_ends(traced, row_name, row, thing)
            if cue in row.begins and (row.outlives or not traced.over):
                self._row_begins(traced, row_name, row, thing)
        if cue == REFUSAL:
            _note(traced.root, REFUSED, thing)
            traced.root.fail(str(_value(thing, "reason")))
        elif cue == ENDED:
            self._request_ends(name, traced, thing)

    def _row_begins(self, traced: Traced, name: str, row: SpanRow, thing: object) -> None:
        key = _key(name, row, thing)
        if key in traced.open:  # it begins anew: the one before has no end of its own
            traced.open.pop(key).end()
        above = traced.open.get((row.parent, None), traced.root)
        span = traced.open[key] = above.child(name)
        _note(span, row.attributes, thing)

    def _row_ends(self, traced: Traced, name: str, row: SpanRow, thing: object) -> None:
        span = traced.open.pop(_key(name, row, thing), None)
        if span is not None:
            _note(span, row.attributes, thing)
            span.end()

    def _request_ends(self, name: TransferId, traced: Traced, thing: object) -> None:
        _note(traced.root, SPANS[self._root].attributes, thing)
        reason = _value(thing, "reason")
        if reason:
            traced.root.fail(str(reason))
        self._end(name, traced)

    def _end(self, name: TransferId, traced: Traced) -> None:
        """End its first span, and with it all that do not outlive it."""
        for key in [key for key in traced.open if not self._rows[key[0]].outlives]:
            traced.open.pop(key).end()
        traced.root.end()
        traced.over = True
        self._over.append(name)

    def _forget(self) -> None:
        """Forget requests that are over and have nothing open; not before their last turn ended."""
        if self._over:
            self._over = [name for name in self._over if self._is_open(name)]

    def _is_open(self, name: TransferId) -> bool:
        traced = self._requests.get(name)
        if traced is None or not traced.over:
            return False
        if not traced.open:
            del self._requests[name]
        return bool(traced.open)


def _cue_of(thing: Event | Effect) -> str:
    match thing:
        case Record(event):
            return event
        case Landed(digests=None):
            return LANDED_NOT_YET
        case Send(message=Receipt(refusal=None)):
            return RECEIPT_SENT
        case _:
            return type(thing).__name__


def _transfer_of(thing: Event | Effect) -> TransferId | None:
    match thing:
        case Record(owner=owner):
            return owner.transfer if owner else None
        case Send(message=message):
            return getattr(message, "transfer", None)
        case _:
            return getattr(thing, "transfer", None)


def _key(name: str, row: SpanRow, thing: object) -> Key:
    return name, _value(thing, row.keyed) if row.keyed else None


def _value(thing: object, field_name: str) -> object:
    """Return a field of a record, an event or an effect, or None."""
    if isinstance(thing, Record):
        return thing.fields.get(field_name)
    return getattr(thing, field_name, None)


def _note(span: Span, attributes: dict[str, str], thing: object) -> None:
    """Put on a span what a cue says of it; lists are counted."""
    for attribute, field_name in attributes.items():
        figure = _figure(_value(thing, field_name)) if field_name else None
        if figure is not None:
            span.note(attribute, figure)


def _figure(value: object) -> Figure | None:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    return len(value) if isinstance(value, Sized) else None
