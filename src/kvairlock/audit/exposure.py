"""Who was exposed to whom: whose pages an affected request could have read.

A request that read more than was written for it has read what was there before: the content of the
tenure in front of its own, page by page. Pages that it met in other ways (of a next owner, of
somebody else's lease) are sightings already.
"""

from __future__ import annotations

from ibis import Table

from kvairlock.audit.chains import LIFE_FACTOR
from kvairlock.audit.successions import page_rows


def former_owners(affected: Table, held: Table) -> Table:
    """Return whose tenure was in front of those of affected requests on decode, page by page.

    Args:
        affected: Requests and the life of their decode node.
        held: What `tenures.tenures` returns.

    Returns:
        `request`, `other`, `life`, `page`, and the `generation` in which the other had it.
    """
    own = held.semi_join(affected.rename(life="decode_life"), ["request", "life"])
    pages = page_rows(own).select("spot", from_seq="given_seq")
    named = own.select("life", "request", from_seq=own.given_seq)
    pages = pages.mutate(life=(pages.spot >> 40).cast("int32"))
    pages = pages.join(named, ["life", "from_seq"])
    before = page_rows(held.semi_join(own.select("life").distinct(), "life"))
    before = before.semi_join(pages.select("spot").distinct(), "spot")
    before = before.select("spot", "given_seq", "generation")
    t = pages.join(before, "spot").filter(lambda t: t.given_seq < t.from_seq)
    last = t.group_by("request", "life", "spot", "from_seq").aggregate(
        given_seq=t.given_seq.max(), generation=t.generation.argmax(t.given_seq)
    )
    owners = held.select("life", "given_seq", other="request")
    t = last.join(owners, ["life", "given_seq"])
    t = t.filter(t.other != t.request)
    return t.select(
        "request", "other", "life", page=t.spot & (LIFE_FACTOR - 1), generation=t.generation
    )
