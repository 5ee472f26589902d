"""What each life says about itself: what it is, which guards it has, and what of it is missing.

A number that is missing is a record that nobody has. A life without a close marker may have done
things that are in no record. Both are said beside the picture, since the picture cannot show them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any

from kvairlock.pictures.edges import Edge, Life


class Close(StrEnum):
    """How the records of a life end."""

    IN_ORDER = "in order"
    NO_MARKER = "no close marker"


@dataclass(frozen=True, slots=True)
class Account:
    """What one life says about itself.

    Args:
        life: Whose account it is.
        pages: How many pages its pool has, or None if no record says.
        landing: Its landing policy, empty if it has none, or None if no record says.
        guards_off: Its guards that are off, or None if no record says.
        records: How many records there are.
        missing: How many numbers are not there.
        close: How the records end.
    """

    life: Life
    pages: int | None
    landing: str | None
    guards_off: tuple[str, ...] | None
    records: int
    missing: int
    close: Close


def accounts_of(edges: Iterable[Edge]) -> tuple[Account, ...]:
    """Return the accounts of all lives that recorded anything, by name."""
    ordered = sorted(edges, key=lambda edge: (edge.life, edge.sequence))
    return tuple(_account(life, list(own)) for life, own in groupby(ordered, key=_life))


def _life(edge: Edge) -> Life:
    return edge.life


def _account(life: Life, edges: list[Edge]) -> Account:
    started = next((edge.fields for edge in edges if edge.event == "node_started"), None)
    return Account(
        life=life,
        pages=started["pool_pages"] if started else None,
        landing=started["landing"] if started else None,
        guards_off=_texts(started, "guards_off"),
        records=len(edges),
        missing=edges[-1].sequence - len(edges),
        close=Close.IN_ORDER if edges[-1].event == "node_closed" else Close.NO_MARKER,
    )


def _texts(fields: Mapping[str, Any] | None, name: str) -> tuple[str, ...] | None:
    """Return a list of texts, or None if it was not recorded; an empty one was."""
    return None if fields is None or fields[name] is None else tuple(fields[name])
