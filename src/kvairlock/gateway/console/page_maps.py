"""The pages of all nodes as they tell of them, for as long as somebody looks.

    Watch(view) -> node          the gateway makes the name of the view
    PageMap(view, 0), 1, 2 ...   each changes what is known; a gap ends the view, another one begins
    the node is lost             nothing is known of its pages any more

What a node says about its pages is shown to people and decides nothing. Still it is checked like
everything that a peer says: a map that contradicts itself closes the channel.

The age of a page is what was seen here: how long ago its stage or its generation changed. Before
the view began nobody looked, so a page that has not changed since is at least as old as the view.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.errors import Misuse, PeerMisbehaved, Reason
from kvairlock.core.memory.page_map import UNTOLD, Packed, Stages, unpack
from kvairlock.core.messages import PageMap, Watch
from kvairlock.core.terms import NS_PER_MS, Generations, Instant, NodeName, Pages
from kvairlock.runtime import clock

LEASE_MS = 3_000
EVERY_MS = 250
"""Four maps a second: each is a few changed spans, and more could hardly be followed."""

POOL_PAGES_MAX = 4_194_304
"""Of one node that is kept here: 17 bytes each. A larger pool has no map."""

AGE_MS_MAX = 2**32 - 1


def _fresh_name() -> str:
    return secrets.token_hex(8)


@dataclass(slots=True)
class NodePages:
    """What is known of one node's pages.

    Args:
        view: The name under which the node tells of them.
        began: When the first map came.
        stage: The stage of each page, or -1 if it was not told yet, shape (pool_pages,).
        generation: Its content counter, likewise.
        changed: When either was last seen to change, likewise.
    """

    view: str
    began: Instant
    stage: Stages
    generation: Generations
    changed: NDArray[np.int64]

    @classmethod
    def unknown(cls, view: str, pool_pages: int, now: Instant) -> NodePages:
        """Return a view of so many pages of which nothing was told yet."""
        return cls(
            view,
            now,
            np.full(pool_pages, UNTOLD, np.int8),
            np.full(pool_pages, UNTOLD, np.int64),
            np.full(pool_pages, now, np.int64),
        )

    def ages_ms(self, pages: Pages, now: Instant) -> NDArray[np.uint32]:
        """Return how long ago each of some pages changed, in milliseconds."""
        elapsed = (now - self.changed[pages]) // NS_PER_MS
        return elapsed.clip(0, AGE_MS_MAX).astype("<u4")


@dataclass(slots=True)
class _View:
    """What the gateway asks one node for."""

    name: str = field(default_factory=_fresh_name)
    number: int = 0
    pages: NodePages | None = None
    why_none: str = ""


class PageMaps:
    """The page maps of all nodes.

    Args:
        nodes: Names of the nodes.
        now: Tells the time.
    """

    def __init__(self, nodes: Iterable[NodeName], now: Callable[[], Instant] = clock.now) -> None:
        self._views = {name: _View() for name in nodes}
        self._now = now

    def __getitem__(self, node: NodeName) -> NodePages | None:
        """Return what is known of a node's pages; None if that is nothing."""
        return self._views[node].pages

    def why_none(self, node: NodeName) -> str:
        """Return why there will never be anything; empty if there is, or is to come."""
        return self._views[node].why_none

    def watch(self, node: NodeName, lease_ms: int = LEASE_MS) -> Watch:
        """Return how a node is asked to tell of its pages, or to go on, or to end."""
        view = self._views[node]
        return Watch(view.name, 0 if view.why_none else lease_ms, EVERY_MS)

    def forget(self, node: NodeName) -> None:
        """Take for unknown what was told: the node is lost, or nobody looks any more."""
        self._views[node] = _View()

    def heard(self, node: NodeName, said: PageMap) -> None:
        """Take a map; one of a view that is over is dropped.

        Args:
            node: Who says it.
            said: What it says.

        Raises:
            PeerMisbehaved: It contradicts itself or the one before.
        """
        view = self._views[node]
        if said.view != view.name:
            return
        if said.number != view.number:
            self.forget(node)
            return
        view.number += 1
        self._apply(view, said)

    def _apply(self, view: _View, said: PageMap) -> None:
        pages = view.pages
        known = said.pool_pages if pages is None else len(pages.stage)
        if said.pool_pages > POOL_PAGES_MAX and pages is None:
            view.why_none = f"more than {POOL_PAGES_MAX:,} pages"
            return
        if said.pool_pages != known or known < 1:
            raise PeerMisbehaved(Reason.MALFORMED, f"a page map of {said.pool_pages} pages")
        try:
            packed = Packed(said.spans, said.stages, said.generations)
            changes = unpack(packed, said.pool_pages, said.rest)
        except Misuse as error:
            raise PeerMisbehaved(Reason.MALFORMED, str(error)) from None
        now = self._now()
        if pages is None:
            pages = view.pages = NodePages.unknown(view.name, said.pool_pages, now)
        told_before = changes.pages[pages.stage[changes.pages] != UNTOLD]
        pages.changed[told_before] = now
        pages.stage[changes.pages] = changes.stages
        pages.generation[changes.pages] = changes.generations
