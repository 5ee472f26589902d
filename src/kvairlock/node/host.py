"""The asyncio host of one core node: events in one at a time, effects out in order.

Everything that touches the core runs in the event loop. Engine, landing and digests run in threads
and come back as events; while they run, a hold in the core keeps their pages. Deadlines are handled
before the next event whenever they have passed, so also first of all after a suspension.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
import structlog
from anyio.abc import TaskGroup

from kvairlock.core.checks import Coverage
from kvairlock.core.effects import CopyPages, Effect, Record, Scrub, Send, Value, ZeroTail
from kvairlock.core.errors import KvairlockError, Misuse
from kvairlock.core.events import Event, GuardsChanged, PeerGone, PeerLost, PeerUp, ScrubDone, Told
from kvairlock.core.evidence import EVENTS, Sensitivity
from kvairlock.core.guards import Guard
from kvairlock.core.messages import (
    SENDERS,
    Beat,
    Drill,
    Inspect,
    Message,
    NodeStatus,
    Rehearse,
    Resize,
    Watch,
)
from kvairlock.core.node import LedgerBroken, Node
from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.stopwatch import Stopwatch
from kvairlock.core.terms import Fence, NodeName, Peer, Role, Route
from kvairlock.engine.cache import PagedCache
from kvairlock.engine.layout import Layout
from kvairlock.engine.model import Model
from kvairlock.node.cuts import Cuts
from kvairlock.node.links import Links
from kvairlock.node.presenting import Presenter
from kvairlock.node.tracing import NodeTraces
from kvairlock.node.watching import Watching
from kvairlock.runtime import clock
from kvairlock.runtime.failpoints import Failpoints, Point, Reached, point_named
from kvairlock.runtime.guarding import Guarding
from kvairlock.runtime.link import Identity, Link
from kvairlock.runtime.recording import Sink
from kvairlock.runtime.settings import Settings
from kvairlock.runtime.traces.tracer import UNTRACED, Tracer
from kvairlock.transport.memory import PoolMemory
from kvairlock.wire.keys import Keyring

Subject = TypeVar("Subject")
EVIDENCE_BEAT_NS = 5_000_000_000
BEAT_LEASES_MAX = 4096
"""Leases that a beat names; of more it names none, and so bounds no loss before it."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Equipment:
    """What a node process is given.

    Args:
        settings: The stack's settings.
        report: What this process measured about itself.
        peer: Who it is.
        ring: The cluster's keys.
        model: The model.
        layout: Its page layout.
        memory: The pool's memory.
        sink: Where evidence goes.
        run: Folder of the sockets.
        guarding: How guards are set.
        tracer: Where spans go.
    """

    settings: Settings
    report: CapacityReport
    peer: Peer
    ring: Keyring
    model: Model
    layout: Layout
    memory: PoolMemory
    sink: Sink
    run: Path
    guarding: Guarding
    tracer: Tracer = UNTRACED


class Host(ABC):
    """What prefill and decode processes have in common."""

    def __init__(self, equipment: Equipment, core: Node) -> None:
        self.has, self.core = equipment, core
        self.cache = PagedCache(equipment.memory.array, equipment.layout)
        drill = equipment.settings.drill.enabled
        self.points = Failpoints(drill, on_reached=self._reached)
        limits = equipment.settings.limits
        me = Identity(
            equipment.peer,
            equipment.ring,
            equipment.layout.digest,
            verify=equipment.settings.guards.on(Guard.FRAME),
        )
        self.links = Links(
            me,
            limits.beat_ms,
            limits.lost_ms,
            hears=self._hears,
            opened=self._channel_opened,
            up=self._up,
            lost=lambda peer: self.tell(PeerLost(peer)),
            gone=lambda peer: self.tell(PeerGone(peer)),
            refused=self._frame_refused,
            cuts=Cuts(self.points),
        )
        self.presenter = Presenter(
            equipment.ring,
            equipment.layout.digest,
            equipment.model.vocab_size,
            check=equipment.settings.guards.on(Guard.TICKET),
        )
        self.traces = NodeTraces(equipment.peer.role, equipment.tracer)
        self.watching = Watching(core.machine.books.pool, self.links.send)
        self.routes = _routes_of(equipment.peer.node, equipment.settings)
        self.gateways: set[NodeName] = set()
        self.tasks: TaskGroup | None = None
        self._loop = asyncio.get_running_loop()
        self._events: deque[Event] = deque()
        self._is_turning = False
        self._moved = anyio.Event()
        self._broken: LedgerBroken | None = None
        self._recorded_beat_at = clock.now()
        self._scrubbed_pages = 0
        self.stopwatch = Stopwatch(equipment.settings.metrics.group_requests_min)
        self._epoch = core.machine.books.report.epoch

    # What a kind of node adds

    @abstractmethod
    def perform(self, effect: Effect) -> None:
        """Carry out an effect that only this kind of node has."""

    @abstractmethod
    def hear(self, peer: Peer, message: Message, file: int | None) -> None:
        """Take a message that only this kind of node gets."""

    @abstractmethod
    async def work(self) -> None:
        """Run the engine until cancelled."""

    @abstractmethod
    def requests(self) -> Counter[str]:
        """Return the number of requests by stage."""

    @abstractmethod
    def windows(self) -> tuple[int, int]:
        """Return the windows that are open, and those of them that are draining."""

    def coverage(self) -> tuple[Coverage, ...]:
        """Return the page reads of each route; who decodes nothing reads no page for an answer."""
        return ()

    # The turn

    def tell(self, event: Event) -> None:
        """Take one event; its effects are carried out before this returns, in order."""
        self._events.append(event)
        self._run_turns()

    def tell_from_thread(self, event: Event) -> None:
        """Take one event from another thread, as soon as the loop turns."""
        self._loop.call_soon_threadsafe(self.tell, event)

    def _run_turns(self) -> None:
        """Handle deadlines, then events until there are none; not entered twice."""
        if self._is_turning or self._broken is not None:
            return
        self._is_turning = True
        try:
            self._tick()
            while self._events:
                event = self._events.popleft()
                self.traces.told(event)
                self._perform(self.core.handle(event, clock.now()))
                self._tick()
        except LedgerBroken as broken:
            self._stop(broken)
        except Exception as error:
            # Effects of this turn are lost, so the books and the world no longer agree.
            log.exception("a turn failed")
            self._stop(LedgerBroken("turn", f"{type(error).__name__} in a turn"))
        finally:
            self._is_turning = False
            self._moved.set()

    def _tick(self) -> None:
        """Handle what time has brought: waivers that have expired, then deadlines."""
        self._look_at_waivers()
        due = self.core.deadline()
        if due is not None and due <= clock.now():
            self._perform(self.core.tick(clock.now()))

    def _look_at_waivers(self) -> None:
        entries = self.has.guarding.look(int(time.time()))
        if not entries:
            return
        for event, fields in entries:
            self.has.sink.record(event, None, fields)
        self._perform(self.core.handle(GuardsChanged(self.has.guarding.guards), clock.now()))
        self._report()

    def _stop(self, broken: LedgerBroken) -> None:
        log.critical("the ledger cannot be trusted any more; stopping", invariant=broken.invariant)
        self._broken = broken
        for effect in self.core.machine.books.take():
            if isinstance(effect, Record):
                self._record(effect)
        if self.tasks is not None:
            self.tasks.cancel_scope.cancel()

    def _perform(self, effects: Sequence[Effect]) -> None:
        self._report_anew()
        for effect in effects:
            self.traces.done(effect)
            match effect:
                case Record():
                    self._record(effect)
                case Send(to, message):
                    self.post(to, message)
                case ZeroTail(page, used_tokens):
                    self.cache.zero_tail(page, used_tokens)
                case CopyPages(source, target):
                    self.cache.copy_pages(source, target)
                case Scrub(fenced):
                    self.has.memory.scrub(fenced.pages)
                    self._scrubbed_pages += len(fenced.pages)
                    self._events.append(ScrubDone(fenced))
                case _:
                    self.perform(effect)

    def _record(self, record: Record) -> None:
        self.stopwatch.note(record, clock.now())
        fields = self._pseudonyms(record.event, record.fields)
        self.has.sink.record(record.event, record.owner, fields)

    def post(self, to: NodeName, message: Message) -> None:
        """Send a message of the core."""
        self.links.send(to, message)

    def start(self, work: Callable[[Subject], Coroutine[Any, Any, None]], subject: Subject) -> None:
        """Run something in the background for as long as the node runs."""
        if self.tasks is None:
            raise Misuse("the node does not run")
        self.tasks.start_soon(work, subject)

    def _pseudonyms(self, event: str, fields: dict[str, Value]) -> dict[str, Value]:
        """Replace names that the core gives beside the owner: the sink knows only the owner's."""
        row = EVENTS[event]
        return {
            name: self.has.sink.pseudonym(row[name].stands_for, str(value))
            if row[name].sensitivity is Sensitivity.PSEUDONYM
            else value
            for name, value in fields.items()
        }

    # Running

    async def run(self, dials: dict[NodeName, Path], ready: Callable[[], None]) -> None:
        """Serve until cancelled.

        Args:
            dials: Peers to keep a link to, with their sockets.
            ready: Called once the node listens.

        Raises:
            LedgerBroken: The node's books do not add up; its evidence is complete up to here.
        """
        async with anyio.create_task_group() as tasks:
            self.tasks = tasks
            await tasks.start(self.links.listen, self.has.run / f"{self.has.peer.node}.sock")
            for name, path in dials.items():
                tasks.start_soon(self.links.dial, name, path)
            tasks.start_soon(self.links.beat, self._sign_of_life)
            tasks.start_soon(self._watch_deadlines)
            tasks.start_soon(self._watch_waivers)
            tasks.start_soon(self.watching.run)
            tasks.start_soon(self.work)
            ready()
        if self._broken is not None:
            raise self._broken

    async def _watch_deadlines(self) -> None:
        while True:
            self._moved = anyio.Event()
            due = self.core.deadline()
            wait_s = math.inf if due is None else max(0.0, (due - clock.now()) / 1e9)
            with anyio.move_on_after(wait_s):
                await self._moved.wait()
            self._run_turns()

    async def _watch_waivers(self) -> None:
        """Look at the wall clock at every beat, as long as there is a waiver to expire."""
        while self.has.guarding.waivers.in_force:
            await anyio.sleep(self.has.settings.limits.beat_ms / 1000)
            self._run_turns()

    # Links

    def _channel_opened(self, channel: Link) -> None:
        peer = channel.peer
        self.has.sink.record(
            "channel_opened",
            None,
            {
                "peer": peer.node,
                "peer_incarnation": peer.incarnation,
                "messages": channel.version,
            },
        )

    def _up(self, peer: Peer) -> None:
        if peer.role is Role.GATEWAY:
            self.gateways.add(peer.node)
        self.tell(PeerUp(peer))

    def _hears(self, peer: Peer, message: Message, file: int | None) -> None:
        if peer.role not in SENDERS[type(message)]:
            if file is not None:
                os.close(file)
            self._frame_refused(peer.node, f"{type(message).__name__} is not for a {peer.role}")
            return
        match message:
            case Beat():
                pass
            case Inspect():
                self.links.send(peer.node, self.status())
            case Drill():
                self._drill(message)
                self.links.send(peer.node, self.status())
            case Resize():
                self.tell(Told(peer, message))
                log.info("resized", pages=self.core.machine.books.report.pages)
                self._report()
            case Rehearse():
                self.tell(Told(peer, message))
            case Watch():
                self.watching.asked(peer.node, message)
            case _:
                self.hear(peer, message, file)

    def _frame_refused(self, peer: str, reason: str) -> None:
        log.warning("frame refused", peer=peer, reason=reason)
        self.has.sink.record("frame_refused", None, {"peer": peer, "reason": reason})

    def _sign_of_life(self, name: NodeName) -> Message:
        now = clock.now()
        if now - self._recorded_beat_at > EVIDENCE_BEAT_NS:
            self._recorded_beat_at = now
            self.has.sink.record("beat", None, self._beat())
        return self.status() if name in self.gateways else Beat()

    def _beat(self) -> dict[str, Value]:
        """Say again what must not be believed away if the record that said it first is lost."""
        leases = self.core.machine.books.pool.leases
        return {
            "records": self.has.sink.records,
            **self.has.guarding.stated(self.has.peer.node),
            "points": tuple(map(str, self.points.once_armed())),
            "leases": tuple(leases) if len(leases) <= BEAT_LEASES_MAX else None,
        }

    def _report(self) -> None:
        """Tell all gateways what is true now, not at the next beat."""
        for name in self.gateways:
            self.links.send(name, self.status())

    def _report_anew(self) -> None:
        """State new figures before anything that this turn refuses by them."""
        epoch = self.core.machine.books.report.epoch
        if epoch != self._epoch:
            self._epoch = epoch
            self._report()

    def status(self) -> NodeStatus:
        """Return the node's figures."""
        books = self.core.machine.books
        windows, draining = self.windows()
        return NodeStatus(
            report=books.report,
            pages={stage.name.lower(): count for stage, count in books.pool.count().items()},
            windows=windows,
            windows_draining=draining,
            requests=dict(self.requests()),
            links=self.links.names,
            counters={
                **books.counters,
                "pages_scrubbed": self._scrubbed_pages,
                "evidence_records": self.has.sink.records,
                "evidence_lost": self.has.sink.lost,
                "trace_spans_dropped": self.traces.dropped,
            },
            fences=_by_name(books.drain.fences),
            window_fences=_by_name(books.drain.window_fences),
            points=tuple(f"{reached.name} {reached.detail}" for reached in self.points.reached()),
            relaxed=books.guards.not_enforcing(self.routes),
            coverage=self.coverage(),
            waits=self.stopwatch.waited(),
        )

    # Drills

    def _drill(self, drill: Drill) -> None:
        try:
            point = point_named(drill.point)
            if drill.action == "arm":
                self.points.arm(point, drill.after)
            else:
                self.points.release(point)
        except KvairlockError as error:
            log.warning("drill refused", reason=str(error))
            return
        self._record_point(point, drill.action)
        self.links.recut()

    def _reached(self, reached: Reached) -> None:
        self._loop.call_soon_threadsafe(self._point_reached, reached)

    def _point_reached(self, reached: Reached) -> None:
        self._record_point(reached.name, "reached")
        self._report()

    def _record_point(self, point: Point, action: str) -> None:
        self.has.sink.record("failpoint", None, {"point": str(point), "action": action})


def _by_name(fences: Mapping[Fence, int]) -> dict[str, int]:
    return {str(fence): count for fence, count in fences.items()}


def _routes_of(node: NodeName, settings: Settings) -> tuple[Route, ...]:
    return tuple(route for route in settings.routes if node in (route.prefill, route.decode))
