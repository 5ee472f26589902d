"""One check: everybody is asked, then what is promised is judged by what they hold.

    deployment ---> each gateway, each engine: reports, what it advertises --+
                                                                            v
                    routes <--- [[route]], or the gateway's own ---> judge ---> findings

Whoever does not answer, or not in a way that can be believed, is a finding and no end of the check:
the others are still judged. All are asked at the same time, so that one that is silent costs its
time-out once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from kvairlock.check import embedded, sglang, vllm
from kvairlock.check.deployment import Deployment, EngineAddress, EngineKind, GatewayAddress
from kvairlock.check.embedded import Front
from kvairlock.check.findings import Findings
from kvairlock.check.reading import NodeKind, Reading, over_held, unreported
from kvairlock.core.promise.commitment import RouteReports, RouteState, published_tokens
from kvairlock.core.promise.violations import (
    Violation,
    ViolationKind,
    concurrency_held,
    judge,
)
from kvairlock.core.terms import NodeName
from kvairlock.runtime.asking import Asker, NoAnswer

ASKED_AT_ONCE_MAX = 16
NOT_ALLOWED = frozenset({401, 403})
NO_OPERATOR = "; it wants an operator's key: `kvairlock keys add NAME --operator` makes one"

READERS: dict[EngineKind, Callable[[EngineAddress, Asker], Reading]] = {
    EngineKind.VLLM: vllm.read,
    EngineKind.SGLANG: sglang.read,
}
"""How each kind of engine is read."""


def check(deployment: Deployment, folder: Path) -> Findings:
    """Ask all nodes of a deployment, and judge what is promised by what they hold.

    Args:
        deployment: What is promised, and who must hold it.
        folder: Where relative paths of key files start.

    Raises:
        DeploymentWrong: A key cannot be used; nobody was asked then.
    """
    gateways = [(gateway, gateway.key(folder)) for gateway in deployment.gateway]
    engines = [(engine, engine.key(folder)) for engine in deployment.engine]
    with ThreadPoolExecutor(ASKED_AT_ONCE_MAX) as pool:
        fronts = pool.map(lambda one: _ask_gateway(*one), gateways)
        readings = pool.map(lambda one: _ask_engine(*one), engines)
        return judged(deployment, list(fronts), list(readings))


def judged(
    deployment: Deployment, fronts: Sequence[Front | Violation], engines: Sequence[Reading]
) -> Findings:
    """Judge what was found.

    Args:
        deployment: What is promised.
        fronts: The gateways, or why one could not be read.
        engines: The engines.
    """
    commitment = deployment.commitment.promised
    found = [front for front in fronts if isinstance(front, Front)]
    readings = (*(reading for front in found for reading in front.readings), *engines)
    routes = (*(r for front in found for r in front.routes), *_pairs(deployment, engines))
    own = [front for front in fronts if isinstance(front, Violation)]
    for front in found:
        own += [*front.violations, *embedded.publishing(front, commitment)]
    for engine in engines:
        own += [*engine.violations, *over_held(engine)]
    return Findings(
        commitment=commitment,
        fronts=tuple(found),
        readings=readings,
        routes=routes,
        published_tokens=published_tokens(commitment, routes),
        together=concurrency_held(commitment, routes),
        violations=(*own, *_not_yet(own, judge(commitment, routes))),
        warnings=tuple(_warnings(found, engines, routes)),
    )


def _ask_gateway(gateway: GatewayAddress, key: str | None) -> Front | Violation:
    try:
        with Asker(gateway.url, key) as asker:
            return embedded.read(gateway.name, asker)
    except NoAnswer as missing:
        name = NodeName(gateway.name or embedded.GATEWAY)
        advice = NO_OPERATOR if missing.status in NOT_ALLOWED else ""
        return Violation(ViolationKind.UNREPORTED, f"{name}: {missing}{advice}", node=name)


def _ask_engine(engine: EngineAddress, key: str | None) -> Reading:
    try:
        with Asker(engine.url, key) as asker:
            return READERS[engine.kind](engine, asker)
    except NoAnswer as missing:
        kind = NodeKind(engine.kind)
        return unreported(NodeName(engine.name), engine.plays, kind, str(missing))


def _pairs(deployment: Deployment, engines: Sequence[Reading]) -> Iterator[RouteReports]:
    stated = {engine.node: engine.stated for engine in engines}
    for route in deployment.engine_routes:
        yield RouteReports(stated[route.prefill], stated[route.decode], RouteState.UP)


def _not_yet(own: Sequence[Violation], more: Sequence[Violation]) -> Iterator[Violation]:
    """Yield the violations of which the same was not found, and explained, before."""
    silent = {v.node for v in own if v.kind is ViolationKind.UNREPORTED}
    closed = any(v.kind is ViolationKind.NO_ROUTE for v in own)
    for violation in more:
        known = violation.kind is ViolationKind.UNREPORTED and violation.node in silent
        if not known and not (closed and violation.kind is ViolationKind.NO_ROUTE):
            yield violation


def _warnings(
    fronts: Sequence[Front], engines: Sequence[Reading], routes: Sequence[RouteReports]
) -> Iterator[str]:
    yield from chain(*(front.warnings for front in fronts), *(e.warnings for e in engines))
    routed = {node for route in routes for node in (route.prefill.node, route.decode.node)}
    for engine in engines:
        if engine.node not in routed:
            yield f"{engine.node} is in no route"
