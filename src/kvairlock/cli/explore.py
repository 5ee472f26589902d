"""`kvairlock explore`: every schedule of the small worlds, and what breaks without each guard."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvairlock.cli.output import Json, Status, document, fail, note, say, table

if TYPE_CHECKING:
    from kvairlock.sim.family import Explorations, Row

FAMILY = "small"


def explore(
    world: Annotated[
        str, typer.Option(metavar="NAME", help="The family `small`, one of its worlds, or `large`.")
    ] = FAMILY,
    mutants: Annotated[
        bool, typer.Option("--mutants", help="Only switch each guard off, and show what breaks.")
    ] = False,
    worlds: Annotated[bool, typer.Option("--list", help="Only list the worlds.")] = False,
    json: Json = False,
) -> None:
    """Run the real core through every order of events; exit status 0 if no invariant breaks.

    A family of small worlds is explored to its end on all cores: messages late, lost, twice and
    overtaken, writes page by page, crashes, suspensions, broken links, clients that leave. Then
    each guard is switched off in a world where nothing else is in the way: its absence must show.
    """
    # Here and not above: no other command has to wait until the simulator is loaded.
    from kvairlock.sim.family import explore_mutants
    from kvairlock.sim.worlds import named

    if not named(world):
        fail(f"no world {world}", "`kvairlock explore --list` names them")
    if mutants and world != FAMILY:
        fail("--mutants has worlds of its own", "leave --world out: each guard has one")
    if worlds:
        _list(json)
        return
    began = time.monotonic()
    told = note if sys.stderr.isatty() else None
    if mutants:
        rows = explore_mutants(told=told)
        _show_mutants(rows, json)
        raise typer.Exit(Status.OK if all(row.caught for row in rows) else Status.NOT_OK)
    raise typer.Exit(_explore(world, json, told, began))


def _explore(world: str, json: bool, told: Callable[[str], None] | None, began: float) -> Status:
    from kvairlock.sim.family import explore_family, explore_mutants  # as above

    found = explore_family(world, told)
    rows = explore_mutants(told=told) if world == FAMILY else ()
    uncaught = [row.mutant.guard.value for row in rows if not row.caught]
    adequate = not uncaught and not found.missed if world == FAMILY else None
    seconds = time.monotonic() - began
    if json:
        whole: dict[str, Any] = {
            "world": world,
            **found.document(),
            "adequate": adequate,
            "guards_missed": uncaught,
            "seconds": round(seconds, 1),
        }
        document(whole)
    else:
        _show(found)
        _sum_up(found, adequate, uncaught, seconds)
    fine = found.complete and not found.violations and adequate is not False
    return Status.OK if fine else Status.NOT_OK


def _show(found: Explorations) -> None:
    rows = []
    for world, one in zip(found.worlds, found.found, strict=True):
        faults = ", ".join(
            f"{most} {kind}" for kind, most in world.budget._asdict().items() if most
        )
        state = one.violation or ("all explored" if one.complete else "given up")
        rows.append((world.name, faults, f"{one.states:,}", f"{one.transitions:,}", state))
    table(("world", "faults at one time", "states", "moves", "found"), rows)
    for world, one in zip(found.worlds, found.found, strict=True):
        if one.violation:
            say(f"\n{world.name}: {one.violation}")
            _say_schedule(one.transcript)


def _sum_up(
    found: Explorations, adequate: bool | None, uncaught: Sequence[str], seconds: float
) -> None:
    whole = found.document()
    say(
        f"\n{whole['states']:,} states, {whole['transitions']:,} moves in {seconds:.0f} s, "
        f"{whole['per_second']:,} a second of each core; "
        f"{found.violations} violations, {'complete' if found.complete else 'not complete'}"
    )
    if found.missed:
        say(f"never reached: {', '.join(found.missed)}")
    if uncaught:
        say(f"not missed when off: {', '.join(uncaught)}")
    if adequate:
        say("adequate: every rare state was reached, and every guard was missed when it was off")


def _show_mutants(rows: Sequence[Row], json: bool) -> None:
    found = [row.document() for row in rows]
    if json:
        document({"rows": found})
        return
    for row in found:
        state = "caught" if row["caught"] else "NOT CAUGHT"
        say(f"\n{row['guard']}: {state}. {row['story']}.")
        _say_schedule(row["schedule"])


def _say_schedule(lines: Sequence[str]) -> None:
    for line in lines:
        say(f"  {line}")


def _list(json: bool) -> None:
    from kvairlock.sim.worlds import LARGEST, WORLDS  # as above

    listed = [(world.name, world.about) for world in (*WORLDS, LARGEST)]
    if json:
        document([{"name": name, "about": about} for name, about in listed])
    else:
        table(("world", "about"), listed)
