"""An operator gives a node of a joined world pages, or takes them away."""

from __future__ import annotations

from typing import Any

from kvairlock.core.events import Told
from kvairlock.core.messages import Resize
from tests.core.ends_engine import PromptHost
from tests.core.ends_parts import GATEWAY


def resize(host: PromptHost, pages: int) -> None:
    """Tell a node how many pages requests may have."""
    host.tell(Told(GATEWAY, Resize(pages)))


def reports(host: PromptHost) -> list[dict[str, Any]]:
    """What a node has recorded of its own figures."""
    return [dict(r.fields) for r in host.records if r.event == "capacity_reported"]


def fits(host: PromptHost) -> bool:
    """Whether a pool has no more pages in use than it is to have."""
    pool = host.node.machine.books.pool
    return pool.pages_surplus == 0
