"""Page by page: who followed whom, and whether the one before was gone.

    page 7:  [ alice: generation 3 ]----drain ends | [ bob: generation 4 ] ...
                                                   ^ must lie in front of the next allocation

All tenures are taken apart into pages once and sorted by page and number. Only pairs that are not
as they must be leave that pass; everything after it is about those few.
"""

from __future__ import annotations

import ibis
from ibis import Table

from kvairlock.audit.chains import LIFE_FACTOR

NEVER = 2**60
"""Where a tenure ends that has no proven end."""
PREFIX = -1
"""The generation of a row that is the end of a kept prefix."""


def page_rows(held: Table) -> Table:
    """Return a row for each page of each tenure, with the number of its allocation.

    `spot` is life and page in one number.
    """
    t = held.mutate(one=held.pages.zip(held.generations).unnest())
    return t.select(
        "given_seq",
        spot=t.life * LIFE_FACTOR + t.one["f1"],
        freed_seq=t.freed_seq.fill_null(NEVER),
        generation=t.one["f2"],
    )


def broken_pairs(held: Table, drained: Table) -> Table:
    """Return pairs of owners of one page, of which the first was not provably gone.

    Args:
        held: What `tenures.tenures` returns.
        drained: What `tenures.ends` returns.

    Returns:
        A row per pair and page: `life`, `page`, `given_seq` and `generation` of the later tenure,
        `given_before` of the earlier one, and whether the generation has `turned` between them.
    """
    stream = page_rows(held).union(_kept(held, drained))
    window = ibis.window(group_by="spot", order_by="given_seq")
    t = stream.mutate(
        freed_before=stream.freed_seq.lag().over(window),
        given_before=stream.given_seq.lag().over(window),
        generation_before=stream.generation.lag().over(window),
    )
    turned = t.generation > t.generation_before
    broken = (t.freed_before > t.given_seq) | ~turned
    t = t.filter((t.generation != PREFIX) & t.given_before.notnull() & broken)
    return t.select(
        "given_seq",
        "given_before",
        "generation",
        life=(t.spot >> 40).cast("int32"),
        page=t.spot & (LIFE_FACTOR - 1),
        turned=turned,
    )


def _kept(held: Table, drained: Table) -> Table:
    """Return the ends of pages that had left their lease as prefixes: these drains free them."""
    whole = held.filter(held.ended_seq.notnull()).select("life", "lease")
    t = drained.anti_join(whole, ["life", "lease"])
    t = t.mutate(one=t.pages.unnest())
    return t.select(
        given_seq=t.ended_seq,
        spot=t.life * LIFE_FACTOR + t.one,
        freed_seq=t.proven.ifelse(t.ended_seq, NEVER),
        generation=ibis.literal(PREFIX, "int64"),
    )
