"""One answer to Prometheus: in its text format, or as OpenMetrics where that is asked for.

    event loop                          thread
    figures as of now --Gathering--> text of some 100 kB --> answer

What is counted is read in the event loop, where it changes; the text is made in a thread, and
requests go on meanwhile. Only the names of formats are taken from what a client asks for: its
parameters are not repeated to it.
"""

from __future__ import annotations

import anyio
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics import exposition as openmetrics
from starlette.requests import Request
from starlette.responses import Response

from kvairlock.metrics.families import Gathering

OPENMETRICS = "application/openmetrics-text"
OPENMETRICS_TYPE = f"{OPENMETRICS}; version=1.0.0; charset=utf-8"


def accepts_openmetrics(accept: str) -> bool:
    """Whether an `Accept` header asks for OpenMetrics, with a weight over 0."""
    return any(_is_openmetrics(offer) for offer in accept.lower().split(","))


def _is_openmetrics(offer: str) -> bool:
    kind, *parameters = (part.strip() for part in offer.split(";"))
    return kind == OPENMETRICS and "q=0" not in parameters


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


async def answer(request: Request, figures: Gathering) -> Response:
    """Answer one `GET /metrics`.

    Args:
        request: What was asked.
        figures: What is shown.
    """
    accept = request.headers.get("accept", "")
    body, kind = await anyio.to_thread.run_sync(render, figures, accept)
    return Response(body, headers={"content-type": kind})
