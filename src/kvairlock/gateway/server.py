"""One gateway process: its parts put together, its tasks in one loop, its end in order.

The HTTP server ends first, so that what is in flight is finished or cancelled while the channels to
the nodes are still open; then the channels; then the evidence.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
import uvicorn

from kvairlock.core.guards import Guard
from kvairlock.core.terms import Incarnation, Peer, Role
from kvairlock.engine.model import Tokenizer, served_name
from kvairlock.gateway.app import make_app
from kvairlock.gateway.asked import Offer
from kvairlock.gateway.breaker_file import BreakerFile
from kvairlock.gateway.breakers import Breakers
from kvairlock.gateway.closures import WAITED_FOR, Closure
from kvairlock.gateway.console.console import Console
from kvairlock.gateway.console.viewers import Viewers
from kvairlock.gateway.desk import Desk
from kvairlock.gateway.drill_marks import DrillMarks
from kvairlock.gateway.gate import Gate
from kvairlock.gateway.keys import ApiKeys
from kvairlock.gateway.metrics import Meter
from kvairlock.gateway.nodes import Nodes
from kvairlock.gateway.parsers import Parsers
from kvairlock.gateway.parts import Parts
from kvairlock.gateway.retries import Retries
from kvairlock.gateway.routes import Routes, all_routes
from kvairlock.gateway.tally import Tally
from kvairlock.runtime import http, lifetime
from kvairlock.runtime.guarding import Guarding
from kvairlock.runtime.link import Identity
from kvairlock.runtime.recording import Sink, Value
from kvairlock.runtime.settings import GATEWAY_NAME, Settings
from kvairlock.runtime.traces.tracer import UNTRACED, Tracer
from kvairlock.wire.keys import Keyring

HEAD_BYTES_MAX = 32 * 1024
KEEP_ALIVE_S = 30
PARSERS_MAX = 2
"""Large bodies that become tokens at one time; more threads would only take turns."""

TENANT_BODIES_MAX = 8
"""Bodies of the largest size that one tenant may have waiting; of smaller ones it may have more."""

BREAKERS = "breakers.json"
"""Where in the state directory the breakers are kept."""

DRAIN_S = 3
SHUTDOWN_S = DRAIN_S + 2
EVIDENCE_BEAT_S = 5
LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Process:
    """What a gateway process was started with.

    Args:
        settings: The stack's settings.
        tokenizer: The model's tokenizer.
        ring: The cluster's keys.
        keys: The API keys.
        run: Where the nodes' sockets are.
        state: Where it keeps what outlives it.
        evidence: Where its evidence goes.
        listener: The socket that HTTP comes in on, bound.
        incarnation: This life of it.
        tracer: Where its spans go.
    """

    settings: Settings
    tokenizer: Tokenizer
    ring: Keyring
    keys: ApiKeys
    run: Path
    state: Path
    evidence: Path
    listener: socket.socket
    incarnation: Incarnation
    tracer: Tracer = UNTRACED

    @property
    def peer(self) -> Peer:
        """What it is to the nodes."""
        return Peer(GATEWAY_NAME, Role.GATEWAY, self.incarnation)

    @property
    def url(self) -> str:
        """Where clients on this machine reach it."""
        host, port = self.listener.getsockname()[:2]
        reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - read, not bound
        return f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """Bind the HTTP socket; port 0 takes a free one.

    Raises:
        OSError: The address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family)
    # Connections inherit it. asyncio sets it only where the socket names its protocol, as this one
    # does not; without it the body of an answer waits for the client to acknowledge its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def assemble(process: Process, evidence: Sink) -> Parts:
    """Put the parts of a gateway together.

    Raises:
        StateUnusable: What must outlive this process cannot be kept in its state directory.
    """
    settings, offer = process.settings, _offer(process)
    verify = settings.guards.on(Guard.FRAME)
    me = Identity(process.peer, process.ring, verify=verify)
    front, limits = settings.gateway, settings.limits
    promised = settings.commitment.promised
    file = BreakerFile(process.state / BREAKERS)
    file.claim()
    breakers = Breakers(all_routes(settings.nodes), settings.breaker.conditions, file, evidence)
    guarding = Guarding(settings, int(time.time()))
    routes = Routes(settings.nodes, guarding.guards, promised, breakers, lost_ms=limits.lost_ms)
    nodes = Nodes(process.run, me, limits, routes, evidence)
    desk = Desk(
        process.ring, limits, front.ticket_s, nodes, evidence, breakers, exceeds=routes.exceeds
    )
    return Parts(
        settings=settings,
        offer=offer,
        keys=process.keys,
        routes=routes,
        breakers=breakers,
        tally=Tally(settings.breaker.tenant_faults_per_min, evidence),
        gate=Gate(routes, evidence),
        guarding=guarding,
        nodes=nodes,
        desk=desk,
        meter=Meter(offer.model, settings.metrics.group_requests_min),
        retries=Retries(settings.retries),
        evidence=evidence,
        parsers=Parsers(PARSERS_MAX, TENANT_BODIES_MAX * front.body_bytes_max),
        marks=DrillMarks(evidence),
        console=Console(nodes.maps, Viewers(nodes, nodes.maps, tuple(settings.nodes))),
        tracer=process.tracer,
    )


def _offer(process: Process) -> Offer:
    front = process.settings.gateway
    return Offer(
        model=served_name(process.settings.model),
        tokenizer=process.tokenizer,
        max_tokens_default=front.max_tokens_default,
        chat_tokens_default=front.chat_tokens_default,
        temperature_default=front.temperature_default,
        choices_max=front.choices_max,
    )


class Server(http.Server):
    """uvicorn, told by this process when to stop, and telling when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and say so."""
        await super().startup(sockets)
        self.listening.set()


async def serve(
    process: Process, evidence: Sink, say: Callable[[Mapping[str, object]], None]
) -> None:
    """Serve until SIGTERM or SIGINT, or until the parent process has died.

    Args:
        process: What was started.
        evidence: Where isolation events go; the caller closes it.
        say: Told the facts of the ready line when the process is ready.
    """
    parts = assemble(process, evidence)
    _record_start(parts)
    server = Server(_config(parts))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parts.nodes.run, parts.desk)
        tasks.start_soon(parts.desk.sweep)
        tasks.start_soon(_beat, parts)
        tasks.start_soon(_watch_waivers, parts)
        tasks.start_soon(parts.console.viewers.run)
        tasks.start_soon(_stop_when_told, server, parts)
        tasks.start_soon(_announce, process, parts, server, say)
        await server.serve(sockets=[process.listener])
        tasks.cancel_scope.cancel()


def _config(parts: Parts) -> uvicorn.Config:
    return http.configured(
        make_app(parts),
        head_bytes_max=HEAD_BYTES_MAX,
        keep_alive_s=KEEP_ALIVE_S,
        shutdown_s=SHUTDOWN_S,
    )


def _record_start(parts: Parts) -> None:
    stated = parts.guarding.stated(GATEWAY_NAME)
    parts.evidence.record("node_started", None, {**stated, "pool_pages": 0, "fingerprint": ""})
    for event, told in parts.guarding.at_start:
        parts.evidence.record(event, None, told)


async def _beat(parts: Parts) -> None:
    while True:
        await anyio.sleep(EVIDENCE_BEAT_S)
        said: dict[str, Value] = {"records": parts.evidence.records, "points": (), "leases": ()}
        parts.evidence.record("beat", None, {**said, **parts.guarding.stated(GATEWAY_NAME)})
        parts.breakers.settle()


async def _watch_waivers(parts: Parts) -> None:
    """Look at the wall clock at every beat, as long as there is a waiver to expire."""
    while parts.guarding.waivers.in_force:
        await anyio.sleep(parts.settings.limits.beat_ms / 1000)
        for event, fields in parts.guarding.look(int(time.time())):
            parts.evidence.record(event, None, fields)
        parts.routes.guards = parts.guarding.guards


async def _stop_when_told(server: Server, parts: Parts) -> None:
    """Take no more requests, give those in flight some time, then refuse them as the API does."""
    await lifetime.stop_requested()
    server.should_exit = True
    parts.console.viewers.close()
    await anyio.sleep(DRAIN_S)
    parts.desk.close()


async def _announce(
    process: Process, parts: Parts, server: Server, say: Callable[[Mapping[str, object]], None]
) -> None:
    """Say that the process is ready: it listens, and the nodes of all routes had time to come up.

    What is promised is judged then for the first time, and from then on.
    """
    await server.listening.wait()
    with anyio.move_on_after(process.settings.limits.start_ms / 1000):
        while any(_is_coming(parts.routes.closure(route)) for route in parts.routes.all):
            await anyio.sleep(LOOK_S)
    ready = {
        "ready": GATEWAY_NAME,
        "role": Role.GATEWAY.value,
        "pid": os.getpid(),
        "incarnation": process.incarnation,
        "url": process.url,
    }
    parts.gate.look()
    say(ready)
    await parts.gate.watch(process.settings.limits.beat_ms)


def _is_coming(closure: Closure | None) -> bool:
    """Whether a route that takes no requests yet may do so without anybody's doing."""
    return closure is not None and closure.by in WAITED_FOR
