"""`kvairlock demo`: the incident on demand, with the guards off and on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvairlock.cli.output import Json
from kvairlock.cli.stopping import stopped_in_order
from kvairlock.drills.demo.run import run


def demo(
    json: Json = False,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep evidence and logs of every scenario here."),
    ] = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this scenario; may be given more than once."),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the message of each refusal.")
    ] = False,
) -> None:
    """Replay leaks between tenants with guards off, then on; exit status 0 if all came out so.

    The scenarios are hypothetical reconstructions. Off must leak, on must refuse.
    """
    with stopped_in_order():
        raise typer.Exit(run(json=json, keep=keep, only=scenario or (), verbose=verbose))
