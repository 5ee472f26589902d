"""Which pages were read under which check: a figure, counted at each step.

    all guards of the route enforced all the time, and the page was
        digested                        VERIFIED
        sampled out                     BY_GENERATION
        computed by this node itself    LOCAL
    a guard observed at some time       OBSERVED
    a guard was disabled                UNCOVERED

Pages of prompts are counted, which is what crosses between nodes. What a guard let pass once it
let pass for good: the reads of a request stay observed, also after the guard enforces again.
"""

from __future__ import annotations

from kvairlock.core.checks import Cover
from kvairlock.core.guards import GuardMode
from kvairlock.core.protocol.decode.reception import Reception
from kvairlock.core.protocol.decode.state import DecodeState

WEAKNESS = {mode: rank for rank, mode in enumerate(GuardMode)}
UNVOUCHED = {GuardMode.OBSERVING: Cover.OBSERVED, GuardMode.DISABLED: Cover.UNCOVERED}


def weaken(node: DecodeState, reception: Reception) -> GuardMode:
    """Note how the weakest guard of a request's route is set; return the weakest of all times."""
    now = node.books.guards.weakest(node.route_of(reception))
    reception.weakest = max(reception.weakest, now, key=WEAKNESS.__getitem__)
    return reception.weakest


def count_reads(node: DecodeState, reception: Reception) -> None:
    """Count the prompt pages that a step reads for a request, by what vouches for them."""
    route, reads, mode = node.route_of(reception), node.books.reads, weaken(node, reception)
    pages = reception.demand.prompt_pages(node.books.report.page_tokens)
    verified = len(reception.verified)
    if mode is not GuardMode.ENFORCING:
        reads[route, UNVOUCHED[mode]] += pages
    elif reception.reserved is not None and reception.reserved.transfer is None:
        reads[route, Cover.LOCAL] += pages
    else:
        reads[route, Cover.VERIFIED] += verified
        reads[route, Cover.BY_GENERATION] += pages - verified
