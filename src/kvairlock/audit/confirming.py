"""The second step of an investigation: names for the requests of a case, once that is authorised.

    is the evidence unchanged? -> authorise (a line in the log, on disk) -> join -> result, log

Only what was authorised is joined: affected requests; on demand those without enough evidence, and
those whose pages could be read. A digest that no name fits stays a digest, and is counted.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kvairlock.audit.case_log import Act, CaseLog
from kvairlock.audit.cases import Case, CaseWrong, read_case
from kvairlock.audit.held_still import unchanged
from kvairlock.audit.joining import Digests, requests_by_digest, tenants_by_digest
from kvairlock.wire.keys import Keyring

INSUFFICIENT = "insufficient"
EXPOSED = "exposed"
AFFECTED = "affected"
TEXT_MAX = 1000


@dataclass(frozen=True, slots=True)
class Authorisation:
    """Who wants names, and why.

    Args:
        authorised_by: Who answers for it.
        reason: Why.
        also: Whom to name beside affected requests: `insufficient`, `exposed`.
    """

    authorised_by: str
    reason: str
    also: tuple[str, ...] = ()

    @property
    def scope(self) -> tuple[str, ...]:
        """All for whom names are joined."""
        return (AFFECTED, *sorted(set(self.also)))


@dataclass(frozen=True, slots=True)
class Joined:
    """What came of joining.

    Args:
        result: The file with the names.
        wanted: How many requests were to be named.
        tenants: For how many of them the tenant is known.
        requests: For how many of them the id is known.
    """

    result: Path
    wanted: int
    tenants: int
    requests: int


class Row(msgspec.Struct, frozen=True):
    """One request with the names that were found; None where none fits.

    Args:
        request: Its digest.
        tenant: Its tenant's digest.
        why: `affected`, `insufficient` or `exposed`.
        reasons: Which rules fired.
        since_unix_ns: When it began; None if only its pages are concerned.
        tenant_name: Its tenant.
        request_id: The id that its client got.
        attempt: Which attempt of it.
        exposed_to: Of an exposed request: digests of those that could have read its pages.
    """

    request: str
    tenant: str
    why: str
    reasons: tuple[str, ...] = ()
    since_unix_ns: int | None = None
    tenant_name: str | None = None
    request_id: str | None = None
    attempt: int | None = None
    exposed_to: tuple[str, ...] = ()


def confirm(
    folder: Path,
    asked: Authorisation,
    ring: Keyring,
    digests: Digests,
    tenants: Iterable[str],
    ids: Iterable[str],
) -> Joined:
    """Record the authorisation of a case, and join names to what it covers.

    Args:
        folder: The case.
        asked: Who wants names, and why.
        ring: The cluster's keys, with which the log is written.
        digests: What makes digests of names.
        tenants: All tenants that there are.
        ids: Ids that clients got.

    Raises:
        CaseWrong: There is no such case, its log does not hold, or nobody authorises this.
        CaseExpired: The evidence has changed since.
        OSError: The authorisation can't be written: then nothing is joined.
    """
    _check(asked)
    case, digest = read_case(folder)
    with CaseLog(folder, digest, ring) as log:
        unchanged(case)
        result = folder / log.next_result
        said = (asked.authorised_by, asked.reason, asked.scope, result.name)
        log.add(Act.AUTHORISED, *said)
        rows = _joined(case, asked.scope, digests, tenants, ids)
        data = _text(asked, digest, rows)
        _write_new(result, data)
        log.add(Act.JOINED, *said, hashlib.sha256(data.encode()).hexdigest())
    return Joined(
        result,
        len(rows),
        sum(row.tenant_name is not None for row in rows),
        sum(row.request_id is not None for row in rows),
    )


def _check(asked: Authorisation) -> None:
    for name, text in (("--authorised-by", asked.authorised_by), ("--reason", asked.reason)):
        if not text.strip() or len(text) > TEXT_MAX:
            raise CaseWrong(f"{name} must say something, in at most {TEXT_MAX} characters")


def _joined(
    case: Case,
    scope: Sequence[str],
    digests: Digests,
    tenants: Iterable[str],
    ids: Iterable[str],
) -> list[Row]:
    wanted = list(_wanted(case, scope))
    names = tenants_by_digest(digests, tenants)
    known = requests_by_digest(digests, ids, frozenset(row.request for row in wanted))
    return [_named(row, names, known) for row in wanted]


def _wanted(case: Case, scope: Sequence[str]) -> Iterator[Row]:
    for each in case.candidates:
        if each.verdict in scope:
            yield Row(each.request, each.tenant, each.verdict, each.reasons, each.since_unix_ns)
    if EXPOSED in scope:
        yield from _exposed(case)


def _exposed(case: Case) -> Iterator[Row]:
    by: dict[tuple[str, str], list[str]] = {}
    for met in case.met:
        by.setdefault((met.other, met.other_tenant), []).append(met.request)
    for (request, tenant), readers in by.items():
        yield Row(request, tenant, EXPOSED, exposed_to=tuple(readers))


def _named(row: Row, tenants: dict[str, str], known: dict[str, tuple[str, int]]) -> Row:
    request_id, attempt = known.get(row.request, (None, None))
    name = tenants.get(row.tenant)
    return msgspec.structs.replace(row, tenant_name=name, request_id=request_id, attempt=attempt)


def _text(asked: Authorisation, case_sha256: str, rows: Sequence[Row]) -> str:
    said: dict[str, Any] = {
        "case_sha256": case_sha256,
        "authorised_by": asked.authorised_by,
        "reason": asked.reason,
        "scope": asked.scope,
        "requests": rows,
    }
    return msgspec.json.format(msgspec.json.encode(said), indent=1).decode() + "\n"


def _write_new(path: Path, text: str) -> None:
    """Write a file for its owner only, which is not there yet, and have it on disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
