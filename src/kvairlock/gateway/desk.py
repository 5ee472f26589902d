"""Requests in flight: each is signed, sent to its decode node, and followed to its one end.

    submit -> OPEN --chunks, Ended--> (gone)
               |  client leaves, does not read: Cancel
               +--> LEFT ------Ended--------> (gone)

An end always comes: from the decode node, because that node is lost, or because all deadlines of
the request's stages have passed. A client that left is not waited for, but its request stays here
until its end, because until then it loads its nodes.

What a node states is attributed first (`attribution`): the client and the witness are told the
same, whoever's doing it is.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

import anyio

from kvairlock.core.ends import End, end_for
from kvairlock.core.errors import PeerMisbehaved, Reason, Refusal, Stage
from kvairlock.core.messages import (
    Cancel,
    Chunk,
    Ended,
    Message,
    RequestTicket,
    Submit,
)
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.terms import NS_PER_MS, Instant, NodeName, Owner, Peer, Route, TransferId
from kvairlock.gateway.asked import Asked
from kvairlock.gateway.attribution import Voucher, attributed, gateway_lost, misbehaved
from kvairlock.gateway.errors import refusal_of
from kvairlock.gateway.mailbox import Mailbox
from kvairlock.gateway.nodes import NodeDown, OutboxFull
from kvairlock.runtime import clock
from kvairlock.runtime.recording import Sink
from kvairlock.runtime.settings import LimitSettings
from kvairlock.wire import tickets
from kvairlock.wire.keys import Keyring, input_digest

WAITING_BYTES_MAX = 2 * 1024 * 1024
"""What chunks may take that wait for a client that does not read, in bytes of memory, about."""

PART_BYTES = 160
"""What a chunk takes, and each likelihood in it, apart from its text: measured, rounded up."""

FINISHES = frozenset({"", "stop", "length"})

OVERDUE = "the decode node reported no end in time"


class Post(Protocol):
    """The way to the nodes."""

    def post(self, name: NodeName, message: Message) -> None:
        """Queue a message. Raises NodeDown or OutboxFull."""

    def layout(self, name: NodeName) -> str:
        """Return the page layout that a node stated. Raises NodeDown."""

    def peer(self, name: NodeName) -> Peer:
        """Return which life of a node the channel leads to. Raises NodeDown."""


class Witness(Protocol):
    """Who is told how requests end by what their nodes do."""

    def failed(self, route: Route, refusal: Refusal) -> None:
        """Take note that a request did not end as it should on a route."""

    def misbehaved(self, node: NodeName, refusal: Refusal) -> None:
        """Take note that a node broke the protocol, on all its routes."""


def weight_bytes(chunk: Chunk) -> int:
    """Return what a chunk takes in memory, about."""
    parts = 1 + sum(1 + len(score.alternatives) for score in chunk.scores)
    return parts * PART_BYTES + len(chunk.text)


class FlightState(StrEnum):
    """Who still waits for a request's end."""

    OPEN = "open"
    LEFT = "left"


@dataclass(slots=True)
class Flight:
    """One request on its way.

    Args:
        owner: Tenant, request, attempt.
        route: Its prefill and decode node.
        demand: What it needs from the route.
        ticket: The ticket that the gateway signed for it.
        voucher: Who vouches for what was sent.
        due: When all its deadlines have passed.
        state: Whether its client is still there.
        arrived: Chunks, then one `Ended`.
        waiting_bytes: What the chunks in `arrived` take, about.
    """

    owner: Owner
    route: Route
    demand: Demand
    ticket: bytes
    voucher: Voucher
    due: Instant
    state: FlightState = FlightState.OPEN
    arrived: Mailbox[Chunk | Ended] = field(default_factory=Mailbox)
    waiting_bytes: int = 0

    async def next(self) -> Chunk | Ended:
        """Return the next chunk, or last of all the end."""
        arrived = await self.arrived.get()
        if isinstance(arrived, Chunk):
            self.waiting_bytes -= weight_bytes(arrived)
        return arrived

    def keep(self, chunk: Chunk) -> None:
        """Keep a chunk until the client's task takes it."""
        self.waiting_bytes += weight_bytes(chunk)
        self.arrived.put(chunk)

    def end(self, reason: Reason, message: str) -> None:
        """End it from here, if its client is still there."""
        if self.state is not FlightState.OPEN:
            return
        refusal = Refusal(reason, Stage.GATEWAY, message)
        self.arrived.put(Ended(self.owner.transfer, end_for(reason), refusal, 0, 0, 0, None))


def _nothing_is_known(route: Route, demand: Demand) -> Refusal | None:
    """Confirm no refusal: nobody knows what nodes report."""
    return None


class Desk:
    """All requests in flight.

    Args:
        ring: Signs tickets.
        limits: Deadlines of the stages.
        ticket_s: Seconds for which a ticket is good.
        nodes: The way to the nodes.
        evidence: Records what was sent and what was ignored.
        witness: Told of every end that nodes bring about, also after the client has left; or None.
        exceeds: Says why a route cannot hold a demand by what its nodes report now.
    """

    def __init__(
        self,
        ring: Keyring,
        limits: LimitSettings,
        ticket_s: int,
        nodes: Post,
        evidence: Sink,
        witness: Witness | None = None,
        exceeds: Callable[[Route, Demand], Refusal | None] = _nothing_is_known,
    ) -> None:
        self._ring = ring
        self._limits = limits
        self._ticket_s = ticket_s
        self._nodes = nodes
        self._evidence = evidence
        self._witness, self._exceeds = witness, exceeds
        self._flights: dict[TransferId, Flight] = {}

    def __len__(self) -> int:
        """Return how many requests have not ended."""
        return len(self._flights)

    def load(self) -> Counter[NodeName]:
        """Return how many requests each node has that have not ended."""
        counted: Counter[NodeName] = Counter()
        for flight in self._flights.values():
            counted.update((flight.route.prefill, flight.route.decode))
        return counted

    def submit(
        self,
        owner: Owner,
        scope: str,
        request: Asked,
        route: Route,
        believed: bytes | None = None,
        trace: str = "",
    ) -> Flight | Refusal:
        """Sign a request and send it to its decode node.

        Args:
            owner: Tenant, request, attempt.
            scope: Who may share its prefix pages, as tickets say it.
            request: What is asked.
            route: Where it goes.
            believed: A ticket to send in place of the one that is signed here (drills), or None.
            trace: Under which span its nodes' spans belong; empty if it is not traced.
        """
        tokens = request.prompt_tokens.astype("<i4").tobytes()
        try:
            layout = self._nodes.layout(route.decode)
            receiver = self._nodes.peer(route.decode)
            ticket = self._sign(owner, scope, request, receiver, layout, tokens)
            submit = _submit(owner, request, route, tokens, believed or ticket, trace)
            self._nodes.post(route.decode, submit)
        except NodeDown as error:
            return Refusal(Reason.PEER_LOST, Stage.GATEWAY, str(error))
        except OutboxFull as error:
            return Refusal(Reason.CAPACITY, Stage.GATEWAY, str(error))
        voucher = Voucher.GATEWAY if believed is None else Voucher.DRILL
        flight = Flight(owner, route, request.demand, ticket, voucher, self._due())
        self._flights[owner.transfer] = flight
        return flight

    def leave(self, flight: Flight) -> None:
        """Take note that a request's client is gone; ends it at its nodes if it still runs."""
        if flight.owner.transfer in self._flights and flight.state is FlightState.OPEN:
            flight.state = FlightState.LEFT
            self._cancel(flight)

    def deliver(self, node: NodeName, message: Chunk | Ended) -> None:
        """Take what a decode node says about a request.

        Raises:
            PeerMisbehaved: It speaks of a choice or a finish that cannot be.
        """
        flight = self._flights.get(message.transfer)
        if flight is None:
            return
        if flight.route.decode != node:
            self._ignore(flight, message, f"{node} does not serve it")
        elif isinstance(message, Ended):
            del self._flights[message.transfer]
            ended = self._attributed(flight, message)
            flight.arrived.put(ended)
            self._tell(flight, ended)
        else:
            self._take(flight, message)

    def lose(self, node: NodeName) -> None:
        """End all requests of a decode node that is gone."""
        gone = [flight for flight in self._flights.values() if flight.route.decode == node]
        for flight in gone:
            del self._flights[flight.owner.transfer]
            message = f"{node} was lost while it served the request"
            flight.end(Reason.PEER_LOST, message)
            self._blame(flight, Refusal(Reason.PEER_LOST, Stage.GATEWAY, message))

    def misbehaves(self, node: NodeName, reason: Reason) -> None:
        """Hold against all routes of a node what it said and no node says."""
        if self._witness is not None:
            self._witness.misbehaved(node, misbehaved(reason))

    def close(self) -> None:
        """End all requests: this process ends, and their clients are to be told why."""
        for flight in list(self._flights.values()):
            self._cancel(flight)
            del self._flights[flight.owner.transfer]
            flight.end(Reason.ROUTE_CLOSED, "the gateway is stopping; ask again")

    async def sweep(self) -> None:
        """End what is overdue, until cancelled."""
        while True:
            looked_at = clock.now()
            await anyio.sleep(self._limits.beat_ms / 1000)
            # A process that stood still has not listened: that nothing was heard says nothing.
            listened = clock.elapsed_ms(looked_at) < self._limits.lost_ms
            now = clock.now()
            for flight in [f for f in self._flights.values() if f.due <= now]:
                self._cancel(flight)
                del self._flights[flight.owner.transfer]
                flight.end(Reason.TIMEOUT, OVERDUE)
                if listened:
                    self._blame(flight, Refusal(Reason.MISSING_EVIDENCE, Stage.GATEWAY, OVERDUE))

    def _due(self) -> Instant:
        stages = self._limits
        # Twice to the prompt's cache: decode may recover where the first way gave no evidence.
        total_ms = 2 * (stages.queue_ms + stages.prefill_ms) + stages.verdict_ms + stages.decode_ms
        return Instant(clock.now() + (total_ms + stages.lost_ms) * NS_PER_MS)

    def _sign(
        self,
        owner: Owner,
        scope: str,
        request: Asked,
        receiver: Peer,
        layout: str,
        tokens: bytes,
    ) -> bytes:
        salt = secrets.token_hex(16)
        digest = input_digest(self._ring, self._ring.active_id, salt, layout, tokens)
        ticket = RequestTicket(
            owner=owner,
            input_digest=digest,
            prompt_tokens=len(request.prompt_tokens),
            max_tokens=request.max_tokens,
            choices=request.n,
            scope=scope,
            expires_unix_s=int(time.time()) + self._ticket_s,
            salt=salt,
            receiver=receiver,
        )
        return tickets.sign(self._ring, ticket)

    def _take(self, flight: Flight, chunk: Chunk) -> None:
        if not 0 <= chunk.choice < flight.demand.choices or chunk.finish not in FINISHES:
            raise PeerMisbehaved(Reason.MALFORMED, "a chunk of no choice, or of no known finish")
        if flight.state is not FlightState.OPEN:
            return
        if flight.waiting_bytes + weight_bytes(chunk) <= WAITING_BYTES_MAX:
            flight.keep(chunk)
            return
        flight.end(Reason.CANCELLED, "the client does not read its answer")
        self.leave(flight)

    def _cancel(self, flight: Flight) -> None:
        with suppress(NodeDown):
            self._nodes.post(flight.route.decode, Cancel(flight.owner.transfer))

    def _attributed(self, flight: Flight, ended: Ended) -> Ended:
        """Return an end with its refusal as whose doing that is."""
        if ended.refusal is None:
            return ended
        if ended.refusal.reason is not Reason.CANCELLED:
            over = self._exceeds(flight.route, flight.demand)
            refusal = attributed(ended.refusal, flight.voucher, over)
        elif flight.state is FlightState.OPEN:
            refusal = gateway_lost()
        else:
            return ended
        return replace(ended, end=end_for(refusal.reason), refusal=refusal)

    def _tell(self, flight: Flight, ended: Ended) -> None:
        """Tell the witness of what failed, also of what decode then made up for itself."""
        if ended.recovered_from is not None:
            self._blame(flight, ended.recovered_from)
        refusal = refusal_of(ended)
        as_asked = flight.state is FlightState.LEFT and ended.end is End.CANCELLED
        if refusal is not None and not as_asked:
            self._blame(flight, refusal)

    def _blame(self, flight: Flight, refusal: Refusal) -> None:
        if self._witness is not None:
            self._witness.failed(flight.route, refusal)

    def _ignore(self, flight: Flight, message: Message, reason: str) -> None:
        fields = {"message": type(message).__name__.lower(), "reason": reason}
        self._evidence.record("message_ignored", flight.owner, fields)


def _submit(
    owner: Owner, request: Asked, route: Route, tokens: bytes, ticket: bytes, trace: str
) -> Submit:
    return Submit(
        ticket=ticket,
        tenant=owner.tenant,
        transfer=owner.transfer,
        tokens=tokens,
        max_tokens=request.max_tokens,
        choices=request.n,
        stop=request.stop,
        sampling=request.sampling,
        alternatives=request.alternatives,
        prefill=route.prefill,
        nonce=secrets.token_hex(8),
        trace=trace,
    )
