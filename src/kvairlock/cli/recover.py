"""`kvairlock recover` and `breaker`: routes that take no requests, and how they do again."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from kvairlock.cli.operator import DEFAULT_URL, KeyFile, Operator, Url, operator
from kvairlock.cli.output import Json, Status, document, fail, plain, say, table, trouble
from kvairlock.core.promise.trial import RECORDS, RecordKind

RECOVER_S = 300.0
"""How long a replay may take: a request waits for pages, and for its node, as long as it is set."""

Told = dict[str, Any]
RouteName = Annotated[
    str, typer.Argument(metavar="ROUTE", help="PREFILL/DECODE, for example prefill-0/decode-0.")
]

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

    Shows that the commitment holds for the route, asks its nodes for one token more than they hold,
    past the gateway's own check, and asks both what is in effect on them. Exit status 1 and the
    missing record, if one of the three is not there.
    """
    with operator(url, key_file) as gateway:
        told = gateway.get(_path(route))
        looks = show or told["breaker"] != "closed"
        if looks and not show:
            told = _recover(gateway, route)
    if json:
        document(told)
    else:
        _print(told, looks)
    if told["breaker"] != "closed":
        raise typer.Exit(Status.NOT_OK)


@app.command(name="list")
def list_breakers(url: Url = DEFAULT_URL, key_file: KeyFile = None, json: Json = False) -> None:
    """List all routes with the state of their breakers. Exit status 1 if one is not closed."""
    with operator(url, key_file) as gateway:
        told = gateway.get("/routes")
    if json:
        document(told)
    else:
        rows = [_row(each) for each in told["routes"]]
        table(("route", "takes requests", "breaker", "missing", "why"), rows)
    if any(each["breaker"] != "closed" for each in told["routes"]):
        raise typer.Exit(Status.NOT_OK)


@app.command(name="open")
def open_breaker(
    route: RouteName,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is recorded and shown.")],
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Open a route's breaker by hand: it takes no requests until `kvairlock recover` closes it."""
    with operator(url, key_file) as gateway:
        told = gateway.post(f"{_path(route)}/open", {"reason": reason})
    document(told) if json else say(f"{route}: {plain(told['explained'])}")


@app.command(name="try")
def try_out(
    route: RouteName, url: Url = DEFAULT_URL, key_file: KeyFile = None, json: Json = False
) -> None:
    """Half-open a route's breaker: it takes requests of operators who name it, and no others."""
    with operator(url, key_file) as gateway:
        told = gateway.post(f"{_path(route)}/try", {})
    document(told) if json else say(f"{route}: {plain(told['explained'])}")


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


def _print(told: Told, looks: bool) -> None:
    """Print what was found, if anything was looked for, and how it is now."""
    for record in told["records"] if looks else ():
        kind = RecordKind(record["record"])
        say(f"{kind.value}: {_standing(record)}\n  {RECORDS[kind]}")
        for fact in record["facts"]:
            say(f"  - {plain(fact)}")
        for lack in record["lacks"]:
            say(f"  ! {plain(lack)}")
    say(f"{told['route']}: {plain(told['explained'])}")
    if told["breaker"] != "closed":
        trouble(f"missing: {', '.join(told['missing'])}", "docs/breaker.md says what each needs")


def _standing(record: Told) -> str:
    """Say how it is with one record."""
    if record["on_record"] == "yes":
        return "on record"
    return "missing" if record["lacks"] else "nothing is against it, and it is not on record"


def _row(told: Told) -> tuple[str, ...]:
    missing = ", ".join(told["missing"]) or "-"
    return told["route"], told["takes_requests"], told["breaker"], missing, told["explained"]
