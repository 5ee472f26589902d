"""`kvairlock keys`: the keys of tenants, and the keys that the processes know each other by."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kvairlock.cli import places
from kvairlock.cli.output import Json, document, fail, note, say, table
from kvairlock.gateway.keys import ApiKeys, Entry
from kvairlock.runtime.secrets import VARIABLE, load_keyring
from kvairlock.wire.keys import Keyring

RING_KEYS_MAX = 2
ROTATED = (
    "the first key signs from the next start on, the second is still believed; stop and start "
    "`kvairlock serve`, on every machine of the cluster with the same file"
)

app = typer.Typer(no_args_is_help=True, help="API keys of tenants, and keys of the cluster.")

KeysFile = Annotated[
    Path | None,
    typer.Option("--keys", metavar="FILE", help="Key file; the state directory's if left out."),
]
ClusterFile = Annotated[
    Path | None,
    typer.Option(
        "--cluster-key",
        metavar="FILE",
        help="Cluster key file; the state directory's if left out.",
    ),
]


@app.command()
def add(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Whose requests it makes.")],
    scope: Annotated[
        str,
        typer.Option(
            metavar="SCOPE",
            help="Who may share its prefix pages: private (the tenant), none, group:NAME, public.",
        ),
    ] = "private",
    operator: Annotated[
        bool, typer.Option("--operator", help="Also opens the operator's endpoints.")
    ] = False,
    keys: KeysFile = None,
    json: Json = False,
) -> None:
    """Make an API key and print it, this once: only its hash is kept.

    A running gateway takes it at once. Without --json, stdout is the key and nothing else.
    """
    path = _keys_path(keys)
    key = ApiKeys(path).issue(tenant, scope, operator)
    entry = next(e for e in ApiKeys.load(path).entries() if key.startswith(f"kva-{e.id}-"))
    if json:
        document({**_shown(entry), "key": key})
        return
    note(f"key {entry.id} of tenant {tenant} is in {path}; it is shown this once:")
    say(key)


@app.command(name="list")
def list_keys(keys: KeysFile = None, json: Json = False) -> None:
    """List the API keys: whose they are, never the keys."""
    entries = ApiKeys.load(_existing_keys(keys)).entries()
    if json:
        document([_shown(entry) for entry in entries])
        return
    rows = [(e.id, e.tenant, e.scope, "yes" if e.operator else "no") for e in entries]
    table(("id", "tenant", "scope", "operator"), rows)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id from `kvairlock keys list`.")],
    keys: KeysFile = None,
    json: Json = False,
) -> None:
    """Take a key away. A running gateway refuses it from its next request on."""
    path = _existing_keys(keys)
    if key_id not in {entry.id for entry in ApiKeys.load(path).entries()}:
        fail(f"{path} has no key with id {key_id!r}", "`kvairlock keys list` shows the ids")
    ApiKeys(path).revoke(key_id)
    if json:
        document({"revoked": key_id})
    else:
        say(f"key {key_id} is revoked")


@app.command()
def cluster(
    rotate: Annotated[
        bool,
        typer.Option(
            "--rotate", help="Put a new key in front, keep the one that signed, drop older."
        ),
    ] = False,
    cluster_key: ClusterFile = None,
    json: Json = False,
) -> None:
    """Show the ids of the cluster's keys, never the keys; make the file if there is none.

    All processes of a cluster share these keys. The first one signs, all of them are believed.
    """
    if VARIABLE in os.environ:
        fail(f"{VARIABLE} is set, so that no file is used", f"unset {VARIABLE}, or change it there")
    path = cluster_key or places.default_state() / places.CLUSTER_KEY_FILE
    if not path.exists():
        ring = Keyring.parse(places.fresh_key())
        places.write_ring(path, ring)
    elif rotate:
        ring = rotated(load_keyring(path))
        places.write_ring(path, ring)
    else:
        ring = load_keyring(path)
    _show_ring(path, ring, rotate, json)


def rotated(ring: Keyring) -> Keyring:
    """Return a ring with a fresh key in front of the one that signed; older ones are gone."""
    fresh = Keyring.parse(places.fresh_key()).keys
    kept = list(ring.keys.items())[: RING_KEYS_MAX - 1]
    return Keyring({**fresh, **dict(kept)})


def _show_ring(path: Path, ring: Keyring, rotate: bool, json: bool) -> None:
    ids = list(ring.keys)
    if json:
        document({"file": str(path), "signs": ids[0], "believed": ids})
        return
    say(f"{path}: {ids[0]} signs; believed: {', '.join(ids)}")
    if rotate:
        note(f"  next: {ROTATED}")


def _keys_path(named: Path | None) -> Path:
    return named or places.default_state() / places.KEYS_FILE


def _existing_keys(named: Path | None) -> Path:
    path = _keys_path(named)
    if not path.exists():
        fail(f"{path}: there is no such file", "`kvairlock keys add TENANT` makes one")
    return path


def _shown(entry: Entry) -> dict[str, str | bool]:
    return {
        "id": entry.id,
        "tenant": entry.tenant,
        "scope": entry.scope,
        "operator": entry.operator,
    }
