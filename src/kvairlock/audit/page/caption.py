"""What is seen in the picture of a request's pages, in words, figure by figure from its records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvairlock.audit.page.words import counted, spaced
from kvairlock.audit.story import Row, Told
from kvairlock.core.terms import Role
from kvairlock.pictures.book import ADMITTED
from kvairlock.pictures.names import generation_words, page_ranges

RANGES_MAX = 6


def caption(told: Told) -> tuple[str, ...]:
    """Say in sentences what happened to the pages of a request.

    Args:
        told: What the evidence says about them.
    """
    own = told.own
    return (
        *map(_given, _of(own, "pages_allocated", Role.DECODE)),
        *map(_reused, _of(own, "prefix_reused")),
        *_computed(own),
        *map(_ruled, _of(own, "verdict", Role.DECODE)),
        *map(_validated, _of(own, "pages_validated", Role.DECODE)),
        *_read(own),
        *_met(told),
        *_ended(own),
    )


def _of(own: Sequence[Row], event: str, role: Role | None = None) -> list[Row]:
    return [row for row in own if row["event"] == event and role in (None, row["role"])]


def _given(row: Row) -> str:
    generations = generation_words(sorted(set(row["generations"])))
    return f"{row['node']} gave it {page_ranges(row['pages'], RANGES_MAX)}, {generations}."


def _computed(own: Sequence[Row]) -> Iterator[str]:
    computed = _of(own, "range_computed")
    for row in computed:
        yield f"{row['node']} computed tokens [{row.get('start', '?')}, {row.get('stop', '?')})."
    if not computed:
        yield "No record says that anything was computed for it."
    for row in _of(own, "receipt_sent"):
        yield f"{row['node']} stated: {row.get('outcome', 'nothing')}."


def _ruled(row: Row) -> str:
    outcome = row.get("outcome", "nothing")
    said = "admitted it" if outcome == ADMITTED else f"did not admit it, for {spaced(outcome)}"
    confirmed = f"[{row.get('start', '?')}, {row.get('stop', '?')})"
    expected = row.get("expected_tokens", "?")
    return f"{row['node']} {said}: tokens {confirmed} were confirmed, of {expected} expected."


def _validated(row: Row) -> str:
    return f"Whether its source still stood was asked afterwards: {row.get('outcome', 'nothing')}."


def _reused(row: Row) -> str:
    return f"{row['node']} took {page_ranges(row['pages'], RANGES_MAX)} as its prefix."


def _read(own: Sequence[Row]) -> Iterator[str]:
    read = _of(own, "read_started", Role.DECODE)
    for row in read:
        generations = generation_words(sorted(set(row["generations"])))
        yield f"It read {page_ranges(row['pages'], RANGES_MAX)}, {generations}."
    if not read:
        yield "No record says that it read anything."


def _met(told: Told) -> Iterator[str]:
    """Say how many of the pages were others', before or after."""
    pages = {(e.node, e.incarnation, page) for e in told.exposures for page in e.pages}
    others = {exposure.other for exposure in told.exposures}
    if pages:
        yield (
            f"{counted(len(pages), 'page')} that it could reach had been, or became, those of "
            f"{counted(len(others), 'other request')}: it could have read what was there."
        )
    else:
        yield "No record names anybody else who had what it could reach."


def _ended(own: Sequence[Row]) -> Iterator[str]:
    for row in _of(own, "request_ended", Role.DECODE):
        figures = f"{row.get('computed_tokens', '?')} tokens as confirmed"
        yield f"It ended: {row.get('end', 'nobody knows how')}, with {figures}."
    for row in _of(own, "response_sent"):
        usage = f"{row.get('prompt_tokens', '?')} and {row.get('generated_tokens', '?')}"
        yield (
            f"Its client was told HTTP {row.get('http_status', '?')}; tokens of prompt and answer "
            f"as stated to it: {usage}."
        )
    for row in _of(own, "drain_ended", Role.DECODE):
        yield (
            f"{row['node']} took its pages back after {row.get('wait_ms', '?')} ms, "
            f"fence: {row.get('fence', 'none')}."
        )
