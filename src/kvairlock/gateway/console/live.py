"""`GET /console/live`: one stream of events for one viewer, as long as its key is good.

    hello    how stages are numbered
    pages    one node's pages: the first of a map (`whole`), or those that changed since
    unknown  nothing is known of a node's pages any more
    figures  everything else, whenever something of it changed
    sign     nothing else had to be said for a second
    end      why the stream ends

Nothing is queued for anybody. Each viewer has its own views of what the gateway knows, and is told
the difference whenever it has read what came before: who reads slowly gets fewer and larger
differences, and who does not read at all is dropped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kvairlock.core.memory.page import PageStage
from kvairlock.core.memory.page_map import Changes, PageView
from kvairlock.core.terms import NS_PER_MS, NodeName
from kvairlock.gateway.auth import authenticate, require_operator
from kvairlock.gateway.bodies import while_connected
from kvairlock.gateway.console.figures import figures
from kvairlock.gateway.console.page_maps import EVERY_MS, NodePages
from kvairlock.gateway.console.shell import HEADERS
from kvairlock.gateway.errors import Refused
from kvairlock.gateway.parts import Parts
from kvairlock.runtime import clock

FIGURES_EVERY = 2
"""Figures are looked at with every second map: twice a second."""

SIGN_EVERY = 4
"""Something is sent at least once a second, so that silence means something."""

STALLED_S = 10.0
"""How long one event may take to be read before its reader is dropped."""

PAGES_MAX = 131_072
"""In one event: 2.3 MB as text."""


class Live(Response):
    """The response: events until the viewer leaves, stalls, loses its key, or the gateway stops."""

    media_type = "text/event-stream"

    def __init__(self, parts: Parts, request: Request) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._parts, self._request = parts, request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        with self._parts.console.viewers.one_more():
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await while_connected(receive, lambda: self._tell(send))

    async def _tell(self, send: Send) -> None:
        async for chunk in self._chunks():
            with anyio.move_on_after(STALLED_S) as scope:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if scope.cancelled_caught:
                return  # without an end: the connection is closed, and given up (BoundedHead)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self) -> AsyncIterator[bytes]:
        story = Story(self._parts, self._why_over)
        while True:
            chunk = b"".join(event(name, told) for name, told in story.next())
            if chunk:
                yield chunk
            if story.is_over:
                return
            with anyio.move_on_after(EVERY_MS / 1000):
                await self._parts.console.viewers.closed.wait()

    def _why_over(self) -> str:
        if self._parts.console.viewers.closed.is_set():
            return "the gateway is stopping"
        try:
            require_operator(authenticate(self._request.headers, self._parts.keys))
        except Refused as refused:
            return refused.error.message
        return ""


def event(name: str, told: Any) -> bytes:
    """Return an event as it is sent; bytes in it become base64."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(told))


class Story:
    """What one viewer was told, and so what it is told next.

    Args:
        parts: Where all of it comes from.
        why_over: Says why the viewer may see no more; empty if it may.
    """

    def __init__(self, parts: Parts, why_over: Callable[[], str]) -> None:
        self._parts, self._why_over = parts, why_over
        self._views: dict[NodeName, tuple[str, PageView]] = {}
        self._figures: dict[str, Any] = {}
        self._turn = 0
        self.is_over = False

    def next(self) -> Iterator[tuple[str, Any]]:
        """Return the next events, each with its name."""
        turn, self._turn = self._turn, self._turn + 1
        if turn % FIGURES_EVERY == 0 and (why := self._why_over()):
            self.is_over = True
            yield "end", {"why": why}
            return
        if turn == 0:
            yield "hello", {"stages": [stage.name.lower() for stage in PageStage]}
        if turn % FIGURES_EVERY == 0:
            yield from self._changed_figures()
        for node in self._parts.routes.nodes:
            yield from self._pages(node)
        if turn % SIGN_EVERY == 0:
            yield "sign", {}

    def _changed_figures(self) -> Iterator[tuple[str, Any]]:
        """Tell the sections that changed: most of them change seldom."""
        now = self._parts.console.figures(lambda: figures(self._parts))
        changed = {name: told for name, told in now.items() if self._figures.get(name) != told}
        self._figures = now
        if changed:
            yield "figures", changed

    def _pages(self, node: NodeName) -> Iterator[tuple[str, Any]]:
        known, told, extent = self._parts.console.maps[node], self._views.get(node), "changes"
        if known is None:
            if self._views.pop(node, None) is not None:
                yield "unknown", {"node": node}
            return
        if told is None or told[0] != known.view:
            extent = "whole"
            told = self._views[node] = known.view, PageView(len(known.stage))
        changes = told[1].changes(known.stage, known.generation, PAGES_MAX)
        if extent == "whole" or changes:
            yield "pages", _told(node, known, changes, extent)


def _told(node: NodeName, known: NodePages, changes: Changes, extent: str) -> dict[str, Any]:
    """Return pages as they are sent; a page whose stage is not known yet has stage -1."""
    packed, now = changes.pack(), clock.now()
    return {
        "node": node,
        "extent": extent,
        "pool_pages": len(known.stage),
        "watched_ms": (now - known.began) // NS_PER_MS,
        "spans": packed.spans,
        "stages": packed.stages,
        "generations": packed.generations,
        "ages_ms": known.ages_ms(changes.pages, now).tobytes(),
    }
