"""`kvairlock evidence`: what the evidence holds, whether it is whole, and how long it is kept."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from kvairlock.cli.evidence_places import evidence_in, ring_of, state_of
from kvairlock.cli.output import Json, Status, document, fail, note, say, table
from kvairlock.core.evidence import ENVELOPE, EVENTS, SCHEMA_VERSION, Field, Kind, Sensitivity
from kvairlock.runtime.evidence_settings import EvidenceSettings
from kvairlock.sink.chain import GOOD, Chain, verify
from kvairlock.sink.naming import SEALS
from kvairlock.sink.retention import NS_PER_DAY, expired, prune
from kvairlock.sink.seals import Seal, Seals
from kvairlock.wire.keys import Keyring

app = typer.Typer(
    no_args_is_help=True,
    help="What the evidence of the processes holds, whether it is whole, how long it is kept.",
)

Folder = Annotated[
    Path | None,
    typer.Argument(metavar="PATH", help="Folder of evidence; the state directory's if left out."),
]
ClusterFile = Annotated[
    Path | None,
    typer.Option(
        "--cluster-key",
        metavar="FILE",
        help="Cluster keys that seals were made with; those of the stack that PATH is of if left "
        "out.",
    ),
]
DATES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]
HASHES_ONLY = (
    "no cluster key: hashes were compared and nothing else; whoever can write the folder can have "
    "changed files and seals together (--cluster-key FILE proves more)"
)
FILE_COLUMNS = ("file", "state", "records", "first", "last", "why")
PRUNED_COLUMNS = ("file", "sealed", "records", "KiB")

COLUMNS = ("event", "field", "type", "unit", "purpose", "retention", "sensitivity")
EVERY_EVENT = "(every event)"

_TYPES: dict[Kind, dict[str, Any]] = {
    Kind.TEXT: {"type": ["string", "null"]},
    Kind.INTEGER: {"type": ["integer", "null"]},
    Kind.INTEGERS: {"type": ["array", "null"], "items": {"type": "integer"}},
    Kind.TEXTS: {"type": ["array", "null"], "items": {"type": "string"}},
}


@app.command()
def schema(json: Json = False) -> None:
    """Print every field of every record; with --json, the JSON Schema of one line.

    No prompt, token or output is ever a field, and tenants are keyed digests.
    """
    if json:
        document(json_schema())
        return
    rows = [_row(EVERY_EVENT, name, field) for name, field in ENVELOPE.items()]
    for event, fields in EVENTS.items():
        rows += [_row(event, name, field) for name, field in fields.items()]
    table(COLUMNS, rows)


@app.command("verify")
def verify_command(
    path: Folder = None,
    cluster_key: ClusterFile = None,
    earlier: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What `--json` printed before: the heads in it must still be in the seals.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Say whether files of evidence are as they were sealed, and whether any is gone.

    Exit status: 0 all is whole, 1 something was changed, removed, or is vouched for by nobody. An
    end that was cut off, seals and newest files together, shows only against an earlier head:
    keep what --json prints somewhere else, and give it as --earlier.
    """
    folder = _folder(path)
    heads = _heads(earlier) if earlier else None
    with Console(stderr=True).status("comparing files with their seals"):
        chain = verify(folder, _ring(folder, cluster_key), heads)
    if json:
        document({"whole": chain.whole, **asdict(chain)})
    else:
        _show(chain)
    raise typer.Exit(Status.OK if chain.whole else Status.NOT_OK)


@app.command("prune")
def prune_command(
    path: Folder = None,
    before: Annotated[
        datetime | None,
        typer.Option(
            formats=DATES,
            help="Delete what was sealed before, in UTC; what is older than 90 days if left out.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")
    ] = False,
    cluster_key: ClusterFile = None,
    json: Json = False,
) -> None:
    """Delete sealed files whose time is over, and write down in the seals that they were.

    Running processes do this themselves, by `evidence.retention_days`, each for its own files.
    What is being written is never deleted; files of 0.1.0 have no seals, and are yours to delete.
    """
    folder = _folder(path)
    ring = _ring(folder, cluster_key)
    if ring is None:
        fail("no cluster key, so nobody would believe that files were pruned", "--cluster-key FILE")
    gone = [seal for seals in _nodes(folder, ring) for seal in _prune(seals, before, dry_run)]
    if json:
        document({"dry_run": dry_run, "files": [msgspec.to_builtins(s.content) for s in gone]})
        return
    table(PRUNED_COLUMNS, [_pruned_row(seal) for seal in gone])
    say(f"{len(gone)} files {'would be' if dry_run else 'were'} deleted")


def _folder(path: Path | None) -> Path:
    (folder,) = evidence_in(None if path is None else [path])
    if not folder.is_dir():
        fail(f"{folder}: there is no such folder", "name the folder of the evidence")
    return folder


def _ring(folder: Path, named: Path | None) -> Keyring | None:
    return ring_of(named, state_of([folder], None))


def _heads(file: Path) -> dict[str, str]:
    """Read the heads of chains from what `verify --json` printed."""
    try:
        said = msgspec.json.decode(file.read_bytes())
        return {str(node["node"]): str(node["head"]) for node in said["nodes"]}
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        fail(f"{file}: is nothing that `kvairlock evidence verify --json` printed")


def _show(chain: Chain) -> None:
    bad = [file for file in chain.files if file.state not in GOOD]
    rows = [(f.file, f.state, _n(f.records), _n(f.first), _n(f.last), f.reason) for f in bad]
    if rows:
        table(FILE_COLUMNS, rows)
        say("")
    for node in chain.nodes:
        holds = "the chain holds" if node.holds else f"the chain does not hold: {node.reason}"
        seals = f"{node.entries} {'seal' if node.entries == 1 else 'seals'}"
        say(f"{node.node}: {seals}, {holds}; head {node.head[:16] or 'none'}")
    counts = Counter(str(file.state) for file in chain.files)
    say(", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "no evidence")
    say("whole" if chain.whole else "NOT whole")
    if not chain.proven:
        note(HASHES_ONLY)


def _n(number: int | None) -> str:
    return "" if number is None else str(number)


def _nodes(folder: Path, ring: Keyring) -> Iterator[Seals]:
    for path in sorted(folder.glob(f"*{SEALS}")):
        yield Seals(folder, path.name.removesuffix(SEALS), ring)


def _prune(seals: Seals, before: datetime | None, dry_run: bool) -> list[Seal]:
    over = expired(seals, _before_unix_ns(before))
    if not dry_run:
        prune(seals, over)
    return over


def _before_unix_ns(before: datetime | None) -> int:
    if before is not None:
        return int(before.replace(tzinfo=UTC).timestamp()) * 10**9
    return time.time_ns() - EvidenceSettings().retention_days * NS_PER_DAY


def _pruned_row(seal: Seal) -> tuple[str, ...]:
    at = datetime.fromtimestamp(seal.at_unix_ns / 10**9, UTC)
    content = seal.content
    kib = f"{content.bytes / 1024:.0f}"
    return (content.file, f"{at:%Y-%m-%d %H:%M}", str(content.records), kib)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of one line of an evidence file, an alternative for each event."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"kvairlock evidence, version {SCHEMA_VERSION}",
        "oneOf": [_record(event, fields) for event, fields in EVENTS.items()],
    }


def _record(event: str, fields: dict[str, Field]) -> dict[str, Any]:
    properties = {name: _property(field) for name, field in (ENVELOPE | fields).items()}
    for name, field in ENVELOPE.items():
        properties[name]["type"] = "integer" if field.kind is Kind.INTEGER else "string"
    properties["event"]["const"] = event
    properties["schema"]["const"] = SCHEMA_VERSION
    return {
        "title": event,
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _property(field: Field) -> dict[str, Any]:
    known: dict[str, Any] = {
        **_TYPES[field.kind],
        "description": field.purpose,
        "x-retention-days": field.retention_days,
        "x-sensitivity": field.sensitivity,
    }
    if field.sensitivity is Sensitivity.PSEUDONYM:
        known["description"] += " (keyed digest)"
    return known | ({"x-unit": field.unit} if field.unit else {})


def _row(event: str, name: str, field: Field) -> tuple[str, ...]:
    days = f"{field.retention_days} days"
    return (event, name, field.kind, field.unit, field.purpose, days, field.sensitivity)
