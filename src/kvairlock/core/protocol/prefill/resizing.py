"""A prefill node is given more pages or fewer while it serves: whose prompt waits is judged again.

Kept prefixes make way before prompts do: those that nobody reads are let go as long as the pool has
more pages than it is to have.
"""

from __future__ import annotations

from kvairlock.core.errors import Refusal
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.protocol.prefill.job import Job
from kvairlock.core.protocol.prefill.state import PrefillState
from kvairlock.core.terms import TransferId


def resized(node: PrefillState, pages: int) -> list[tuple[TransferId, Refusal]]:
    """Let prompts have another number of pages.

    Args:
        node: The node.
        pages: How many pages prompts and prefixes may have from now on.

    Returns:
        The prompts that wait and can never be computed here any more, each with the reason.
    """
    if not node.books.resize(pages):
        return []
    judged = [(name, _judge(node, node.jobs[name])) for name in node.queue]
    return [(name, refusal) for name, refusal in judged if refusal is not None]


def _judge(node: PrefillState, job: Job) -> Refusal | None:
    """Judge a prompt by what is to be computed of it."""
    route = node.books.route_with(job.asked.decode.node)
    return node.books.judge_size(route, job.owner, Demand(job.stop, 0))
