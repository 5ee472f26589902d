"""What the endpoints of one gateway share."""

from __future__ import annotations

from dataclasses import dataclass

from kvairlock.gateway.asked import Offer
from kvairlock.gateway.breakers import Breakers
from kvairlock.gateway.console.console import Console
from kvairlock.gateway.desk import Desk
from kvairlock.gateway.drill_marks import DrillMarks
from kvairlock.gateway.gate import Gate
from kvairlock.gateway.keys import ApiKeys
from kvairlock.gateway.metrics import Meter
from kvairlock.gateway.nodes import Nodes
from kvairlock.gateway.parsers import Parsers
from kvairlock.gateway.retries import Retries
from kvairlock.gateway.routes import Routes
from kvairlock.gateway.tally import Tally
from kvairlock.runtime.guarding import Guarding
from kvairlock.runtime.recording import Sink
from kvairlock.runtime.settings import Settings
from kvairlock.runtime.traces.tracer import Tracer


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a running gateway.

    Args:
        settings: The stack's settings.
        offer: What is served.
        keys: Who is served.
        routes: What can serve it.
        breakers: What is known against routes.
        tally: What clients did wrong, by tenant.
        gate: Whether what is promised is held.
        guarding: How guards are set.
        nodes: The channels to the nodes.
        desk: The requests in flight.
        meter: The metrics.
        retries: What may be tried a second time.
        evidence: Where isolation events are recorded.
        parsers: Where large bodies are understood.
        marks: Which drills are on.
        console: What those share who look at it.
        tracer: Where spans go.
    """

    settings: Settings
    offer: Offer
    keys: ApiKeys
    routes: Routes
    breakers: Breakers
    tally: Tally
    gate: Gate
    guarding: Guarding
    nodes: Nodes
    desk: Desk
    meter: Meter
    retries: Retries
    evidence: Sink
    parsers: Parsers
    marks: DrillMarks
    console: Console
    tracer: Tracer
