"""`kvairlock capacity`: what each node and route holds now, by their own reports; and resizing."""

from __future__ import annotations

import time
from typing import Annotated, NoReturn

import typer

from kvairlock.cli.holdings import (
    Held,
    Stack,
    as_document,
    figures,
    held_by,
    lengths_promised,
    print_tables,
)
from kvairlock.cli.operator import DEFAULT_URL, KeyFile, Operator, Url, operator, shaped
from kvairlock.cli.output import Json, Status, document, fail, say

RESIZE_S = 15.0
LOOK_S = 0.1


def capacity(
    length: Annotated[
        list[int] | None,
        typer.Option(
            "--length",
            min=1,
            metavar="TOKENS",
            help="Say how many requests of this length are held at one time; may be repeated. If "
            "left out: of the promised length, and of each class of the commitment.",
        ),
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Resize this node; needs --pages.")
    ] = None,
    pages: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Pages that requests may have on --node from now on, at most those it mapped at "
            "its start.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    key_file: KeyFile = None,
    json: Json = False,
) -> None:
    """Show what the nodes of a running stack hold; exit status 1 if a route is closed.

    With --node and --pages a node is resized, and the command waits until it reports that.
    """
    if (node is None) != (pages is None):
        fail("--node and --pages belong together")
    with operator(url, key_file) as gateway:
        if node is not None and pages is not None:
            _resized(_resize(gateway, node, pages), json)
        else:
            _show(_stack(gateway), set(length or ()), json)


def _stack(gateway: Operator) -> Stack:
    return shaped(gateway.status(), Stack)


def _show(stack: Stack, asked: set[int], json: bool) -> None:
    lengths = sorted(asked or lengths_promised(stack))
    if json:
        document(as_document(stack, lengths))
    else:
        print_tables(stack, lengths)
    raise typer.Exit(Status.NOT_OK if stack.closed else Status.OK)


def _resize(gateway: Operator, node: str, pages: int) -> Held:
    """Tell a node how many pages requests may have, and wait until it reports that."""
    before = held_by(_stack(gateway), node)
    gateway.post(f"/nodes/{node}/pages", {"pages": pages})
    until = time.monotonic() + RESIZE_S
    while time.monotonic() < until:
        held = held_by(_stack(gateway), node)
        if held is not None and before is not None:
            if held.report.incarnation != before.report.incarnation:
                _restarted(node)
            if held.report.pages == pages:
                return held
        time.sleep(LOOK_S)
    fail(f"{node} did not report {pages} pages within {RESIZE_S:.0f} s", status=Status.NOT_OK)


def _restarted(node: str) -> NoReturn:
    message = f"{node} has started again meanwhile, with the pages of its settings"
    fail(message, "resize it once more", Status.NOT_OK)


def _resized(held: Held, json: bool) -> None:
    report = held.report
    if json:
        document({"resized": {"node": report.node, **figures(held)}})
        return
    say(
        f"{report.node} reports {report.pages} of {held.mapped} pages, epoch {report.epoch}; "
        f"longest request {report.longest_tokens} tokens"
    )
    if held.surplus:
        say(f"{held.surplus} pages are still used, and are withdrawn as they come back")
