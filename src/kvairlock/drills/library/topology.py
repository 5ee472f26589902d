"""The stack that a drill needs, as settings of `kvairlock serve`."""

from __future__ import annotations

import msgspec

from kvairlock.core.guards import Guard
from kvairlock.core.terms import LandingPolicy
from kvairlock.drills.library.steps import Size

LOST_MS = 10_000
"""A node that stands still for a drill is not lost by it."""

NEVER = 1_000_000
"""What one drill provokes must not close the route to the next."""


class Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The stack that a drill needs; nodes are called prefill-0, prefill-1, decode-0 and so on.

    Args:
        prefill_pages: Pages of each prefill node.
        decode_pages: Pages of each decode node.
        context_tokens: The context window that the gateway is configured to publish.
        landing: Landing policy of the decode nodes.
        landing_pages: Pages that windows may take; 0 for as many as the pool has.
        tenant_share: What of them one tenant may take.
        prefix_share: What of prefill's pages finished prefixes may keep; they stay with the stack.
        queue_ms: Longest wait for pages.
        verdict_ms: Longest wait of prefill for the verdict.
    """

    prefill_pages: tuple[Size, ...] = (64,)
    decode_pages: tuple[Size, ...] = (64,)
    context_tokens: Size = 1024
    landing: LandingPolicy = LandingPolicy.COPY
    landing_pages: int = 0
    tenant_share: float = 1.0
    prefix_share: float = 0.0
    queue_ms: Size = 10_000
    verdict_ms: Size = 10_000

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of its nodes."""
        prefills = (f"prefill-{number}" for number in range(len(self.prefill_pages)))
        return (*prefills, *(f"decode-{number}" for number in range(len(self.decode_pages))))

    @property
    def routes(self) -> tuple[str, ...]:
        """The names of its routes."""
        return tuple(
            f"{prefill}/{decode}"
            for prefill in self.nodes[: len(self.prefill_pages)]
            for decode in self.nodes[len(self.prefill_pages) :]
        )

    def settings(self, off: frozenset[Guard]) -> str:
        """Return the TOML of the stack with some guards off."""
        names = ", ".join(f'"{guard}"' for guard in sorted(off))
        nodes = [self._prefill(*named) for named in enumerate(self.prefill_pages)]
        nodes += [self._decode(*named) for named in enumerate(self.decode_pages)]
        return f"""
[gateway]
port = 0

[commitment]
context_tokens = {self.context_tokens}

[breaker]
failures = {NEVER}
violations = {NEVER}

[retries]
attempts_max = 1
{"".join(nodes)}
[limits]
beat_ms = 50
lost_ms = {LOST_MS}
queue_ms = {self.queue_ms}
verdict_ms = {self.verdict_ms}

[drill]
enabled = true
guards_off = [{names}]
"""

    def _prefill(self, number: int, pages: int) -> str:
        return f"""
[[prefill]]
name = "prefill-{number}"
pages = {pages}
prefix_share = {self.prefix_share}
"""

    def _decode(self, number: int, pages: int) -> str:
        return f"""
[[decode]]
name = "decode-{number}"
pages = {pages}
landing = "{self.landing}"
landing_pages = {self.landing_pages}
tenant_share = {self.tenant_share}
"""
