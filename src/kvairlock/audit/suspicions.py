"""The few places where pages met two requests: who it was, which pages, and what it means.

Everything here starts from what a pass over all records has sorted out: pairs of owners of which
the first was not provably gone, reads of pages that the reader did not have, copies of writes that
ran again, prefixes. Each becomes a *sighting*: a request, a fact about it, and, where it is known,
the other request with page and generation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag

import ibis
from ibis import Table

from kvairlock.audit.chains import LIFE_FACTOR, ROLES, is_a
from kvairlock.audit.successions import page_rows
from kvairlock.audit.tenures import strays
from kvairlock.core.terms import Role


class Fact(IntFlag):
    """What pages say about a request; a row of the audit has any of them together."""

    USED_AFTER_GIVEN_ON = 1
    """It used a page that was another's by then."""
    SHARED_WITH_FORMER = 2
    """It was given a page that its former owner still had."""
    FORMER_UNACCOUNTED = 4
    """It was given a page whose former owner is not proven to be gone."""
    GENERATION_REUSED = 8
    """It was given a page whose generation had not turned."""
    WRITTEN_BY_FORMER = 16
    """It was given a page of a pool into which its former owner's writer could still store."""
    READ_FOREIGN = 32
    """It read pages that it did not have, and that are another's."""
    READ_UNKNOWN = 64
    """It read pages that nobody is recorded to have had."""
    WRITTEN_AFTER_FENCE = 128
    """Its pages were stored into after their window was fenced."""
    PREFIX_GIVEN_ON = 256
    """It took a prefix from pages that had been given to another since."""
    PREFIX_UNKNOWN = 512
    """It took a prefix from pages that nobody is recorded to have computed."""
    PREFIX_ACROSS_SCOPES = 1024
    """It took a prefix that was computed for another scope than its own."""
    PREFIX_UNSCOPED = 2048
    """It took a prefix, and for whom that was computed is not recorded."""
    READ_UNALLOCATED = 4096
    """It had pages, and read others, that nobody is recorded to have had."""


SIGHTING = ibis.schema(
    {
        "request": "string",
        "other": "string",
        "fact": "int64",
        "life": "int32",
        "page": "int64",
        "generation": "int64",
    }
)
_KEY = ("life", "page", "given_seq")


@dataclass(frozen=True, slots=True)
class Worth:
    """Where there is anything to look for: looking costs as much as another pass over all pages.

    Args:
        pairs: How many pairs of owners are not as they must be.
        strays: How many reads are not of the reader's own pages.
        prefixes: How often a prefix was reused.
        direct: Numbers of lives into whose pool others could store.
    """

    pairs: int
    strays: int
    prefixes: int
    direct: tuple[int, ...]


def sightings(records: Table, told: Table, held: Table, pairs: Table, worth: Worth) -> Table:
    """Return all sightings.

    Args:
        records: The wide table.
        told: What `chains.of_requests` returns.
        held: What `tenures.tenures` returns.
        pairs: What `successions.broken_pairs` returns.
        worth: Where there is anything to look for.

    Returns:
        A row per request, fact and page: `request`, `fact`, `other`, `life`, `page`, `generation`.
    """
    found: list[Table] = []
    if worth.pairs:
        found += _of_pairs(_named(pairs, told, held), worth.direct)
    if worth.strays:
        found += _of_strays(strays(told, held), held)
    if worth.prefixes:
        found += _of_prefixes(told, held)
        found += _of_scopes(told, held)
    if worth.direct:
        found.append(_of_copies(records, told, held, worth.direct))
    return ibis.union(*found) if found else _nothing(held)


def _nothing(held: Table) -> Table:
    """Return no sightings, in the engine that holds everything else."""
    none = held.filter(ibis.literal(value=False))
    return none.select(**{name: ibis.null(kind) for name, kind in SIGHTING.items()})


def _sighted(t: Table, fact: Fact) -> Table:
    return t.select(
        "request",
        "other",
        fact=ibis.literal(int(fact), "int64"),
        life=t.life.cast("int32"),
        page=t.page.cast("int64"),
        generation=t.generation.cast("int64"),
    )


def _named(pairs: Table, told: Table, held: Table) -> Table:
    """Add to each pair who the two are, and what the one before did after the page was given on."""
    after = held.select("life", "given_seq", "request")
    before = held.select(
        "life", "ended_seq", "freed_seq", given_before=held.given_seq, other=held.request
    )
    t = pairs.join(after, ["life", "given_seq"])
    t = t.left_join(before, ["life", "given_before"]).drop("life_right", "given_before_right")
    used = t.join(_uses(told), [t.life == _uses(told).life, t.other == _uses(told).user])
    used = used.filter((used.used_seq > used.given_seq) & used.used_pages.contains(used.page))
    used = used.select(*_KEY, used=True).distinct()
    t = t.left_join(used, _KEY).drop(*(f"{name}_right" for name in _KEY))
    fenced = told.filter(is_a(told, Role.DECODE, "window_fenced"))
    fenced = fenced.group_by(other=fenced.request).aggregate(fenced_seq=fenced.sequence.max())
    return t.left_join(fenced, "other").drop("other_right")


def _uses(told: Table) -> Table:
    read = is_a(told, Role.DECODE, "read_started") | is_a(told, Role.DECODE, "read_ended")
    t = told.filter(read | is_a(told, Role.PREFILL, "write_ended"))
    return t.select("life", user=t.request, used_seq=t.sequence, used_pages=t.pages)


def _of_pairs(t: Table, direct: tuple[int, ...]) -> list[Table]:
    """Say what it means for each of two owners that the first was not provably gone."""
    t = t.filter(t.other.isnull() | (t.other != t.request))
    used = t.used.fill_null(False)
    still = used | (t.ended_seq > t.given_seq).fill_null(False)
    late = t.life.isin((-1, *direct)) & (t.fenced_seq > t.given_seq).fill_null(False)
    proven = (t.freed_seq < t.given_seq).fill_null(False)
    turned_round = t.filter(used).rename(request="other", other="request")
    return [
        _sighted(turned_round, Fact.USED_AFTER_GIVEN_ON),
        _sighted(t.filter(still), Fact.SHARED_WITH_FORMER),
        _sighted(t.filter(~still & late), Fact.WRITTEN_BY_FORMER),
        _sighted(t.filter(~still & ~late & ~proven), Fact.FORMER_UNACCOUNTED),
        _sighted(t.filter(~t.turned), Fact.GENERATION_REUSED),
    ]


def _of_strays(astray: Table, held: Table) -> list[Table]:
    """Say whose the pages were that a request read without having them."""
    t = astray.mutate(one=astray.pages.zip(astray.generations).unnest())
    t = t.select("request", "life", "holds", "sequence", page=t.one["f1"], generation=t.one["f2"])
    t = _with_holder(t, held)
    foreign = t.other.notnull()
    return [
        _sighted(t.filter(foreign), Fact.READ_FOREIGN),
        _sighted(t.filter(~foreign & t.holds), Fact.READ_UNALLOCATED),
        _sighted(t.filter(~foreign & ~t.holds), Fact.READ_UNKNOWN),
    ]


def _with_holder(t: Table, held: Table) -> Table:
    """Add who else had a page in that generation; `other` is null if nobody is known."""
    rows = _wanted_rows(t, held)
    t = t.left_join(rows, ["life", "page", "generation"])
    return t.filter(t.other.isnull() | (t.other != t.request))


def _wanted_rows(t: Table, held: Table) -> Table:
    """Return the tenures of the pages of `t`, page by page, in every generation."""
    lives = t.select("life").distinct()
    rows = page_rows(held.semi_join(lives, "life"))
    rows = rows.mutate(life=(rows.spot >> 40).cast("int32"), page=rows.spot & (LIFE_FACTOR - 1))
    rows = rows.semi_join(t.select("life", "page").distinct(), ["life", "page"])
    owners = held.select("life", "given_seq", other=held.request)
    rows = rows.join(owners, ["life", "given_seq"])
    return rows.select("life", "page", "generation", "given_seq", "other")


def _of_prefixes(told: Table, held: Table) -> list[Table]:
    """Look at pages that were taken from an earlier prompt: whose, and given on since?"""
    t = told.filter(is_a(told, Role.PREFILL, "prefix_reused"))
    t = t.mutate(one=t.pages.zip(t.generations).unnest())
    t = t.select("request", "life", page=t.one["f1"], generation=t.one["f2"])
    written = told.filter(is_a(told, Role.PREFILL, "write_ended"))
    written = written.group_by("request").aggregate(written_seq=written.sequence.max())
    t = t.join(written, "request")
    rows = _wanted_rows(t, held)
    known = rows.select("life", "page", "generation").distinct()
    unknown = t.anti_join(known, ["life", "page", "generation"]).mutate(other=ibis.null("string"))
    later = rows.rename(generation_later="generation")
    t = t.join(later, ["life", "page"])
    given_on = (t.generation_later > t.generation) & (t.given_seq < t.written_seq)
    return [
        _sighted(unknown, Fact.PREFIX_UNKNOWN),
        _sighted(t.filter(given_on), Fact.PREFIX_GIVEN_ON),
    ]


def _of_scopes(told: Table, held: Table) -> list[Table]:
    """Look at prefixes of other scopes: whose pages they are."""
    t = told.filter(is_a(told, Role.PREFILL, "prefix_reused"))
    t = t.mutate(one=t.pages.zip(t.generations).unnest())
    t = t.mutate(page=t.one["f1"], generation=t.one["f2"])
    t = t.select("request", "life", "page", "generation", "scope", "creator_scope")
    unsaid = t.scope.isnull() | t.creator_scope.isnull()
    across = t.filter((t.scope != t.creator_scope).fill_null(False)).drop("scope", "creator_scope")
    return [
        _sighted(t.filter(unsaid).mutate(other=ibis.null("string")), Fact.PREFIX_UNSCOPED),
        _sighted(_with_holder(across, held), Fact.PREFIX_ACROSS_SCOPES),
    ]


def _of_copies(records: Table, told: Table, held: Table, direct: tuple[int, ...]) -> Table:
    """Look at writes that ran again into a pool, after decode took the window for fenced.

    Numbers of two processes have no order, so this one comparison is by wall clock.
    """
    copies = records.filter(records.event == "write_repeated")
    copies = copies.select("window", copied_at=copies.at_unix_ns)
    granted = told.filter(is_a(told, Role.DECODE, "window_granted") & told.life.isin(direct))
    granted = granted.select("request", "window")
    fenced = told.filter(is_a(told, Role.DECODE, "window_fenced"))
    fenced = fenced.group_by("request").aggregate(fenced_at=fenced.at_unix_ns.max())
    t = granted.join(copies, "window").join(fenced, "request")
    late = t.filter(t.copied_at > t.fenced_at).select("request").distinct()
    source = held.filter(held.place == ROLES.index(Role.PREFILL)).semi_join(late, "request")
    t = source.mutate(one=source.pages.zip(source.generations).unnest())
    t = t.select("request", "life", page=t.one["f1"], generation=t.one["f2"], from_seq=t.given_seq)
    rows = _wanted_rows(t, held)
    later = rows.select("life", "page", "given_seq", "other", generation_later="generation")
    t = t.left_join(later, ["life", "page"])
    after = (t.given_seq > t.from_seq).fill_null(False)
    t = t.mutate(other=after.ifelse(t.other, None))
    return _sighted(t, Fact.WRITTEN_AFTER_FENCE).distinct()
