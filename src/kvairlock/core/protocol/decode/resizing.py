"""A decode node is given more pages or fewer while it serves: who waits is judged again.

    Resize --> report with a higher epoch --> who waits and can never fit: CONTEXT_LENGTH, now
                                              who runs: finishes, and its pages are withdrawn then

Nobody waits for a deadline behind, or as, a request that the new figures rule out.
"""

from __future__ import annotations

from kvairlock.core.protocol.decode.ending import finish
from kvairlock.core.protocol.decode.state import DecodeState
from kvairlock.core.terms import Instant


def resized(node: DecodeState, pages: int, now: Instant) -> None:
    """Let requests have another number of pages, and end those that wait for what never comes.

    Args:
        node: The node.
        pages: How many pages requests may have from now on.
        now: When it was told.
    """
    if not node.books.resize(pages):
        return
    waiting = [r for r in node.receptions.values() if r.name in node.queue]
    for reception in waiting:
        if (refusal := node.judge_size(reception)) is not None:
            finish(node, reception, refusal, now)
