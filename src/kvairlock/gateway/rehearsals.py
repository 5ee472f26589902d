"""Questions to nodes how they would judge a request, and the answers that come.

    asking -> Rehearse ---- node ----> Rehearsed -> whoever asked
                                       to nothing that was asked of this node: nobody

An answer belongs to one question and to the node that was asked; another node can't give it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvairlock.core.messages import Rehearsed
from kvairlock.core.terms import NodeName
from kvairlock.gateway.mailbox import Mailbox

Answers = Mailbox[Rehearsed]


class Rehearsals:
    """The questions that are open."""

    def __init__(self) -> None:
        self._open: dict[tuple[NodeName, str], Answers] = {}

    @contextmanager
    def asking(self, node: NodeName, name: str) -> Iterator[Answers]:
        """Keep a question open, and give where its answer arrives.

        Args:
            node: Who is asked.
            name: The question's name, fresh.
        """
        self._open[node, name] = arrives = Mailbox[Rehearsed]()
        try:
            yield arrives
        finally:
            del self._open[node, name]

    def heard(self, node: NodeName, answer: Rehearsed) -> None:
        """Take an answer of a node; what nobody asks for any more is dropped.

        Args:
            node: Who says it.
            answer: What it says.
        """
        arrives = self._open.get((node, answer.name))
        if arrives is not None:
            arrives.put(answer)
