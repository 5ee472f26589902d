"""What `kvairlock audit confirm` does: names for the affected requests of a case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvairlock.audit.cases import Case, CaseExpired, read_case
from kvairlock.audit.confirming import Authorisation, Joined, confirm
from kvairlock.audit.joining import ids_in
from kvairlock.cli.evidence_places import digests_of, keys_of, ring_of
from kvairlock.cli.output import Status, document, fail, note, say
from kvairlock.cli.places import KEYS_FILE
from kvairlock.gateway.keys import ApiKeys


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for.

    Args:
        authorised_by: Who answers for it.
        reason: Why.
        also: Whom to name beside affected requests.
        requests: An access log with ids.
        id_field: Where an id is in it.
    """

    authorised_by: str
    reason: str
    also: tuple[str, ...]
    requests: Path | None
    id_field: str


def confirm_case(
    folder: Path,
    wanted: Wanted,
    keys: Path | None,
    state: Path | None,
    cluster_key: Path | None,
    *,
    json: bool,
) -> None:
    """Join names to a case, and say where they are and how many there are.

    Args:
        folder: The case.
        wanted: What was asked for.
        keys: The file with API keys, if it was named.
        state: The state folder, if it was named; else the one that the case is of.
        cluster_key: The file with the cluster's keys, if it was named.
        json: Whether to print JSON rather than text.
    """
    case, _ = read_case(folder)
    home = state or (Path(case.state) if case.state else None)
    evidence = [Path(file.path).parent for file in case.evidence]
    ring = ring_of(cluster_key, home)
    if ring is None:
        fail(
            "names can only be joined with the cluster's keys", "--state DIR or --cluster-key FILE"
        )
    tenants = _tenants(keys, evidence, home)
    ids = ids_in(wanted.requests, wanted.id_field) if wanted.requests else ()
    asked = Authorisation(wanted.authorised_by, wanted.reason, wanted.also)
    digests = digests_of(ring, evidence, home)
    try:
        joined = confirm(folder, asked, ring, digests, tenants, _counted(ids))
    except CaseExpired as error:
        fail(str(error), status=Status.NOT_OK)
    _report(case, joined, json=json)


def _tenants(keys: Path | None, evidence: Sequence[Path], state: Path | None) -> set[str]:
    files = [keys] if keys else keys_of(KEYS_FILE, evidence, state)
    if not files:
        note("there is no file of API keys, so no tenant has a name; --keys FILE names one")
    return {entry.tenant for file in files for entry in ApiKeys.load(file).entries()}


def _counted(ids: Iterable[str]) -> Iterator[str]:
    """Yield ids, and say now and then how many there were."""
    for number, each in enumerate(ids, 1):
        if number % 100_000 == 0:
            note(f"tried {number:,} ids")
        yield each


def _report(case: Case, joined: Joined, *, json: bool) -> None:
    if json:
        document(
            {
                "result": str(joined.result),
                "candidates": len(case.candidates),
                "wanted": joined.wanted,
                "tenants_named": joined.tenants,
                "requests_named": joined.requests,
            }
        )
        return
    say(f"{joined.wanted:,} of {len(case.candidates):,} candidates were to be named")
    say(f"  tenant known: {joined.tenants:,}")
    say(f"  request id known: {joined.requests:,}")
    say(f"names are in {joined.result}, which only its owner can read")
