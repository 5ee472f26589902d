"""`kvairlock audit`: who was affected, who provably was not, and who can't be told, by evidence."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kvairlock.cli import audit_foreign
from kvairlock.cli.audit_group import UNNAMED, WithUnnamed
from kvairlock.cli.extras import need_audit
from kvairlock.cli.output import Json

app = typer.Typer(
    cls=WithUnnamed,
    help="""Sort every request into affected, excluded or insufficient evidence.

    `kvairlock audit PATH...` is short for `kvairlock audit run PATH...`: PATH is a file or folder
    of evidence, or several; the state folder's if none is given. No prompt is read, there is none
    in evidence; tenants and requests are digests. `kvairlock audit confirm` gives them names, once
    somebody has authorised it. `kvairlock explain` tells the whole story of one request.

    Exit status: 0 all are excluded, 1 somebody is affected, 3 nobody is known to be affected and
    for some there is too little evidence, or nobody is judged at all, 2 wrong options or files, 70
    kvairlock itself failed.""",
)

TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]
NS = 10**9

State = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="State folder; the one that the evidence lies in."),
]
ClusterKey = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Cluster keys; the state folder's if left out."),
]
Memory = Annotated[
    str,
    typer.Option(metavar="SIZE", help="What may be in memory; the rest goes to temporary files."),
]
Threads = Annotated[int, typer.Option(min=1, help="How many threads compute.")]
MEMORY, THREADS = "2200MB", 2


class Also(StrEnum):
    """Whom `confirm` may name beside affected requests."""

    INSUFFICIENT = "insufficient"
    EXPOSED = "exposed"


@app.command(UNNAMED)
def run(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...", help="Files or folders; the state folder's if left out."
        ),
    ] = None,
    json: Json = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a page with pictures.")
    ] = None,
    case: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also open a case, for `audit confirm`: digests only."),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(formats=TIMES, help="Only requests that began then or later, in UTC."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(formats=TIMES, help="Only requests that began before, in UTC."),
    ] = None,
    show: Annotated[
        int, typer.Option(metavar="N", min=0, help="How many requests of a list to print as text.")
    ] = 20,
    state: State = None,
    cluster_key: ClusterKey = None,
    memory: Memory = MEMORY,
    threads: Threads = THREADS,
) -> None:
    """Classify every request, and say what was covered and what was not.

    Affected: records show that it read, or could have read, what was not its own. Excluded: every
    link of its chain is on record, and nothing speaks against it. Insufficient: neither. Lists of
    all three are in --json; the page of --html has pictures of the pages concerned.
    """
    need_audit()
    from kvairlock.cli.auditing import Asked, Limits, audit_and_report

    asked = Asked(
        paths, Limits(memory, threads), _unix_ns(since), _unix_ns(until), state, cluster_key
    )
    raise typer.Exit(audit_and_report(asked, json=json, html=html, case=case, show=show))


@app.command()
def confirm(
    case: Annotated[Path, typer.Argument(metavar="CASE", help="The folder that --case made.")],
    authorised_by: Annotated[
        str, typer.Option(metavar="NAME", help="Who authorises that names are joined.")
    ],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept with the case.")],
    requests: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Ids that clients got, from an access log of yours: JSON lines or CSV.",
        ),
    ] = None,
    id_field: Annotated[
        str, typer.Option(metavar="NAME", help="Which field or column of it has the id.")
    ] = "id",
    also: Annotated[
        list[Also] | None,
        typer.Option(help="Name these as well: without evidence, or whose pages could be read."),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="API keys, with tenants; the state folder's."),
    ] = None,
    state: State = None,
    cluster_key: ClusterKey = None,
    json: Json = False,
) -> None:
    """Record who authorises it, then find names for the affected requests of a case.

    The authorisation is written down first; if that can't be done, nothing is joined. Names go into
    a file of the case that only its owner can read, and nowhere else: not into the list of
    candidates, not onto the screen. A case whose evidence has changed since is refused.
    """
    need_audit()
    from kvairlock.cli.audit_confirm import Wanted, confirm_case

    wanted = Wanted(authorised_by, reason, tuple(map(str, also or ())), requests, id_field)
    confirm_case(case, wanted, keys, state, cluster_key, json=json)


app.command("foreign")(audit_foreign.foreign)


def _unix_ns(moment: datetime | None) -> int | None:
    """Return a time as it was meant: in UTC if it does not say otherwise."""
    if moment is None:
        return None
    told = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(told.timestamp()) * NS
