"""Short names: pseudonyms as long as they have to be, pages as ranges, times in milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kvairlock.core.terms import NS_PER_MS
from kvairlock.pictures.edges import Edge, Who

DIGITS_MIN = 4
HUES = 7
"""Tenants beyond so many have the colour of an earlier one; names tell them apart."""


@dataclass(frozen=True, slots=True)
class Names:
    """How the owners of one run are called in its pictures.

    Args:
        tenant_digits: Digits that tell all tenants of the run apart.
        request_digits: Digits that tell all its requests apart.
        hues: Colour of each tenant, in order of appearance.
    """

    tenant_digits: int
    request_digits: int
    hues: dict[str, int]

    def request(self, who: Who) -> str:
        """Return the short pseudonym of a request."""
        return who.request[: self.request_digits]

    def tenant(self, tenant: str) -> str:
        """Return the short pseudonym of a tenant."""
        return tenant[: self.tenant_digits]

    def brief(self, who: Who) -> str:
        """Return what a bar can show: request and tenant, without the words."""
        return f"{self.request(who)} · {self.tenant(who.tenant)}"

    def full(self, who: Who) -> str:
        """Return what a sentence needs."""
        return f"request {self.request(who)} · tenant {self.tenant(who.tenant)}"

    def hue(self, who: Who) -> int:
        """Return the number of the colour that stands for a tenant."""
        return self.hues[who.tenant] % HUES


def names_of(edges: Iterable[Edge]) -> Names:
    """Find names for all owners of a run."""
    whos = list(dict.fromkeys(edge.who for edge in edges if edge.who is not None))
    tenants = list(dict.fromkeys(who.tenant for who in whos))
    return Names(
        tenant_digits=_digits(tenants),
        request_digits=_digits({who.request for who in whos}),
        hues={tenant: number for number, tenant in enumerate(tenants)},
    )


def _digits(names: Iterable[str]) -> int:
    """Return how many leading characters tell all names apart."""
    different = set(names)
    longest = max(map(len, different), default=0)
    enough = (
        n for n in range(DIGITS_MIN, longest) if len({x[:n] for x in different}) == len(different)
    )
    return next(enough, max(longest, DIGITS_MIN))


def ms(at_ns: int) -> str:
    """Return a time of the run in milliseconds, as text."""
    return f"{at_ns / NS_PER_MS:,.1f}"


def span_ms(began_ns: int, ended_ns: int) -> str:
    """Return a time from and until."""
    return f"{ms(began_ns)} to {ms(ended_ns)} ms"


def generation_words(generations: Sequence[int], short: bool = False) -> str:
    """Return in which generations an owner had pages, `generations 2-5`, empty if not recorded.

    Args:
        generations: In order.
        short: Whether there is room for a letter only.
    """
    if not generations:
        return ""
    word = "g" if short else "generation " if len(generations) == 1 else "generations "
    if len(generations) == 1:
        return f"{word}{generations[0]}"
    return f"{word}{generations[0]}\N{EN DASH}{generations[-1]}"


def page_ranges(pages: Iterable[int], parts_max: int = 0) -> str:
    """Return pages as ranges, `pages 9-17, 20`, with an en dash.

    Args:
        pages: Page indices, in any order.
        parts_max: How many ranges to name before the rest is only counted; 0 names all.
    """
    numbers = sorted(set(pages))
    ranges = list(_ranges(numbers))
    shown = ranges[:parts_max] if parts_max else ranges
    left = len(numbers) - sum(last - first + 1 for first, last in shown)
    words = [str(first) if first == last else f"{first}\N{EN DASH}{last}" for first, last in shown]
    if left:
        words.append(f"{left} more")
    if not numbers:
        return "no pages"
    return ("page " if len(numbers) == 1 else "pages ") + ", ".join(words)


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for number in numbers:
        if first is None or last is None:
            first = last = number
        elif number == last + 1:
            last = number
        else:
            yield first, last
            first = last = number
    if first is not None and last is not None:
        yield first, last
