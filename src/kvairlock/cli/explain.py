"""`kvairlock explain`: all that is on record of one request, and a signed bundle to hand on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvairlock.cli.audit import MEMORY, THREADS, ClusterKey, Memory, State, Threads
from kvairlock.cli.extras import need_audit
from kvairlock.cli.output import Json, fail


def explain(
    request: Annotated[
        str | None,
        typer.Argument(
            metavar="REQUEST", help="The id that the client got, or a digest that an audit prints."
        ),
    ] = None,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...", help="Files or folders; the state folder's if left out."
        ),
    ] = None,
    json: Json = False,
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write what it rests on, signed, for its tenant."),
    ] = None,
    verify: Annotated[
        Path | None,
        typer.Option(metavar="BUNDLE", help="Verify a bundle instead; needs nothing else."),
    ] = None,
    public_key: Annotated[
        str,
        typer.Option(
            metavar="HEX|FILE", help="With --verify: whose signature it must be, got otherwise."
        ),
    ] = "",
    state: State = None,
    cluster_key: ClusterKey = None,
    memory: Memory = MEMORY,
    threads: Threads = THREADS,
) -> None:
    """Print one request's whole chain: promise, lease, window, receipt, checks, reads, end, drain.

    Also what is not on record of it, and the audit's verdict with its reasons. With an id, every
    attempt of the request is explained. A bundle holds the request's own records, what the verdict
    rests on, and nobody else's data; its key is made in the state folder on first use.

    Exit status: 0 excluded, 1 affected, 3 insufficient evidence; with --verify 0 if the bundle
    verifies, 1 if not, 3 if it does and no --public-key says who must have signed it; 2 wrong
    options, or nothing is on record of such a request; 70 kvairlock itself failed.
    """
    need_audit()
    from kvairlock.cli.auditing import Asked, Limits
    from kvairlock.cli.explaining import explain_request, verify_bundle

    if verify is not None:
        if request is not None or bundle is not None:
            fail("--verify takes a bundle, and no request", "kvairlock explain --verify BUNDLE")
        raise typer.Exit(verify_bundle(verify, public_key, json=json))
    if request is None:
        fail("which request?", "kvairlock explain REQUEST, or kvairlock explain --verify BUNDLE")
    if public_key:
        fail("--public-key is for --verify")
    asked = Asked(paths, Limits(memory, threads), state=state, cluster_key=cluster_key)
    raise typer.Exit(explain_request(request, asked, bundle, json=json))
