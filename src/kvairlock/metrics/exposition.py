"""Answers to Prometheus: in its text format, or as OpenMetrics where that is asked for.

    event loop                          thread
    figures as of now --Gathering--> text of some 100 kB --> kept for a second --> answers

What is counted is read in the event loop, where it changes; the text is made in a thread, and
requests go on meanwhile. Whoever asks while a text is made, or within a second, gets that one: so
many who ask cost no more than one. Only the names of formats are taken from what a client asks for:
its parameters are not repeated to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics import exposition as openmetrics
from starlette.requests import Request
from starlette.responses import Response

from kvairlock.metrics.families import Gathering

OPENMETRICS, PLAIN = "application/openmetrics-text", "text/plain"
OPENMETRICS_TYPE = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"

KEPT_S = 1.0
"""How old an answer may be."""


def accepts_openmetrics(accept: str) -> bool:
    """Whether an `Accept` header asks for OpenMetrics, and for plain text no more than for it."""
    weights: dict[str, float] = {}
    for offer in accept.lower().split(","):
        kind, *parameters = (part.strip() for part in offer.split(";"))
        weights[kind] = _weight(parameters)
    return weights.get(OPENMETRICS, 0.0) > 0 and weights[OPENMETRICS] >= weights.get(PLAIN, 0.0)


def _weight(parameters: list[str]) -> float:
    """Return the weight among the parameters of an offer: 1 if there is none, 0 for nonsense."""
    said = next((p.removeprefix("q=") for p in parameters if p.startswith("q=")), "1")
    try:
        return float(said)
    except ValueError:
        return 0.0


def render(figures: Gathering, accept: str) -> tuple[bytes, str]:
    """Return the text of an answer and its content type.

    Args:
        figures: What is shown; the process's own figures (`process_*`) are added.
        accept: The `Accept` header; empty if there is none.
    """
    registry = CollectorRegistry()
    registry.register(figures)
    ProcessCollector(registry=registry)
    if accepts_openmetrics(accept):
        text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return text, OPENMETRICS_TYPE
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


class Exposition:
    """`GET /metrics` of one process.

    Args:
        figures: Returns what is shown, as of now; called in the event loop.
    """

    def __init__(self, figures: Callable[[], Gathering]) -> None:
        self._figures = figures
        self._turn = anyio.Lock()
        self._kept: dict[bool, tuple[float, bytes, str]] = {}
        """The last text of each format, and when its figures were read."""

    async def answer(self, request: Request) -> Response:
        """Answer one request with the format that it asks for."""
        accept = request.headers.get("accept", "")
        form = accepts_openmetrics(accept)
        async with self._turn:
            kept = self._kept.get(form)
            if kept is None or time.monotonic() - kept[0] > KEPT_S:
                read_at, figures = time.monotonic(), self._figures()
                kept = read_at, *await anyio.to_thread.run_sync(render, figures, accept)
                self._kept[form] = kept
        _, body, kind = kept
        return Response(body, headers={"content-type": kind})
