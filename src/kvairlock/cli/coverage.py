"""`kvairlock coverage`: which share of page reads was covered by which check, and what is waived.

Covered is a route whose reads were all checked while every guard enforced, and whose guards all
enforce now. What is not stated is not covered, nor are reads of which it is not said what vouched
for them. Time in which a guard only observed is not covered either; nothing is left out of the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
import typer
from msgspec import Meta

from kvairlock.cli.operator import DEFAULT_URL, KeyFile, Url, operator, shaped
from kvairlock.cli.output import Json, Status, document, say, table
from kvairlock.core.checks import Cover
from kvairlock.core.guards import GuardMode
from kvairlock.gateway.coverage import RouteCoverage, ShownWaiver

NOT_COVERED = (Cover.OBSERVED, Cover.UNCOVERED)
UNSTATED = "not stated"
PERCENT = 100


class Told(msgspec.Struct, frozen=True):
    """What is needed of `/status`."""

    coverage: Annotated[tuple[RouteCoverage, ...], Meta(min_length=1)]
    waivers: tuple[ShownWaiver, ...]


def coverage(url: Url = DEFAULT_URL, key_file: KeyFile = None, json: Json = False) -> None:
    """Show what share of page reads was covered by which check; exit status 1 if any was by none.

    Also what does not enforce now, by whom that is stated, and the waivers that allow it.
    """
    with operator(url, key_file) as gateway:
        told = shaped(gateway.status(), Told)
    if json:
        document(_document(told))
    else:
        _print(told)
    covered = all(is_covered(route) for route in told.coverage)
    raise typer.Exit(Status.OK if covered else Status.NOT_OK)


def is_covered(route: RouteCoverage) -> bool:
    """Whether all reads of a route were checked, and all its guards are known to enforce now."""
    enforcing = all(one.mode == GuardMode.ENFORCING for one in route.relaxed)
    counted = _is_counted(route) and not any(route.reads[cover] for cover in NOT_COVERED)
    return counted and enforcing and not route.unstated


def _is_counted(route: RouteCoverage) -> bool:
    """Whether it is stated of every read what vouched for the page."""
    whole = route.reads.keys() == set(Cover)
    return whole and sum(route.reads.values()) == route.pages_read


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
    say("")
    say(_verdict(told.coverage))


def _verdict(routes: Sequence[RouteCoverage]) -> str:
    uncovered = [route.route for route in routes if not is_covered(route)]
    unread = [route.route for route in routes if route.pages_read == 0]
    if uncovered:
        return f"not covered: {', '.join(uncovered)}"
    if len(unread) == len(routes):
        return "no page was read yet; every guard enforces"
    more = f"; no page was read yet on {', '.join(unread)}" if unread else ""
    return f"every route is covered{more}"


def _row(route: RouteCoverage) -> Sequence[str]:
    if route.pages_read is None:
        return (route.route, UNSTATED, *("" for _ in Cover))
    shares = _shares(route)
    parts = (f"{shares[cover] * PERCENT:.2f} %" if cover in shares else "" for cover in Cover)
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
