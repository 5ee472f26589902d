"""Requests in flight: every one comes to exactly one end, whatever its node or client does."""

from __future__ import annotations

import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from kvairlock.core.ends import End, end_for
from kvairlock.core.errors import PeerMisbehaved, Reason, Refusal, Stage
from kvairlock.core.messages import (
    ALTERNATIVES_MAX,
    Alternative,
    Cancel,
    Chunk,
    Ended,
    Message,
    Sampling,
    Score,
    Submit,
)
from kvairlock.core.terms import (
    Incarnation,
    Instant,
    NodeName,
    Owner,
    Peer,
    Role,
    Route,
    TransferId,
)
from kvairlock.gateway.desk import WAITING_BYTES_MAX, Desk, Flight, FlightState
from kvairlock.gateway.nodes import NodeDown, OutboxFull
from kvairlock.runtime import clock
from kvairlock.runtime.settings import LimitSettings
from kvairlock.sink.reading import read
from kvairlock.sink.recorder import Recorder
from kvairlock.wire.codec import decode, encode
from kvairlock.wire.keys import Keyring
from kvairlock.wire.versions import SPEAKS

from .asking import asked

DECODE = NodeName("decode-0")
ROUTE = Route(NodeName("prefill-0"), DECODE)
OWNER = Owner("acme", "cmpl-1", 1)
TRANSFER = TransferId("cmpl-1/1")
REQUEST = replace(asked(n=2, alternatives=3), sampling=Sampling(0.5, 0.9, 7))
COMPLETED = Ended(TRANSFER, End.COMPLETED, None, 2, 5, 0, None)


class Wires:
    """Stands for the channels: remembers what was posted."""

    def __init__(self) -> None:
        self.posted: list[Message] = []
        self.fault: Exception | None = None

    def post(self, name: NodeName, message: Message) -> None:
        if self.fault is not None:
            raise self.fault
        assert name == DECODE
        self.posted.append(message)

    def layout(self, name: NodeName) -> str:
        return "layout"

    def peer(self, name: NodeName) -> Peer:
        return Peer(name, Role.DECODE, Incarnation("d-1"))


class Jury:
    """Remembers what it is told of routes and nodes."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Reason, Stage]] = []

    def failed(self, route: Route, refusal: Refusal) -> None:
        self.told.append((str(route), refusal.reason, refusal.stage))

    def misbehaved(self, node: NodeName, refusal: Refusal) -> None:
        self.told.append((node, refusal.reason, refusal.stage))


@pytest.fixture
def wires() -> Wires:
    return Wires()


@pytest.fixture
def desk(wires: Wires, ring: Keyring, evidence: Recorder) -> Desk:
    return Desk(ring, LimitSettings(), 60, wires, evidence)


def submitted(desk: Desk) -> Flight:
    flight = desk.submit(OWNER, "tenant:acme", REQUEST, ROUTE)
    assert isinstance(flight, Flight)
    return flight


def chunk(choice: int = 0, finish: str = "") -> Chunk:
    return Chunk(TRANSFER, choice, 1, b"a", finish, ())


def run(work: Callable[[], Awaitable[None]]) -> None:
    anyio.run(work)


def test_chunks_then_the_end_arrive_in_order(desk: Desk, wires: Wires) -> None:
    async def work() -> None:
        flight = submitted(desk)
        (submit,) = wires.posted
        assert isinstance(submit, Submit)
        assert (submit.tenant, submit.transfer, submit.prefill) == ("acme", TRANSFER, "prefill-0")
        assert (submit.max_tokens, submit.choices, submit.stop) == (5, 2, (b"x",))
        assert (submit.sampling, submit.alternatives) == (Sampling(0.5, 0.9, 7), 3)
        assert submit.ticket == flight.ticket
        assert desk.load() == {"prefill-0": 1, "decode-0": 1}
        desk.deliver(DECODE, chunk())
        desk.deliver(DECODE, COMPLETED)
        assert [await flight.next(), await flight.next()] == [chunk(), COMPLETED]
        assert len(desk) == 0
        desk.leave(flight)
        assert wires.posted == [submit]

    run(work)


def test_a_believed_ticket_is_sent_in_place_of_the_signed_one(desk: Desk, wires: Wires) -> None:
    async def work() -> None:
        flight = desk.submit(OWNER, "", REQUEST, ROUTE, b"stolen")
        assert isinstance(flight, Flight)
        (submit,) = wires.posted
        assert isinstance(submit, Submit)
        assert (submit.ticket, submit.tenant, submit.transfer) == (b"stolen", "acme", TRANSFER)
        assert flight.ticket != b"stolen"

    run(work)


def test_a_client_that_leaves_loads_its_nodes_until_the_end(desk: Desk, wires: Wires) -> None:
    async def work() -> None:
        flight = submitted(desk)
        desk.leave(flight)
        desk.leave(flight)
        assert wires.posted[1:] == [Cancel(TRANSFER)]
        assert desk.load()[DECODE] == 1
        desk.deliver(DECODE, chunk())
        desk.deliver(DECODE, Ended(TRANSFER, End.CANCELLED, None, 0, 0, 0, None))
        assert len(desk) == 0

    run(work)


CANCELLED = Refusal(Reason.CANCELLED, Stage.GATEWAY, "the gateway left")
LEFT = Ended(TRANSFER, End.CANCELLED, CANCELLED, 3, 1, 0, None)


def test_a_client_that_is_there_is_not_told_that_it_left(desk: Desk) -> None:
    """Decode has lost this gateway and ended its requests; it is heard before that shows here."""

    async def work() -> None:
        flight = submitted(desk)
        desk.deliver(DECODE, LEFT)
        told = await flight.next()
        assert isinstance(told, Ended)
        assert told.refusal is not None
        assert (told.end, told.refusal.reason) == (End.FAILED, Reason.PEER_LOST)
        assert "lost the gateway" in told.refusal.message
        assert (told.computed_tokens, told.generated_tokens) == (3, 1)

    run(work)


def test_a_client_that_has_left_is_known_to_have_left(desk: Desk) -> None:
    async def work() -> None:
        flight = submitted(desk)
        desk.leave(flight)
        desk.deliver(DECODE, LEFT)
        assert await flight.next() == LEFT

    run(work)


def heap_bytes(chunk: Chunk) -> int:
    """What a chunk takes, measured: as it comes from the wire, with nothing shared.

    The least of some rounds: what else in the process takes memory meanwhile only adds to one.
    """
    encoded = encode(chunk, SPEAKS[-1])
    return min(_traced_bytes(encoded, 2_000) for _ in range(3)) // 2_000


def _traced_bytes(encoded: bytes, count: int) -> int:
    tracemalloc.start()
    kept = [decode(encoded, SPEAKS[-1]) for _ in range(count)]
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == count
    return used


@pytest.mark.parametrize("alternatives", [None, 0, 3, ALTERNATIVES_MAX])
def test_a_client_that_does_not_read_is_left_before_it_takes_much_memory(
    alternatives: int | None, desk: Desk, wires: Wires
) -> None:
    likely = tuple(Alternative(b"token %d" % i, -1.5 - i) for i in range(alternatives or 0))
    scores = () if alternatives is None else (Score(b"a", -1.25, likely),)
    each = replace(chunk(), scores=scores)

    async def work() -> None:
        flight = submitted(desk)
        while flight.state is FlightState.OPEN:
            desk.deliver(DECODE, each)
        assert wires.posted[1:] == [Cancel(TRANSFER)]
        desk.deliver(DECODE, each)
        count = len(flight.arrived) - 1
        assert WAITING_BYTES_MAX / 2 < count * heap_bytes(each) <= WAITING_BYTES_MAX
        for _ in range(count):
            assert await flight.next() == each
        last = await flight.next()
        assert isinstance(last, Ended)
        assert last.end is End.CANCELLED
        assert len(flight.arrived) == flight.waiting_bytes == 0

    run(work)


def test_a_client_that_reads_is_not_left_however_much_it_is_sent(desk: Desk, wires: Wires) -> None:
    async def work() -> None:
        flight = submitted(desk)
        large = replace(chunk(), text=b"a" * (WAITING_BYTES_MAX // 2))
        for _ in range(20):
            desk.deliver(DECODE, large)
            assert await flight.next() == large
        assert wires.posted[1:] == []

    run(work)


def test_a_lost_node_ends_its_requests_once(desk: Desk) -> None:
    async def work() -> None:
        flight = submitted(desk)
        desk.lose(NodeName("decode-1"))
        assert len(desk) == 1
        desk.lose(DECODE)
        desk.deliver(DECODE, COMPLETED)
        last = await flight.next()
        assert isinstance(last, Ended)
        assert last.refusal is not None
        assert (last.refusal.reason, last.end) == (Reason.PEER_LOST, End.FAILED)
        assert len(flight.arrived) == 0
        assert len(desk) == 0

    run(work)


def test_what_is_overdue_ends_as_timed_out(wires: Wires, ring: Keyring, evidence: Recorder) -> None:
    async def work() -> None:
        limits = LimitSettings(
            queue_ms=1, prefill_ms=1, verdict_ms=1, decode_ms=1, lost_ms=50, beat_ms=10
        )
        desk = Desk(ring, limits, 60, wires, evidence)
        flight = submitted(desk)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.sweep)
            with anyio.fail_after(5):
                last = await flight.next()
            tasks.cancel_scope.cancel()
        assert isinstance(last, Ended)
        assert last.end is End.TIMED_OUT
        assert wires.posted[1:] == [Cancel(TRANSFER)]
        assert len(desk) == 0

    run(work)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(NodeDown("gone"), Reason.PEER_LOST), (OutboxFull("full"), Reason.CAPACITY)],
)
def test_a_node_that_takes_nothing_is_a_refusal(
    desk: Desk, wires: Wires, fault: Exception, reason: Reason
) -> None:
    wires.fault = fault
    refusal = desk.submit(OWNER, "", REQUEST, ROUTE)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is reason
    assert refusal.row.retry_after_s == 1
    assert len(desk) == 0


@pytest.mark.parametrize("wrong", [chunk(2), chunk(-1), chunk(0, "done")])
def test_impossible_chunks_are_the_peers_fault(desk: Desk, wrong: Chunk) -> None:
    async def work() -> None:
        submitted(desk)
        with pytest.raises(PeerMisbehaved):
            desk.deliver(DECODE, wrong)

    run(work)


def test_another_node_cannot_answer(wires: Wires, ring: Keyring, tmp_path: Path) -> None:
    peer = Peer(NodeName("gateway"), Role.GATEWAY, Incarnation("test"))
    evidence = Recorder(tmp_path, peer, ring)
    desk = Desk(ring, LimitSettings(), 60, wires, evidence)

    async def work() -> None:
        flight = submitted(desk)
        desk.deliver(NodeName("decode-1"), chunk())
        desk.deliver(NodeName("decode-1"), COMPLETED)
        assert len(flight.arrived) == 0
        assert len(desk) == 1

    run(work)
    evidence.close()
    ignored = [r["message"] for r in read(evidence.path) if r["event"] == "message_ignored"]
    assert ignored == ["chunk", "ended"]


# Whose doing it is


TOO_LONG = Refusal(Reason.CONTEXT_LENGTH, Stage.PREFILL_ADMISSION, "too long", 7, 4, "pool")


def witnessed(
    wires: Wires, ring: Keyring, evidence: Recorder, over: Refusal | None = None
) -> tuple[Desk, Jury]:
    """A desk whose witness remembers, in front of nodes that report so."""
    jury = Jury()
    desk = Desk(
        ring, LimitSettings(), 60, wires, evidence, jury, exceeds=lambda route, demand: over
    )
    return desk, jury


def ended_with(stated: Refusal, recovered_from: Refusal | None = None) -> Ended:
    return Ended(TRANSFER, end_for(stated.reason), stated, 0, 0, 0, recovered_from)


CLIENTS_FAULTS = (
    Reason.FORGED,
    Reason.EXPIRED,
    Reason.REPLAYED,
    Reason.INPUT,
    Reason.TENANT,
    Reason.MALFORMED,
    Reason.CONTEXT_LENGTH,
)


@pytest.mark.parametrize("stage", [Stage.DECODE_ADMISSION, Stage.PREFILL_ADMISSION, Stage.GATEWAY])
@pytest.mark.parametrize("reason", CLIENTS_FAULTS)
def test_a_node_cannot_blame_a_client_for_what_the_gateway_vouches_for(
    reason: Reason, stage: Stage, wires: Wires, ring: Keyring, evidence: Recorder
) -> None:
    async def work() -> None:
        desk, jury = witnessed(wires, ring, evidence)
        flight = submitted(desk)
        desk.deliver(DECODE, ended_with(Refusal(reason, stage, "the client did it")))
        told = await flight.next()
        assert isinstance(told, Ended)
        assert told.refusal is not None
        assert (told.end, told.refusal.reason) == (End.REJECTED, Reason.PEER_REJECTED)
        assert told.refusal.row.http_status == 502
        assert f"it says `{reason}` at {stage}" in told.refusal.message
        assert jury.told == [(str(ROUTE), Reason.PEER_REJECTED, stage)]

    run(work)


def test_a_length_that_its_nodes_report_exceeds_is_the_clients_doing(
    wires: Wires, ring: Keyring, evidence: Recorder
) -> None:
    async def work() -> None:
        desk, jury = witnessed(wires, ring, evidence, TOO_LONG)
        flight = submitted(desk)
        desk.deliver(DECODE, ended_with(TOO_LONG))
        told = await flight.next()
        assert isinstance(told, Ended)
        assert told.refusal == TOO_LONG
        assert jury.told == [(str(ROUTE), Reason.CONTEXT_LENGTH, Stage.PREFILL_ADMISSION)]

    run(work)


def test_what_a_drill_presents_on_purpose_is_refused_as_stated(
    wires: Wires, ring: Keyring, evidence: Recorder
) -> None:
    async def work() -> None:
        desk, _ = witnessed(wires, ring, evidence)
        flight = desk.submit(OWNER, "", REQUEST, ROUTE, b"stolen")
        assert isinstance(flight, Flight)
        stated = Refusal(Reason.REPLAYED, Stage.DECODE_ADMISSION, "used before")
        desk.deliver(DECODE, ended_with(stated))
        told = await flight.next()
        assert isinstance(told, Ended)
        assert told.refusal == stated

    run(work)


def test_every_request_of_a_lost_node_is_told_to_the_witness(
    wires: Wires, ring: Keyring, evidence: Recorder
) -> None:
    desk, jury = witnessed(wires, ring, evidence)
    submitted(desk)
    desk.lose(DECODE)
    assert jury.told == [(str(ROUTE), Reason.PEER_LOST, Stage.GATEWAY)]


def test_what_a_node_says_against_the_protocol_is_told_to_the_witness(
    wires: Wires, ring: Keyring, evidence: Recorder
) -> None:
    desk, jury = witnessed(wires, ring, evidence)
    desk.misbehaves(DECODE, Reason.MALFORMED)
    assert jury.told == [(DECODE, Reason.PEER_REJECTED, Stage.GATEWAY)]


@pytest.mark.parametrize("left", [False, True], ids=["client is there", "client has left"])
def test_evidence_that_was_missing_counts_also_where_decode_made_up_for_it(
    left: bool, wires: Wires, ring: Keyring, evidence: Recorder
) -> None:
    missing = Refusal(Reason.MISSING_EVIDENCE, Stage.VERDICT, "2 pages, 0 digests")

    async def work() -> None:
        desk, jury = witnessed(wires, ring, evidence)
        flight = submitted(desk)
        if left:
            desk.leave(flight)
        desk.deliver(DECODE, replace(COMPLETED, recovered_from=missing))
        assert jury.told == [(str(ROUTE), Reason.MISSING_EVIDENCE, Stage.VERDICT)]

    run(work)


def test_a_node_that_reports_no_end_in_time_gave_no_evidence(
    wires: Wires, ring: Keyring, evidence: Recorder
) -> None:
    async def work() -> None:
        limits = LimitSettings(
            queue_ms=1, prefill_ms=1, verdict_ms=1, decode_ms=1, lost_ms=900, beat_ms=10
        )
        jury = Jury()
        desk = Desk(ring, limits, 60, wires, evidence, jury)
        flight = submitted(desk)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.sweep)
            with anyio.fail_after(10):
                await flight.next()
            tasks.cancel_scope.cancel()
        assert jury.told == [(str(ROUTE), Reason.MISSING_EVIDENCE, Stage.GATEWAY)]

    run(work)


def test_a_gateway_that_stood_still_holds_no_silence_against_a_node(
    wires: Wires, ring: Keyring, evidence: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        jury = Jury()
        desk = Desk(ring, LimitSettings(beat_ms=10), 60, wires, evidence, jury)
        flight = submitted(desk)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.sweep)
            await anyio.lowlevel.checkpoint()  # it has looked at the clock, and sleeps
            later = Instant(flight.due + 1)
            monkeypatch.setattr(clock, "now", lambda: later)
            with anyio.fail_after(10):
                last = await flight.next()
            tasks.cancel_scope.cancel()
        assert isinstance(last, Ended)
        assert last.end is End.TIMED_OUT
        assert jury.told == []

    run(work)


def test_messages_about_nothing_change_nothing(desk: Desk) -> None:
    desk.deliver(DECODE, chunk())
    desk.deliver(DECODE, COMPLETED)
    assert len(desk) == 0
