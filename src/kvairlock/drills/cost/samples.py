"""What nodes hold back at one moment: memory whose request has ended, and that is not free yet.

Read from the gateway's status, as an operator sees it. What a node reported before it was lost says
nothing about now, and is not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvairlock.core.terms import Role

HELD_BACK = ("draining", "quarantined", "fenced", "scrubbed")
"""Stages of pages whose request has ended, and that nobody else can have yet."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What the nodes held back at one moment.

    Args:
        shares: The share of the pools' pages whose request had ended and that were not free, for
            each role of which a node was heard.
        windows_draining: Windows whose request had ended and that could still be written to.
    """

    shares: Mapping[Role, float]
    windows_draining: int

    @classmethod
    def of(cls, status: Mapping[str, Any]) -> Sample:
        """Read it from the gateway's status; what a node reported that is not heard is not used."""
        up = [node for node in status["nodes"].values() if node["state"] == "up"]
        pools = {role: [n["status"]["pages"] for n in up if n["role"] == role] for role in Role}
        return cls(
            shares={role: _held_back(pages) for role, pages in pools.items() if pages},
            windows_draining=sum(node["status"]["windows_draining"] for node in up),
        )


def _held_back(pools: Sequence[Mapping[str, int]]) -> float:
    held = sum(pages[stage] for pages in pools for stage in HELD_BACK)
    return held / sum(sum(pages.values()) for pages in pools)
