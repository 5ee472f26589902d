"""Takes off records in a bundle what would tell whose they are, and keeps what rules look at.

    records of others, as they are       in the bundle
    request 34226f, tenant 9b01          digests that exist in this bundle only
    lease 4711                           the first that comes, the second, ...
    number 80531, between 2 own ones     the next number after the own one before it
    10:14:03.120, by two clocks          the time of the own record before it

Rules ask who had a page before whom, so order, pages and generations stay. These are what is left
to compare: who has two bundles can see that the same somebody had one page between both requests.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from bisect import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvairlock.audit.explaining import Record
from kvairlock.core.evidence import ENVELOPE, EVENTS, Sensitivity

SHOWN = ("lease", "pages", "generations", "fence", "status")
"""Fields of others' records that are kept; all others become null."""
GIVEN = "pages_allocated"
TIMES = ("at_unix_ns", "at_boot_ns")
SOMEBODY = "another tenant or request"

Life = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Names:
    """Digests of one bundle, which nobody can join with anything else.

    Args:
        own: Digests that stay as they are: the request's own.
        key: What the others are digested with; it is never written anywhere.
    """

    own: frozenset[str]
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def of(self, digest: str) -> str:
        """Return what stands for a digest in this bundle."""
        if digest in self.own:
            return digest
        return hmac.new(self.key, digest.encode(), hashlib.sha256).hexdigest()[:24]


def blinded(own: Sequence[Record], others: Iterable[Record], names: Names) -> list[Record]:
    """Return the records of a bundle: a request's own, and of others what matters.

    Args:
        own: The request's own records.
        others: Records of others that its verdict rests on.
        names: How others are called.
    """
    near = [_without_names(record, names) for record in others]
    found: list[Record] = []
    for life in dict.fromkeys(map(_life, own)):
        mine = [_renamed(record, names) for record in own if _life(record) == life]
        theirs = [record for record in near if _life(record) == life]
        mine.sort(key=_sequence)
        theirs.sort(key=_sequence)
        found += _with_leases(mine, [*mine, *_moved(theirs, mine)])
    return found


def _life(record: Record) -> Life:
    return record["node"], record["incarnation"]


def _sequence(record: Record) -> int:
    number: int = record["sequence"]
    return number


def _without_names(record: Record, names: Names) -> Record:
    """Return a record of another of which only what matters is left."""
    kept = (*ENVELOPE, *SHOWN)
    blind = {name: value if name in kept else None for name, value in record.items()}
    return {**blind, "tenant": names.of(SOMEBODY), "request": names.of(record["request"])}


def _moved(theirs: Sequence[Record], mine: Sequence[Record]) -> Iterator[Record]:
    """Yield records of one life, in order, right behind the own record before them, in its time.

    There is room: between two own records are as many numbers as there were records of others.
    """
    numbers = [_sequence(record) for record in mine]
    places = [bisect(numbers, _sequence(record)) for record in theirs]
    ahead = places.count(0)
    for i, (record, place) in enumerate(zip(theirs, places, strict=True)):
        before = mine[max(place - 1, 0)]
        behind = i - ahead if not place else 1 + i - places.index(place)
        yield record | {"sequence": before["sequence"] + behind} | {t: before[t] for t in TIMES}


def _with_leases(mine: Sequence[Record], records: Iterable[Record]) -> Iterator[Record]:
    """Yield records in which leases of others are numbered anew, after those of the request."""
    own = {record["lease"] for record in mine if record["event"] == GIVEN}
    called = {lease: lease for lease in own}
    first = max(own, default=0) + 1
    for record in records:
        if record.get("lease") is None:
            yield record
        else:
            new = first + len(called) - len(own)
            yield record | {"lease": called.setdefault(record["lease"], new)}


def _renamed(record: Record, names: Names) -> Record:
    fields = EVENTS[record["event"]]
    return {
        name: names.of(value) if _is_other(fields, name, value) else value
        for name, value in record.items()
    }


def _is_other(fields: Mapping[str, Any], name: str, value: object) -> bool:
    pseudonym = name in fields and fields[name].sensitivity is Sensitivity.PSEUDONYM
    return pseudonym and isinstance(value, str) and bool(value)
