"""How a node would judge a request, said without one: for limits that no request can meet.

    Rehearse --> the same judgement that admission makes, figures and guards of now --> Rehearsed

Prefill is asked only for what decode has taken. Where decode holds less, a request over prefill's
limit never gets there, and whether prefill would refuse it is known only by asking.
"""

from __future__ import annotations

from kvairlock.core.effects import Send
from kvairlock.core.messages import Rehearse, Rehearsed
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.protocol.ledger import Ledger
from kvairlock.core.terms import Owner, Peer, TransferId


def rehearse(books: Ledger, peer: Peer, asked: Rehearse) -> None:
    """Answer how a request would be judged.

    Args:
        books: Those of the node that is asked.
        peer: Who asks.
        asked: The size of the request, and the other node of its route.
    """
    demand = Demand(asked.prompt_tokens, asked.max_tokens, asked.choices)
    owner = Owner.named("", TransferId(asked.name))
    refusal = books.judge_size(books.route_with(asked.partner), owner, demand)
    books.counters["rehearsed"] += 1
    books.out.append(Send(peer.node, Rehearsed(asked.name, refusal)))
