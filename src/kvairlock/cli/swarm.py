"""`kvairlock swarm`: random runs through large worlds, from a seed, on all cores."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from kvairlock.cli.output import Json, Status, document, fail, say

if TYPE_CHECKING:
    from kvairlock.sim.crowd import Swarmed

SECONDS = 30
SEED = "2026"
NAMED = re.compile(r".+/[0-9]+")
"""A run, as failures name it."""


def swarm(
    seconds: Annotated[int, typer.Option(min=1, help="How long to go on.")] = SECONDS,
    seed: Annotated[str, typer.Option(help="What all runs are drawn from.")] = SEED,
    again: Annotated[
        str, typer.Option(metavar="SEED/NUMBER", help="Make one run again, as a failure names it.")
    ] = "",
    json: Json = False,
) -> None:
    """Run the real core through large random worlds; exit status 0 if no invariant breaks.

    Everything is drawn from the seed: pools, requests, tenants, policies, flaws of prefill, faults
    and their order. Each run is healed at its end: then all requests must end and all pages come
    back. Whatever fails is printed with its seed and the shortest schedule found to fail alike.
    """
    if again and not NAMED.fullmatch(again):
        fail(f"no run is called {again}", f"name it as failures do: SEED/NUMBER, as {SEED}/0")
    # Here and not above: no other command has to wait until the simulator is loaded.
    from kvairlock.sim import crowd

    found = crowd.make(again) if again else crowd.swarm(seed, seconds)
    missed = [] if again else found.missed
    if json:
        document(
            {
                "seed": again or seed,
                "runs": found.runs,
                "moves": found.moves,
                "violations": len(found.failures),
                "failures": [failure.document() for failure in found.failures],
                "sometimes_missed": missed,
            }
        )
    else:
        _show(found, missed)
    raise typer.Exit(Status.NOT_OK if found.failures or missed else Status.OK)


def _show(found: Swarmed, missed: list[str]) -> None:
    for failure in found.failures:
        say(f"{failure.seed}: {failure.violation}")
        say(f"  {failure.about}")
        for line in failure.transcript:
            say(f"  {line}")
    say(f"{found.runs:,} runs, {found.moves:,} moves, {len(found.failures)} violations")
    if missed:
        say(f"never reached: {', '.join(missed)}")
