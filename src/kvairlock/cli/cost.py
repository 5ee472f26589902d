"""`kvairlock cost`: what cancels, overload, stops and crashes cost, beside load without them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvairlock.cli.output import Json, fail
from kvairlock.cli.stopping import stopped_in_order
from kvairlock.drills.cost.run import Setting, run

SEED = 2026


def cost(
    requests: Annotated[int, typer.Option(min=8, help="Requests of each load in each round.")] = 80,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How often each load is played.")] = 3,
    concurrency: Annotated[
        int,
        typer.Option(min=2, max=64, help="Requests at one time; overload has four times as many."),
    ] = 8,
    seed: Annotated[int, typer.Option(help="What requests and orders are drawn from.")] = SEED,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep evidence, settings and log here; must be empty."),
    ] = None,
    json: Json = False,
) -> None:
    """Measure what faults cost on a stack of its own; exit status 0 if no load leaked anything.

    Each round plays every load once: normal, cancels, over-long, overload, stops and crashes. One
    table has throughput, latency, refusals, drains and retries of all of them.
    """
    if keep is not None and keep.exists() and any(keep.iterdir()):
        fail(f"{keep}: is not empty", "name a folder that is empty, or that does not exist")
    with stopped_in_order():
        raise typer.Exit(run(Setting(requests, rounds, concurrency, seed), json=json, keep=keep))
