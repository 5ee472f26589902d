"""A node process from its settings: measure, open the books, serve until told to stop."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import anyio
import structlog

from kvairlock.core.node import LedgerBroken
from kvairlock.core.promise.capacity import CapacityReport, Cause
from kvairlock.core.protocol.decode import DecodeLimits, DecodeNode
from kvairlock.core.protocol.prefill import PrefillLimits, PrefillNode
from kvairlock.core.terms import LandingPolicy, NodeName, Peer, Role
from kvairlock.engine.model import load
from kvairlock.metrics.serving import url_of
from kvairlock.node.decode import DecodeHost
from kvairlock.node.exposing import expose, listener_for
from kvairlock.node.flawed_decode import FlawedDecode
from kvairlock.node.flawed_prefill import FlawedPrefill
from kvairlock.node.host import Equipment, Host
from kvairlock.node.measuring import (
    NodeSettings,
    landing_pages,
    measure,
    require_memory,
    windows_max,
)
from kvairlock.node.prefill import PrefillHost
from kvairlock.runtime import lifetime, threads
from kvairlock.runtime.guarding import Guarding
from kvairlock.runtime.machine import memory_free_bytes
from kvairlock.runtime.recording import Sink
from kvairlock.runtime.settings import (
    DecodeSettings,
    PrefillSettings,
    Settings,
    SettingsWrong,
)
from kvairlock.runtime.traces.opening import open_tracer
from kvairlock.sink.recorder import Recorder
from kvairlock.transport.memory import PoolMemory
from kvairlock.transport.windows import Landing
from kvairlock.wire.keys import Keyring
from kvairlock.wire.pseudonyms import Pseudonyms

log = structlog.get_logger()


def node_settings(settings: Settings, name: str) -> NodeSettings:
    """Return the table of one node.

    Raises:
        SettingsWrong: There is none of that name.
    """
    nodes: list[NodeSettings] = [*settings.prefill, *settings.decode]
    for node in nodes:
        if node.name == name:
            return node
    raise SettingsWrong(f"no [[prefill]] or [[decode]] is named {name}")


def build(equipment: Equipment, node: NodeSettings) -> Host:
    """Put one node together; must run in the event loop."""
    if isinstance(node, PrefillSettings):
        return _prefill(equipment, node)
    return _decode(equipment, node)


def _prefill(equipment: Equipment, node: PrefillSettings) -> Host:
    settings = equipment.settings
    limits = PrefillLimits(settings.limits.verdict_ms, int(node.pages * node.prefix_share))
    digest = equipment.layout.digest
    machine = PrefillNode(equipment.report, equipment.guarding.guards, limits, digest)
    kind = FlawedPrefill if settings.drill.enabled else PrefillHost
    return kind(equipment, machine, node.chunk_tokens)


def _decode(equipment: Equipment, node: DecodeSettings) -> Host:
    settings, digest = equipment.settings, equipment.layout.digest
    limits = DecodeLimits(
        queue_ms=settings.limits.queue_ms,
        prefill_ms=settings.limits.prefill_ms,
        landing_ms=settings.limits.verdict_ms,
        decode_ms=settings.limits.decode_ms,
        landing_pages=landing_pages(node),
        windows_max=windows_max(),
        queue_max=node.queue_max,
        recompute_tokens_per_min=node.recompute_tokens_per_min,
    )
    guards = equipment.guarding.guards
    machine = DecodeNode(equipment.report, guards, limits, node.landing, digest)
    bytes_max = limits.landing_pages * equipment.layout.page_bytes
    landing = Landing(equipment.memory, node.landing, bytes_max=bytes_max)
    kind = FlawedDecode if settings.drill.enabled else DecodeHost
    return kind(equipment, machine, landing, node.batch_max)


def serve(
    settings: Settings,
    name: str,
    run: Path,
    evidence: Path,
    ring: Keyring,
    pseudonyms: Pseudonyms,
) -> int:
    """Run one node until SIGTERM or until standard input ends.

    Args:
        settings: The stack's settings.
        name: Which node.
        run: Folder of the sockets.
        evidence: Folder of the evidence.
        ring: The cluster's keys.
        pseudonyms: The evidence key.

    Returns:
        The exit status.

    Raises:
        SettingsWrong: There is no such node, or its pages need more memory than there is.
        ModelMissing: The model was not fetched.
        MetricsPortTaken: Its metrics cannot be served where they were to be.
        TracingUnavailable: Traces are wanted, and what sends them is not installed.
    """
    node = node_settings(settings, name)
    role = settings.nodes[NodeName(name)]
    peer = Peer(NodeName(name), role, lifetime.fresh_incarnation())
    tracer = open_tracer(settings.tracing, peer)
    listener = listener_for(settings.metrics, node.metrics_port)
    model = load(settings.model)
    layout = model.layout(settings.page_tokens)
    require_memory(node, layout, memory_free_bytes())
    memory = PoolMemory(node.pages, layout.page_bytes, shared=_is_shared(node))
    refused = memory.lock()
    if refused:
        log.warning("pages may be swapped out; raise RLIMIT_MEMLOCK", reason=refused)
        memory.populate()
    report = measure(settings, node, model, peer)
    sink = Recorder(evidence, peer, ring, pseudonyms, settings.evidence)
    guarding = Guarding(settings, int(time.time()))
    _record_start(sink, guarding, report)
    equipment = Equipment(
        settings, report, peer, ring, model, layout, memory, sink, run, guarding, tracer
    )
    try:
        with threads.limit_blas(node.threads, len(settings.nodes)):
            log.info("node computes", model=settings.model, threads=threads.blas_threads())
            anyio.run(_run, equipment, node, listener)
    except BaseException:
        sink.close(in_order=False)
        tracer.close()
        raise
    sink.close()
    tracer.close()
    return 0


def _is_shared(node: NodeSettings) -> bool:
    return isinstance(node, DecodeSettings) and node.landing is LandingPolicy.DIRECT


def _record_start(sink: Sink, guarding: Guarding, report: CapacityReport) -> None:
    sink.record(
        "node_started",
        None,
        {
            "pool_pages": report.pages,
            "fingerprint": report.fingerprint,
            **guarding.stated(report.node),
        },
    )
    for event, fields in guarding.at_start:
        sink.record(event, None, fields)
    sink.record("capacity_reported", None, report.figures(Cause.START))


async def _run(equipment: Equipment, node: NodeSettings, listener: socket.socket | None) -> None:
    host = build(equipment, node)
    dials: dict[NodeName, Path] = {}
    if equipment.peer.role is Role.DECODE:
        names = [NodeName(prefill.name) for prefill in equipment.settings.prefill]
        dials = {name: equipment.run / f"{name}.sock" for name in names}
    broken: LedgerBroken | None = None
    async with anyio.create_task_group() as tasks:

        async def until_stopped() -> None:
            await lifetime.stop_requested()
            host.points.release_all()
            tasks.cancel_scope.cancel()

        tasks.start_soon(until_stopped)
        if listener is not None:
            tasks.start_soon(expose, listener, equipment.peer, host.status)
        try:
            await host.run(dials, lambda: _say_ready(equipment, listener))
        except LedgerBroken as error:
            broken = error
            tasks.cancel_scope.cancel()
    if broken is not None:
        raise broken


def _say_ready(equipment: Equipment, listener: socket.socket | None) -> None:
    lifetime.say_ready(
        {
            "ready": equipment.peer.node,
            "role": equipment.peer.role,
            "pid": os.getpid(),
            "incarnation": equipment.peer.incarnation,
            "tokens": equipment.report.tokens,
            "metrics": None if listener is None else url_of(listener),
        }
    )
