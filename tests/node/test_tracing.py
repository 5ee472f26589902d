"""Spans of nodes: told by the core's own events and effects, by the table, and by nothing else."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import pytest

from kvairlock.core.effects import Effect, Land, OpenWindow, Record, Send, StartCompute, Value
from kvairlock.core.ends import End
from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.events import Event, Landed, StepBegan
from kvairlock.core.evidence import EVENTS
from kvairlock.core.messages import Receipt
from kvairlock.core.terms import NodeName, Owner, Role, TransferId, WindowId
from kvairlock.node.tracing import NodeTraces, Traced
from kvairlock.runtime.traces.table import (
    ATTRIBUTES,
    LANDED_NOT_YET,
    RECEIPT_SENT,
    REFUSED,
    SPANS,
    Kind,
)
from kvairlock.runtime.traces.tracer import Figure, Span

CONTEXT = "00-" + "a1" * 16 + "-" + "b2" * 8 + "-01"
OWNER = Owner("acme", "r", 1)
NAME = TransferId("r/1")
PAGES = np.array([4, 5, 6], dtype=np.int32)


@dataclass(eq=False)
class Noted:
    """A span that remembers what was said of it."""

    name: str
    above: Noted | None
    all: list[Noted]
    breaks: str = ""
    figures: dict[str, Figure] = field(default_factory=dict)
    failed: str = ""
    ended: bool = False

    @property
    def context(self) -> str:
        if self.breaks == "context":
            raise RuntimeError("no context")
        return f"context of {self.name}"

    def child(self, name: str) -> Noted:
        if self.breaks == name:
            raise RuntimeError(f"no {name}")
        self.all.append(Noted(name, self, self.all, self.breaks))
        return self.all[-1]

    def note(self, attribute: str, value: Figure) -> None:
        assert attribute in SPANS[self.name].attributes
        self.figures[attribute] = value

    def fail(self, reason: str) -> None:
        self.failed = reason

    def end(self) -> None:
        assert not self.ended, f"{self.name} ends twice"
        self.ended = True


class Notes:
    """A tracer that traces whatever has a context."""

    dropped = 0

    def __init__(self, breaks: str = "") -> None:
        self.spans: list[Noted] = []
        self.breaks = breaks

    def request(self, name: str, client: tuple[str, ...]) -> Span | None:
        raise AssertionError("nodes begin no request")

    def under(self, context: str, name: str) -> Span | None:
        if not context:
            return None
        if self.breaks == name:
            raise RuntimeError(f"no {name}")
        self.spans.append(Noted(name, None, self.spans, self.breaks))
        return self.spans[-1]

    def close(self) -> None:
        pass

    def one(self, name: str) -> Noted:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def open(self) -> list[str]:
        return [span.name for span in self.spans if not span.ended]


def record(event: str, owner: Owner | None = OWNER, **fields: Value) -> Record:
    return Record(event, owner, fields)


ADMITTED = record("request_admitted", stage="decode_admission")
ALLOCATED = record("pages_allocated", lease=1, pages=(4, 5, 6), generations=(1, 1, 1))
GRANTED = record("window_granted", window="w", peer="p", pages=(4, 5, 6))
FENCED = record("window_fenced", window="w", fence="acknowledged", bytes_written=7, wait_ms=3)
COMPLETED = record("request_ended", end=End.COMPLETED, reason="", computed_tokens=9)
LAND = Land(NAME, WindowId("w"), PAGES, PAGES[:2], 1)


def decode(tracer: Notes) -> NodeTraces:
    traces = NodeTraces(Role.DECODE, tracer)
    traces.begin(NAME, CONTEXT)
    return traces


Told = Event | Record | Send | Land | OpenWindow | StartCompute


def play(traces: NodeTraces, *things: Told) -> None:
    for thing in things:
        if isinstance(thing, Record | Send | Land | OpenWindow | StartCompute):
            traces.done(thing)
        else:
            traces.told(thing)


# The table


FIELDS = {
    kind.__name__: {f.name for f in dataclasses.fields(kind)}
    for kind in (*get_args(Event), *get_args(Effect))
}
CUES = {
    **{name: set(row) for name, row in EVENTS.items()},
    **FIELDS,
    LANDED_NOT_YET: set(),
    RECEIPT_SENT: set(),
}
"""Every cue there can be, with its fields."""


@pytest.mark.parametrize("name", SPANS)
def test_every_span_of_the_table_has_a_parent_and_cues_that_exist(name: str) -> None:
    row = SPANS[name]
    assert {*row.begins, *row.ends} <= set(CUES)
    if not row.parent:
        assert name == "request"
        return
    above = SPANS[row.parent]
    crosses = above.role is not row.role
    assert crosses == (row.kind is Kind.SERVER)
    assert not crosses or above.kind is Kind.CLIENT
    assert row.role is Role.GATEWAY or crosses or row.begins


@pytest.mark.parametrize("name", SPANS)
def test_every_attribute_comes_from_a_field_that_its_cues_have(name: str) -> None:
    row = SPANS[name]
    there = set().union(*(CUES[cue] for cue in (*row.begins, *row.ends)))
    if row.kind is Kind.SERVER:
        there |= CUES["request_refused"]
    for attribute, field_name in row.attributes.items():
        assert attribute in ATTRIBUTES
        assert row.role is Role.GATEWAY or not field_name or field_name in there, attribute
    assert not row.keyed or all(row.keyed in CUES[cue] for cue in (*row.begins, *row.ends))


def test_every_attribute_is_on_some_span_and_none_is_of_somebody() -> None:
    used = {attribute for row in SPANS.values() for attribute in row.attributes}
    assert used == set(ATTRIBUTES)
    named = {field_name for row in SPANS.values() for field_name in row.attributes.values()}
    assert not named & {"tenant", "request", "creator", "before", "window", "lease", "detail"}
    assert set(REFUSED) <= used


# The translation


def test_a_request_on_decode_is_a_tree_of_what_the_core_told() -> None:
    tracer = Notes()
    traces = decode(tracer)
    play(traces, ADMITTED, ALLOCATED, GRANTED)
    assert traces.context(NAME, "decode.receipt") == "context of decode.receipt"
    play(traces, LAND, Landed(NAME, None), LAND, Landed(NAME, (1, 2)))
    play(traces, record("verdict", outcome="admitted", checks=("range", "input")))
    play(traces, record("read_started", pages=(4, 5, 6)), StepBegan((NAME,)))
    play(traces, record("read_ended", pages=(4, 5, 6)), FENCED, COMPLETED)
    assert [s.name for s in tracer.spans] == [
        "decode",
        "decode.queue",
        "decode.receipt",
        "decode.window",
        "decode.land",
        "decode.land",
        "decode.verdict",
        "decode.read",
    ]
    assert tracer.open() == []
    assert traces.dropped == 0
    assert {s.above for s in tracer.spans[1:]} == {tracer.one("decode")}
    assert tracer.one("decode.queue").figures == {"kvairlock.pages": 3}
    assert tracer.one("decode.receipt").figures == {"kvairlock.peer": "p", "kvairlock.pages": 3}
    assert tracer.spans[4].figures == {"kvairlock.pages": 3, "kvairlock.digested": 2}
    verdict = tracer.one("decode.verdict").figures
    assert verdict == {"kvairlock.verdict": "admitted", "kvairlock.checks": 2}
    assert tracer.one("decode").figures["kvairlock.computed_tokens"] == 9
    assert tracer.one("decode").failed == ""


def test_what_outlives_a_request_keeps_its_span_until_its_own_end() -> None:
    tracer = Notes()
    traces = decode(tracer)
    cancelled = record("request_ended", end=End.CANCELLED, reason=Reason.CANCELLED)
    play(traces, ADMITTED, ALLOCATED, GRANTED, LAND, cancelled)
    play(traces, record("drain_began", lease=1, pages=(4, 5), cause="cancelled"))
    assert tracer.open() == ["decode.window", "decode.drain"]
    assert tracer.one("decode").failed == "cancelled"
    traces.told(StepBegan(()))
    assert len(traces) == 1
    play(traces, Landed(NAME, (1,)), record("read_started", pages=(4,)), FENCED)
    assert tracer.open() == ["decode.drain"], "what is over begins nothing any more"
    play(traces, record("drain_ended", lease=1, pages=(4, 5), fence="local", wait_ms=9))
    drain = tracer.one("decode.drain")
    assert drain.figures["kvairlock.fence"] == "local"
    assert drain.figures["kvairlock.drain.cause"] == "cancelled"
    traces.told(StepBegan(()))
    assert (tracer.open(), len(traces)) == ([], 0)


def test_a_prompt_that_decode_computes_itself_waits_and_is_computed_once_more() -> None:
    tracer = Notes()
    traces = decode(tracer)
    play(traces, ADMITTED, ALLOCATED, GRANTED)
    play(traces, record("request_recomputed", reason="timeout", tokens=9))
    assert tracer.open() == ["decode", "decode.window", "decode.queue"]
    play(traces, ALLOCATED, StartCompute(NAME, PAGES, 0, 9))
    assert tracer.open() == ["decode", "decode.window", "decode.compute"]
    play(traces, record("range_computed", start=0, stop=9, pages=(4, 5, 6)))
    assert tracer.open() == ["decode", "decode.window"]


def test_two_drains_of_one_request_are_told_apart() -> None:
    tracer = Notes()
    traces = decode(tracer)
    for lease in (1, 2):
        play(traces, record("drain_began", lease=lease, pages=(lease,), cause="timeout"))
    play(traces, record("drain_ended", lease=2, pages=(2,), fence="local", wait_ms=0))
    first, second = (span for span in tracer.spans if span.name == "decode.drain")
    assert (first.ended, second.ended) == (False, True)


def test_a_refused_request_says_why_and_is_over_with_its_message() -> None:
    tracer = Notes()
    traces = decode(tracer)
    refused = record(
        "request_refused",
        stage=Stage.DECODE_ADMISSION,
        reason=Reason.CONTEXT_LENGTH,
        asked=70,
        limit=64,
        limit_name="decode_pool_tokens",
    )
    play(traces, refused)
    traces.refused(NAME)
    root = tracer.one("decode")
    assert (root.ended, root.failed) == (True, "context_length")
    assert root.figures == {
        "kvairlock.refusal.stage": "decode_admission",
        "kvairlock.refusal.asked": 70,
        "kvairlock.refusal.limit": 64,
        "kvairlock.refusal.limit_name": "decode_pool_tokens",
    }
    traces.told(StepBegan(()))
    assert len(traces) == 0


def test_a_message_that_comes_again_begins_nothing_anew() -> None:
    tracer = Notes()
    traces = decode(tracer)
    traces.begin(NAME, CONTEXT)
    assert [span.name for span in tracer.spans] == ["decode"]


def test_who_is_not_traced_leaves_nothing_behind() -> None:
    tracer = Notes()
    traces = NodeTraces(Role.DECODE, tracer)
    traces.begin(NAME, "")
    opened = OpenWindow(WindowId("w"), NAME, NodeName("p"), PAGES, (1,), 1, 1)
    play(traces, ADMITTED, ALLOCATED, GRANTED, opened, COMPLETED)
    traces.refused(NAME)
    assert traces.context(NAME, "decode.receipt") == ""
    assert (tracer.spans, len(traces)) == ([], 0)


def test_records_of_nobody_and_of_others_are_passed_over() -> None:
    tracer = Notes()
    traces = decode(tracer)
    play(traces, record("frame_refused", None, peer="p", reason="x"))
    play(traces, record("request_admitted", Owner("bravo", "other", 1)))
    assert [span.name for span in tracer.spans] == ["decode"]


def receipt(refusal: Refusal | None) -> Send:
    stated = Receipt(
        transfer=NAME,
        owner=OWNER,
        outcome=End.COMPLETED if refusal is None else End.FAILED,
        refusal=refusal,
        window=WindowId("w"),
        input_digest=b"",
        layout="l",
        pages=(),
        start=0,
        stop=0,
        generations=(),
        digests=(),
        reused=0,
    )
    return Send(NodeName("d"), stated)


def test_prefill_waits_for_a_ruling_only_on_what_it_did() -> None:
    tracer = Notes()
    traces = NodeTraces(Role.PREFILL, tracer)
    traces.begin(NAME, CONTEXT)
    play(traces, receipt(Refusal(Reason.ENGINE, Stage.PREFILL, "failed")))
    assert [span.name for span in tracer.spans] == ["prefill"]
    play(traces, receipt(None), COMPLETED)
    assert tracer.one("prefill.ruling").ended
    assert tracer.open() == []


# What goes wrong


@pytest.mark.parametrize(
    ("breaks", "lost"), [("decode", 1), ("decode.queue", 1), ("decode.window", 2), ("context", 3)]
)
def test_a_fault_costs_a_request_its_spans_and_nothing_else(breaks: str, lost: int) -> None:
    traces = decode(Notes(breaks))
    play(traces, ADMITTED, ALLOCATED, GRANTED)
    assert traces.context(NAME, "decode.receipt") == ""
    play(traces, LAND, Landed(NAME, (1, 2)), FENCED, COMPLETED)
    traces.refused(NAME)
    traces.told(StepBegan(()))
    assert (traces.dropped, len(traces)) == (lost, 0)


def test_a_request_that_comes_again_after_a_fault_is_traced_anew() -> None:
    tracer = Notes("decode.window")
    traces = decode(tracer)
    play(traces, COMPLETED, record("window_granted", window="w", peer="p", pages=(4,)))
    tracer.breaks = ""
    traces.begin(NAME, CONTEXT)
    traces.told(StepBegan(()))
    assert (traces.dropped, len(traces)) == (1, 1)


def test_a_row_that_begins_anew_ends_the_span_before() -> None:
    tracer = Notes()
    traces = decode(tracer)
    play(traces, ADMITTED, ALLOCATED, GRANTED, GRANTED, FENCED, COMPLETED)
    assert [s.name for s in tracer.spans].count("decode.window") == 2
    assert tracer.open() == []


def test_an_event_looks_at_no_request_that_goes_on() -> None:
    class Unlisted(dict[TransferId, Traced]):
        """A table that can be looked into, but not gone through."""

        __iter__ = keys = values = items = None  # type: ignore[assignment]

    tracer = Notes()
    traces = NodeTraces(Role.DECODE, tracer)
    traces._requests = Unlisted()
    traces.begin(TransferId("other/1"), CONTEXT)
    traces.begin(NAME, CONTEXT)
    play(traces, ADMITTED, ALLOCATED, COMPLETED, StepBegan(()))
    assert (traces.dropped, len(traces)) == (0, 1)
