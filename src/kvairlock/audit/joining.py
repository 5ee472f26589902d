"""Joins names to digests: tries the names that there are against the digests that were found.

Evidence holds no names, and a digest can't be turned round. But who has the key of evidence can
digest every tenant of the key file and every id of an access log, and compare. Keys change from
period to period, and those of the past can't be had: digests of earlier periods stay what they are.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from kvairlock.core.errors import KvairlockError
from kvairlock.wire.keys import Keyring
from kvairlock.wire.pseudonyms import FOR_EVER, Pseudonyms

ATTEMPTS_MAX = 16
"""How many attempts of one request are tried: a gateway makes one on each route at most."""
LINE_BYTES_MAX = 2**20


class AccessLogWrong(KvairlockError):
    """A file of request ids can't be read; the message says where."""

    code = "access_log_unusable"


class Digests:
    """All digests that a name may have.

    Args:
        ring: The cluster's keys, which digest if there is no key of evidence.
        evidence: The keys of evidence, as their files have them.
        now_unix_s: The time, up to which periods are tried.
    """

    def __init__(
        self, ring: Keyring, evidence: Iterable[Pseudonyms] = (), now_unix_s: float | None = None
    ) -> None:
        now = time.time() if now_unix_s is None else now_unix_s
        self._keys = [Pseudonyms(key) for key in ring.keys.values()]
        for first in evidence:
            self._keys += _periods(first, now)

    def tenant(self, name: str) -> Iterator[str]:
        """Yield the digests of a tenant."""
        for key in self._keys:
            yield key.of("tenant", name)

    def request(self, request_id: str) -> Iterator[tuple[int, str]]:
        """Yield the number and the digests of each attempt of a request."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            for key in self._keys:
                yield attempt, key.of("request", f"{request_id}/{attempt}")


def _periods(first: Pseudonyms, now_unix_s: float) -> Iterator[Pseudonyms]:
    yield first
    key = first
    while key.days != FOR_EVER and key.until_unix_s is not None and key.until_unix_s <= now_unix_s:
        key = key.at(key.until_unix_s)
        yield key


def tenants_by_digest(digests: Digests, tenants: Iterable[str]) -> dict[str, str]:
    """Return the name of each digest of each tenant."""
    return {digest: name for name in tenants for digest in digests.tenant(name)}


def requests_by_digest(
    digests: Digests, ids: Iterable[str], wanted: frozenset[str]
) -> dict[str, tuple[str, int]]:
    """Return id and attempt of each wanted digest that is one of an id.

    Args:
        digests: What makes digests.
        ids: Ids that clients got.
        wanted: The digests that names are wanted for; all others are forgotten at once.
    """
    return {
        digest: (request_id, attempt)
        for request_id in ids
        for attempt, digest in digests.request(request_id)
        if digest in wanted
    }


def ids_in(path: Path, field: str) -> Iterator[str]:
    """Yield the ids in an access log, line by line.

    Args:
        path: JSON lines, or CSV with a line of titles if its name ends in `.csv`.
        field: Which field or column has the id.

    Raises:
        AccessLogWrong: A line is neither, or lacks the field.
    """
    number = 0
    try:
        for number, row in enumerate(_rows(path), 1):
            value = row.get(field)
            if not isinstance(value, str) or not value:
                raise AccessLogWrong(f"{path}: entry {number} has no text in {field!r}")
            yield value
    except (csv.Error, UnicodeDecodeError) as error:
        raise AccessLogWrong(f"{path}: entry {number + 1} can't be read: {error}") from None


def _rows(path: Path) -> Iterator[dict[str, object]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file) if path.suffix == ".csv" else _objects(path, file)


def _objects(path: Path, lines: Iterable[str]) -> Iterator[dict[str, object]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line) if len(line) <= LINE_BYTES_MAX else None
        except (msgspec.DecodeError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise AccessLogWrong(f"{path}: line {number} is no JSON object")
        yield row
