"""The stack of a cost run: two routes of equal nodes, sized by how many requests come at one time.

What one route loses has another one to go to, and what is killed is started again. The decode pools
hold as many of the largest requests as come at one time, and twice as many may wait. No breaker
opens: one that did would close a route for all later loads.
"""

from __future__ import annotations

from kvairlock.drills.cost.loads import CONTEXT_TOKENS

PAGE_TOKENS = 16
REQUEST_PAGES = -(-CONTEXT_TOKENS // PAGE_TOKENS)
QUEUE_MS = 500
"""Short, so that a stack with too much to do says so instead of making everybody wait."""

BEAT_MS = 100
LOST_MS = 2_000
STOP_MS = 2 * LOST_MS


def settings(concurrency: int) -> str:
    """Return the TOML of the stack.

    Args:
        concurrency: How many requests its decode pools hold.
    """
    each = max(2, -(-concurrency // 2))
    prefill = (_prefill(number, concurrency * REQUEST_PAGES) for number in (0, 1))
    decode = (_decode(number, each * REQUEST_PAGES, 2 * each) for number in (0, 1))
    return f"""
restart = true
page_tokens = {PAGE_TOKENS}

[gateway]
port = 0

[commitment]
context_tokens = {CONTEXT_TOKENS}

[breaker]
failures = 1000
violations = 1000

[limits]
queue_ms = {QUEUE_MS}
beat_ms = {BEAT_MS}
lost_ms = {LOST_MS}
{"".join(prefill)}{"".join(decode)}"""


def _prefill(number: int, pages: int) -> str:
    return f"""
[[prefill]]
name = "prefill-{number}"
pages = {pages}
"""


def _decode(number: int, pages: int, queue_max: int) -> str:
    return f"""
[[decode]]
name = "decode-{number}"
pages = {pages}
queue_max = {queue_max}
"""
