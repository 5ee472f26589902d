"""Evidence of a made-up history in a state folder: its digests are those of known names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kvairlock.audit.histories import INCIDENTS, History, history
from kvairlock.audit.synthetic import Row
from kvairlock.cli.places import CLUSTER_KEY_FILE, EVIDENCE, EVIDENCE_KEY_FILE, KEYS_FILE
from kvairlock.core.evidence import EVENTS
from kvairlock.gateway.keys import ApiKeys
from kvairlock.runtime.secrets import write_private
from kvairlock.wire.keys import Keyring
from kvairlock.wire.pseudonyms import Pseudonyms
from tests.audit.sealed_made import sealed

RING = "k1 " + "11" * 32
KEY = Pseudonyms(bytes(range(32)), since_unix_s=1_700_000_000, days=90)
SEED = 5
PAGES = 64
"""So few that requests are given pages which others had before them."""


@dataclass(frozen=True)
class Made:
    """A state folder with evidence in it.

    Args:
        state: The folder.
        ids: Ids of all requests, by digest.
        affected: Digests of the affected ones.
        excluded: Digests of all others.
        rows: What is recorded.
    """

    state: Path
    ids: dict[str, str]
    affected: frozenset[str]
    excluded: frozenset[str]
    rows: tuple[Row, ...]

    @property
    def evidence(self) -> Path:
        return self.state / EVIDENCE


def request_id(digest: str) -> str:
    return f"cmpl-{digest}"


def tenant_name(digest: str) -> str:
    return f"tenant-{digest}"


def make_state(state: Path, incident: str | None = "the incident") -> Made:
    """Write keys and the evidence of a history into a state folder."""
    incidents = [INCIDENTS[incident]] if incident else []
    told = history(SEED, *incidents, pages=PAGES)
    rows = tuple(named(row) for row in told.rows)
    write_private(state / CLUSTER_KEY_FILE, RING + "\n")
    write_private(state / EVIDENCE_KEY_FILE, KEY.text() + "\n")
    tenants = {row["tenant"] for row in told.rows if row.get("tenant")}
    for tenant in sorted(tenants):
        ApiKeys(state / KEYS_FILE).issue(tenant_name(tenant))
    sealed(rows, state / EVIDENCE, Keyring.parse(RING))
    return _made(state, told, rows)


def _made(state: Path, told: History, rows: tuple[Row, ...]) -> Made:
    ids = {digest(name): request_id(name) for name in told.requests}
    affected = frozenset(digest(name) for name in told.affected)
    return Made(state, ids, affected, frozenset(ids) - affected, rows)


def digest(request: str) -> str:
    return KEY.of("request", f"{request_id(request)}/1")


def named(row: Row) -> Row:
    """Return a record in which every digest is the one of a known name."""
    changed = dict(row)
    for name, field in EVENTS[row["event"]].items():
        value = row.get(name)
        if field.stands_for == "tenant" and value:
            changed[name] = KEY.of("tenant", tenant_name(value))
        elif field.stands_for == "request" and value:
            changed[name] = digest(value)
    return changed
