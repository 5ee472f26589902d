"""Many small counters in few numbers: what lets one pass count everything about a request.

A column for each of forty counts is forty updates for each record. Six bits are enough for how
often one event is recorded of one request, so ten counters share a number, and a record adds to all
of them by one addition:

    word = ... | request_ended | verdict | request_admitted          6 bits each

A request with more records than a counter can hold is none that a stack writes; `records` says so,
and nothing is concluded from its counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ibis
from ibis import Table

BITS = 6
COUNT_MAX = 2**BITS - 1
PER_WORD = 10

Column = Any


class Counters:
    """Counters with a place each in some words.

    Args:
        names: What is counted.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._places = {name: divmod(i, PER_WORD) for i, name in enumerate(names)}
        self.words = -(-len(names) // PER_WORD)

    def weights(self, name: str) -> list[int]:
        """Return what one more of `name` adds to each word."""
        word, place = self._places[name]
        return [1 << BITS * place if i == word else 0 for i in range(self.words)]

    def of_flags(self, kinds: Iterable[tuple[Column, Mapping[str, Column]]]) -> list[Column]:
        """Return what a record adds to each word.

        Args:
            kinds: For each kind of record: whether it is of that kind, and what is counted if a
                flag holds for it. Flags are only looked at in records of their kind.
        """
        given = list(kinds)
        return [
            ibis.cases(*((kind, self._word(i, flags)) for kind, flags in given), else_=0)
            for i in range(self.words)
        ]

    def _word(self, word: int, flags: Mapping[str, Column]) -> Column:
        total: Column = ibis.literal(0, "int64")
        for name, flag in flags.items():
            weight = self.weights(name)[word]
            if weight:
                total = total + flag.fill_null(False).cast("int64") * weight
        return total

    def unpacked(self, table: Table, words: Sequence[str]) -> dict[str, Column]:
        """Return each counter as a column of its own.

        Args:
            table: Has the sums.
            words: The columns with the sum of each word.
        """
        return {
            name: ((table[words[word]] >> BITS * place) & COUNT_MAX).cast("int16")
            for name, (word, place) in self._places.items()
        }
