"""Who may start: a demand against a node's own measured figures, and a tenant against its share.

    demand ---> can it ever fit?  no -> CONTEXT_LENGTH, with asked and limit
                 | yes
                does the tenant keep to its share? no -> TENANT_SHARE
                 | yes
                room now?  no -> wait in the queue until the deadline
                 | the queue is full
                has a tenant two more in it? yes -> its youngest gives way: TENANT_SHARE
                 | no -> TENANT_SHARE, or CAPACITY if nobody of the tenant waits

The answer is a `Refusal` or None, never a bool: who asks must be able to tell the client why.
"""

from __future__ import annotations

from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.promise.capacity import CapacityReport, Demand
from kvairlock.core.promise.fair import FairQueue
from kvairlock.core.terms import Role


def _over(stage: Stage, what: str, asked: int, limit: int, name: str) -> Refusal:
    message = f"{what} needs {asked} tokens; this node's limit is {limit} ({name})"
    return Refusal(Reason.CONTEXT_LENGTH, stage, message, asked, limit, name)


def judge_prefill(report: CapacityReport, demand: Demand) -> Refusal | None:
    """Judge whether a prefill pool can ever hold the prompt.

    Args:
        report: The node's own report.
        demand: What the request needs.
    """
    stage = Stage.PREFILL_ADMISSION
    if demand.prompt_pages(report.page_tokens) > report.pages:
        asked, limit = demand.prompt_tokens, report.tokens
        return _over(stage, "the prompt", asked, limit, "prefill_pool_tokens")
    for group in report.groups:
        if group.pages_of(demand.prompt_tokens) > group.pages:
            asked, name = demand.prompt_tokens, f"{group.name}_tokens"
            return _over(stage, "the prompt", asked, group.tokens, name)
    if demand.prompt_tokens > report.context_tokens:
        asked, limit = demand.prompt_tokens, report.context_tokens
        return _over(stage, "the prompt", asked, limit, "model_context_tokens")
    return None


def judge_decode(report: CapacityReport, demand: Demand) -> Refusal | None:
    """Judge whether a decode pool and its landing memory can ever hold the request.

    Args:
        report: The node's own report.
        demand: What the request needs.
    """
    stage = Stage.DECODE_ADMISSION
    size = report.page_tokens
    if (refusal := _judge_pools(report, demand)) is not None:
        return refusal
    if demand.prompt_pages(size) > report.landing_pages:
        limit = report.landing_pages * size
        return _over(stage, "the prompt", demand.prompt_tokens, limit, "landing_tokens")
    asked, limit = demand.context_tokens, report.context_tokens
    if asked > limit:
        return _over(stage, "prompt plus max_tokens", asked, limit, "model_context_tokens")
    return None


def _judge_pools(report: CapacityReport, demand: Demand) -> Refusal | None:
    """Judge whether all choices fit together, in the pool and in each of its groups."""
    size = report.page_tokens
    rooms = [("decode_pool_tokens", demand.decode_pages(size), report.pages, size)]
    rooms += [
        (f"{group.name}_tokens", demand.group_pages(group), group.pages, group.page_tokens)
        for group in report.groups
    ]
    for name, needed, pages, page_tokens in rooms:
        if needed > pages:
            # In tokens: what several choices ask is rounded to whole pages, as the pool is.
            asked = demand.context_tokens if demand.choices == 1 else needed * page_tokens
            what, limit = "prompt plus max_tokens, over all choices,", pages * page_tokens
            return _over(Stage.DECODE_ADMISSION, what, asked, limit, name)
    return None


def judge(report: CapacityReport, demand: Demand) -> Refusal | None:
    """Judge a demand against a node of either role."""
    if report.role is Role.PREFILL:
        return judge_prefill(report, demand)
    return judge_decode(report, demand)


def judge_share(tenant_pages: int, asked_pages: int, limit_pages: int) -> Refusal | None:
    """Judge whether a tenant keeps to its share of landing and draining memory.

    Args:
        tenant_pages: Landing and draining pages that the tenant has now.
        asked_pages: Landing pages that the request adds.
        limit_pages: The cap for one tenant.
    """
    total = tenant_pages + asked_pages
    if total <= limit_pages:
        return None
    message = (
        f"{tenant_pages} pages of this tenant are landing or draining and {asked_pages} more are "
        f"asked; one tenant may have {limit_pages}"
    )
    stage = Stage.DECODE_ADMISSION
    return Refusal(Reason.TENANT_SHARE, stage, message, total, limit_pages, "tenant_landing_pages")


def judge_place(queue: FairQueue, tenant: str, places: int) -> Refusal | None:
    """Judge whether one more request of a tenant may wait, if need be in another tenant's place.

    A place changes hands only where that makes the lines more equal. So a tenant of whom fewer wait
    than its equal part is never refused, and nobody is pushed out in turn for who pushed out.

    Args:
        queue: Who waits.
        tenant: Who asks.
        places: Requests that may wait.
    """
    waiting = queue.waiting(tenant) + 1
    if len(queue) < places or waiting < queue.waiting(queue.longest()):
        return None
    if waiting > 1:
        return over_equal_places(queue, waiting, places)
    message = f"{len(queue)} requests wait for pages already, and no tenant has more than one"
    stage = Stage.DECODE_ADMISSION
    return Refusal(Reason.CAPACITY, stage, message, len(queue) + 1, places, "queue_max")


def over_equal_places(queue: FairQueue, waiting: int, places: int) -> Refusal:
    """Say to a tenant that its line is too long for a full queue.

    Args:
        queue: Who waits.
        waiting: Its requests that wait, or would.
        places: Requests that may wait.
    """
    each = queue.places_each(places)
    message = f"the queue is full, and {waiting} in it are this tenant's; its equal part is {each}"
    stage = Stage.DECODE_ADMISSION
    return Refusal(Reason.TENANT_SHARE, stage, message, waiting, each, "tenant_queue_places")
