"""`kvairlock evidence`: what the evidence holds, whether it is whole, and how long it is kept."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from kvairlock.cli import config
from kvairlock.cli.evidence_places import evidence_in, ring_of, state_of
from kvairlock.cli.evidence_schema import COLUMNS, json_schema, rows
from kvairlock.cli.output import Json, Status, document, fail, note, plain, say, table
from kvairlock.sink.chain import GOOD, Chain, FileState, Sealing, verify
from kvairlock.sink.naming import SEALS
from kvairlock.sink.retention import NS_PER_DAY, expired, prune
from kvairlock.sink.seal_lines import Act, Seal
from kvairlock.sink.seals import Seals
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
PRUNED_COLUMNS = ("file", "last record", "records", "KiB")


@app.command()
def schema(json: Json = False) -> None:
    """Print every field of every record; with --json, the JSON Schema of one line.

    No prompt, token or output is ever a field, and tenants are keyed digests.
    """
    if json:
        document(json_schema())
        return
    table(COLUMNS, rows())


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
            help="Delete what was recorded before, in UTC; what is older than "
            "`evidence.retention_days` if left out.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")
    ] = False,
    cluster_key: ClusterFile = None,
    config_file: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings (TOML); defaults if left out."),
    ] = None,
    json: Json = False,
) -> None:
    """Delete sealed files whose time is over, and write down in the seals that they were.

    Running processes do this themselves, by `evidence.retention_days`, each for its own files.
    What was not sealed is never deleted: it is yours to delete, as are files of 0.1.0. Where seals
    are not those of the given key, nothing is.
    """
    days = config.read(config_file).evidence.retention_days
    folder = _folder(path)
    ring = _ring(folder, cluster_key)
    if ring is None:
        fail("no cluster key, so nobody would believe that files were pruned", "--cluster-key FILE")
    _check(folder, ring)
    over = _unix_ns(before) if before else time.time_ns() - days * NS_PER_DAY
    gone = [seal for seals in _nodes(folder, ring) for seal in _prune(seals, over, dry_run)]
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
    found = [(f.file, f.state, _n(f.records), _n(f.first), _n(f.last), f.reason) for f in bad]
    if found:
        table(FILE_COLUMNS, found)
        say("")
    for node in chain.nodes:
        holds = "the chain holds" if node.holds else f"the chain does not hold: {node.reason}"
        lines = f"{node.entries} {'line' if node.entries == 1 else 'lines'}"
        say(f"{plain(node.node)}: {lines}, {plain(holds)}; head {plain(node.head[:16]) or 'none'}")
    counts = Counter(_counted(file) for file in chain.files)
    say(", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "no evidence")
    say("whole" if chain.whole else "NOT whole")
    if not chain.proven:
        note(HASHES_ONLY)


def _counted(file: Sealing) -> str:
    """What a file counts as: one that a later life has sealed was open until then."""
    later = file.state is FileState.SEALED and file.act is Act.RECOVERED
    return Act.RECOVERED if later else file.state


def _n(number: int | None) -> str:
    return "" if number is None else str(number)


def _nodes(folder: Path, ring: Keyring) -> Iterator[Seals]:
    for path in sorted(folder.glob(f"*{SEALS}")):
        yield Seals(folder, path.name.removesuffix(SEALS), ring)


def _check(folder: Path, ring: Keyring) -> None:
    """Refuse to write into seals that this key did not make, and name files that were changed."""
    chain = verify(folder, ring)
    for node in chain.nodes:
        if not node.holds:
            fail(
                f"{plain(node.node)}: the chain does not hold, so nothing is deleted: "
                f"{plain(node.reason)}",
                "`kvairlock evidence verify` says more; --cluster-key FILE: the key that sealed",
            )
    changed = [file.file for file in chain.files if file.state is FileState.ALTERED]
    if changed:
        note(f"altered, and still said to be when they are deleted: {', '.join(changed)}")


def _prune(seals: Seals, before_unix_ns: int, dry_run: bool) -> list[Seal]:
    over = expired(seals, before_unix_ns)
    if not dry_run:
        prune(seals, over)
    return over


def _unix_ns(day: datetime) -> int:
    return int(day.replace(tzinfo=UTC).timestamp()) * 10**9


def _pruned_row(seal: Seal) -> tuple[str, ...]:
    at = datetime.fromtimestamp(seal.content.until_unix_ns / 10**9, UTC)
    content = seal.content
    kib = f"{content.bytes / 1024:.0f}"
    return (content.file, f"{at:%Y-%m-%d %H:%M}", str(content.records), kib)
