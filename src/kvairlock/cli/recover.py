"""`kvairlock recover` and `breaker`: routes that take no requests, and how they do again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
import typer
from msgspec import Meta
from rich.console import Console

from kvairlock.cli.operator import DEFAULT_URL, KeyFile, Operator, Url, operator, shaped
from kvairlock.cli.output import Json, Status, document, fail, plain, say, table, trouble
from kvairlock.core.promise.breaker import BreakerState
from kvairlock.core.promise.trial import RECORDS, RecordKind

RECOVER_S = 300.0
"""How long a replay may take: a request waits for pages, and for its node, as long as it is set."""

KEPT = "yes"
"""What a gateway says of breakers that will be the same after a restart of it."""

Told = dict[str, Any]
RouteName = Annotated[
    str, typer.Argument(metavar="ROUTE", help="PREFILL/DECODE, for example prefill-0/decode-0.")
]


class Shown(msgspec.Struct, frozen=True):
    """What is needed of a route and its breaker."""

    route: str
    takes_requests: str
    kept: str
    breaker: BreakerState
    explained: str
    missing: tuple[RecordKind, ...]


class Record(msgspec.Struct, frozen=True):
    """What was found of one record."""

    record: RecordKind
    on_record: Literal["yes", "no"]
    facts: tuple[str, ...]
    lacks: tuple[str, ...]


class Looked(Shown, frozen=True):
    """A route of which the records were looked for."""

    records: tuple[Record, ...]


class Listed(msgspec.Struct, frozen=True):
    """What is needed of `/routes`."""

    routes: Annotated[tuple[Shown, ...], Meta(min_length=1)]


app = typer.Typer(no_args_is_help=True, help="The breakers of routes.")


def recover(
    route: RouteName,
    show: Annotated[
        bool, typer.Option("--show", help="Replay nothing and close nothing; say what is missing.")
    ] = False,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Have a route take requests again: three records, then its breaker is closed.

    Shows that the commitment holds for the route, asks each of its nodes for one token more than it
    holds, past the gateway's own check, and asks both what is in effect on them. Exit status 1 and
    the missing record, if one of the three is not there.
    """
    with operator(url, key_file) as gateway:
        told = gateway.get(_path(route))
        looked = shaped(told, Looked)
        if looked.breaker is BreakerState.CLOSED:  # records are about its opening: there is none
            told, looked = {**told, "records": []}, msgspec.structs.replace(looked, records=())
        elif not show:
            told = _recover(gateway, route)
            looked = shaped(told, Looked)
    if json:
        document(told)
    else:
        _print(looked)
    _end([looked])


@app.command(name="list")
def list_breakers(url: Url = DEFAULT_URL, key_file: KeyFile = None, json: Json = False) -> None:
    """List all routes with the state of their breakers. Exit status 1 if one is not closed."""
    with operator(url, key_file) as gateway:
        told = gateway.get("/routes")
        listed = shaped(told, Listed)
    if json:
        document(told)
    else:
        rows = [_row(each) for each in listed.routes]
        table(("route", "takes requests", "breaker", "missing", "why"), rows)
    _end(listed.routes)


@app.command(name="open")
def open_breaker(
    route: RouteName,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is recorded and shown.")],
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Open a route's breaker by hand: it takes no requests until `kvairlock recover` closes it.

    Exit status 1 if the gateway cannot write that down: its next life would not know of it.
    """
    with operator(url, key_file) as gateway:
        told = gateway.post(f"{_path(route)}/open", {"reason": reason})
        shown = shaped(told, Shown)
    document(told) if json else say(_state(shown))
    if shown.kept != KEPT:
        raise typer.Exit(Status.NOT_OK)


@app.command(name="try")
def try_out(
    route: RouteName, url: Url = DEFAULT_URL, key_file: KeyFile = None, json: Json = False
) -> None:
    """Half-open a route's breaker: it takes requests of operators who name it, and no others."""
    with operator(url, key_file) as gateway:
        told = gateway.post(f"{_path(route)}/try", {})
        shown = shaped(told, Shown)
    document(told) if json else say(_state(shown))


def _recover(gateway: Operator, route: str) -> Told:
    console = Console(stderr=True)
    with console.status(f"asking the nodes of {route} for more than they hold"):
        return gateway.post(f"{_path(route)}/recover", {}, RECOVER_S)


def _path(route: str) -> str:
    """Return where a route is, and refuse what would lead elsewhere."""
    parts = route.split("/")
    if len(parts) != 2 or not all(part.replace("-", "").isalnum() for part in parts):
        fail(f"{route!r} is no route", "PREFILL/DECODE is one; `kvairlock breaker list` shows all")
    return f"/routes/{route}"


def _print(looked: Looked) -> None:
    """Print what was found, if anything was looked for, and how it is now."""
    for record in looked.records:
        say(f"{record.record.value}: {_standing(record)}\n  {RECORDS[record.record]}")
        for fact in record.facts:
            say(f"  - {plain(fact)}")
        for lack in record.lacks:
            say(f"  ! {plain(lack)}")
    say(_state(looked))
    if looked.breaker is not BreakerState.CLOSED:
        missing = ", ".join(looked.missing) or "nothing"
        trouble(f"missing: {missing}", "docs/breaker.md says what each needs")


def _standing(record: Record) -> str:
    """Say how it is with one record."""
    if record.on_record == "yes":
        return "on record"
    return "missing" if record.lacks else "nothing is against it, and it is not on record"


def _state(shown: Shown) -> str:
    said = f"{shown.route}: {plain(shown.explained)}"
    return said if shown.kept == KEPT else f"{said}\n  {_unkept(shown)}"


def _unkept(shown: Shown) -> str:
    return f"not written down ({plain(shown.kept)}): a restart of the gateway would undo it"


def _row(shown: Shown) -> tuple[str, ...]:
    missing = ", ".join(shown.missing) or "-"
    why = shown.explained if shown.kept == KEPT else f"{shown.explained}; {_unkept(shown)}"
    return shown.route, shown.takes_requests, shown.breaker, missing, why


def _end(routes: Sequence[Shown]) -> None:
    """End with a status that says whether all breakers are closed."""
    if any(each.breaker is not BreakerState.CLOSED for each in routes):
        raise typer.Exit(Status.NOT_OK)
