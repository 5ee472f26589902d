"""`kvairlock coverage`: which share of page reads was covered by which check, and what is waived.

Covered is a route whose reads were all checked while every guard enforced, and whose guards all
enforce now. What is not stated is not covered. Time in which a guard only observed is not covered
either; nothing is left out of the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import typer

from kvairlock.cli.operator import DEFAULT_URL, KeyFile, Url, operator
from kvairlock.cli.output import Json, Status, document, fail, say, table
from kvairlock.core.checks import Cover
from kvairlock.core.guards import GuardMode
from kvairlock.gateway.coverage import RouteCoverage, ShownWaiver

NOT_COVERED = (Cover.OBSERVED, Cover.UNCOVERED)
UNSTATED = "not stated"
PERCENT = 100


class Told(msgspec.Struct, frozen=True):
    """What is needed of `/status`."""

    coverage: tuple[RouteCoverage, ...]
    waivers: tuple[ShownWaiver, ...]


def coverage(url: Url = DEFAULT_URL, key_file: KeyFile = None, json: Json = False) -> None:
    """Show what share of page reads was covered by which check; exit status 1 if any was by none.

    Also what does not enforce now, by whom that is stated, and the waivers that allow it.
    """
    with operator(url, key_file) as gateway:
        told = _read(gateway.status())
    if json:
        document(_document(told))
    else:
        _print(told)
    covered = all(is_covered(route) for route in told.coverage)
    raise typer.Exit(Status.OK if covered else Status.NOT_OK)


def is_covered(route: RouteCoverage) -> bool:
    """Whether all reads of a route were checked, and all its guards are known to enforce now."""
    stated = route.pages_read is not None and not route.unstated
    enforcing = all(one.mode == GuardMode.ENFORCING for one in route.relaxed)
    return stated and enforcing and not any(route.reads.get(cover) for cover in NOT_COVERED)


def _read(status: dict[str, Any]) -> Told:
    try:
        return msgspec.convert(status, Told)
    except msgspec.ValidationError as error:
        fail(f"the gateway does not state its coverage: {error}", status=Status.NOT_OK)


def _document(told: Told) -> dict[str, Any]:
    return {
        "ok": all(is_covered(route) for route in told.coverage),
        "routes": [
            {
                **msgspec.to_builtins(route),
                "shares": {cover.value: share for cover, share in _shares(route).items()},
                "covered": is_covered(route),
            }
            for route in told.coverage
        ],
        "waivers": msgspec.to_builtins(told.waivers),
    }


def _shares(route: RouteCoverage) -> dict[Cover, float]:
    """Return the parts of a route's reads, from 0 to 1; none where there were no reads."""
    if not route.pages_read:
        return {}
    return {cover: reads / route.pages_read for cover, reads in route.reads.items()}


def _print(told: Told) -> None:
    titles = ("route", "page reads", *(cover.value.replace("_", " ") for cover in Cover))
    table(titles, [_row(route) for route in told.coverage])
    _print_relaxed(told.coverage)
    if told.waivers:
        say("")
        titles = ("waiver", "state", "owner", "relaxes", "conditions", "before it is widened")
        table(titles, [_waiver(waiver) for waiver in told.waivers])
    uncovered = [route.route for route in told.coverage if not is_covered(route)]
    say("")
    say(f"not covered: {', '.join(uncovered)}" if uncovered else "every route is covered")


def _row(route: RouteCoverage) -> Sequence[str]:
    if route.pages_read is None:
        return (route.route, UNSTATED, *("" for _ in Cover))
    shares = _shares(route)
    parts = (f"{shares[cover] * PERCENT:.2f} %" if shares else "" for cover in Cover)
    return (route.route, str(route.pages_read), *parts)


def _print_relaxed(routes: Sequence[RouteCoverage]) -> None:
    rows = [
        (route.route, one.node, one.guard, one.mode, one.checks, one.waiver or "drill")
        for route in routes
        for one in route.relaxed
    ]
    rows += [(r.route, name, "", UNSTATED, "", "") for r in routes for name in r.unstated]
    if rows:
        say("")
        table(("route", "stated by", "guard", "is", "pages digested", "allowed by"), rows)


def _waiver(waiver: ShownWaiver) -> Sequence[str]:
    until = datetime.fromtimestamp(waiver.expires_unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    left = f", {timedelta(seconds=waiver.seconds_left)} left" if waiver.seconds_left > 0 else ""
    state = f"{waiver.state.value.replace('_', ' ')} to {until}{left}"
    relaxes = "; ".join(waiver.relaxes)
    return (waiver.name, state, waiver.owner, relaxes, waiver.conditions, waiver.evidence)
