"""`kvairlock check`: what a deployment promises, against what its running nodes hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from kvairlock.check.checking import check as run
from kvairlock.check.deployment import DeploymentWrong, load
from kvairlock.check.embedded import Front
from kvairlock.check.findings import Findings
from kvairlock.check.reading import NodeKind, Reading
from kvairlock.cli.output import Json, Status, document, fail, plain, say, table
from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.core.promise.commitment import Reach, RouteReports, RouteState, serves
from kvairlock.core.terms import Role

NOTHING = "-"
ROUTES = ("route", "class", "promised", "holds", "limit", "node", "verdict")
NODES = ("node", "kind", "role", "advertises", "admits", "holds", "limit", "fingerprint")
SPARE = frozenset({"role", "kind", "admits", "limit"})
HINT = "docs/capacity.md has an example of such a file"


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The deployment, in TOML.")],
    json: Json = False,
) -> None:
    """Compare what a deployment promises with what its running nodes report that they hold.

    The file has a commitment and says where the gateway of an embedded stack is, or vLLM and SGLang
    servers. Each violation is printed with its figures and its route. Exit status 0 if all that is
    promised is held, 1 if not or if a node does not say what it holds, 2 if the file is wrong.
    """
    try:
        findings = run(load(file), file.parent)
    except DeploymentWrong as error:
        fail(str(error), HINT)
    if json:
        document(findings.document())
    else:
        _show(findings)
    raise typer.Exit(Status.OK if findings.kept else Status.NOT_OK)


def _show(findings: Findings) -> None:
    fronts = [_front(front) for front in findings.fronts]
    rows = [row for route in findings.routes for row in _rows(findings, route)]
    for titles, found in (
        (NODES, [*fronts, *(_node(reading) for reading in findings.readings)]),
        (ROUTES, [*rows, *_together(findings)]),
    ):
        if found:
            table(titles, found, SPARE)
            say("")
    for title, lines in (
        ("violations", [f"{v.kind}: {v.message}" for v in findings.violations]),
        ("warnings", findings.warnings),
    ):
        if lines:
            say(title)
            for line in lines:
                say(f"  {plain(line)}")
            say("")
    count = len(findings.violations)
    verdict = f"{count} violation{'s' * (count != 1)}" if count else "all that is promised is held"
    say(f"{verdict}; a context window of {_count(findings.published_tokens)} may be published")


def _front(front: Front) -> tuple[str, ...]:
    advertised = _count(front.published_tokens)
    return (front.name, NodeKind.KVAIRLOCK, Role.GATEWAY, advertised, *[NOTHING] * 4)


def _node(reading: Reading) -> tuple[str, ...]:
    limit = reading.limit
    return (
        reading.node,
        reading.kind,
        reading.role,
        _count(reading.advertised_tokens),
        _count(reading.admitted_tokens),
        str(reading.said) if limit is None else _count(limit.tokens),
        NOTHING if limit is None else limit.name,
        reading.said.fingerprint if isinstance(reading.said, CapacityReport) else NOTHING,
    )


def _rows(findings: Findings, route: RouteReports) -> Iterator[tuple[str, ...]]:
    """Yield what one route holds of each thing that is promised."""
    promised = findings.commitment.context_tokens
    longest = max(each.longest_tokens for each in findings.routes)
    yield _row(findings, route, "(context)", promised, longest)
    for each in findings.commitment.classes:
        yield _row(findings, route, each.name, each.context_tokens, longest)


def _together(findings: Findings) -> Iterator[tuple[str, ...]]:
    """Yield what all routes hold at one time of each class, beside the others."""
    for each in findings.commitment.classes:
        held = findings.together.get(each.name, 0)
        verdict = "held" if held >= each.concurrency else "TOO MANY"
        figures = _count(each.concurrency), _count(held)
        yield ("(all)", f"{each.name}, at a time", *figures, "concurrency", NOTHING, verdict)


def _row(
    findings: Findings, route: RouteReports, name: str, promised: int, longest: int
) -> tuple[str, ...]:
    limit = route.limit
    return (
        str(route.route),
        name,
        _count(promised or None),
        NOTHING if limit is None else _count(limit.tokens),
        NOTHING if limit is None else limit.name,
        NOTHING if limit is None else limit.node,
        _verdict(findings, route, promised, longest),
    )


def _verdict(findings: Findings, route: RouteReports, promised: int, longest: int) -> str:
    if not route.whole:
        return "NOT REPORTED"
    if route.state is RouteState.CLOSED:
        return "closed"
    if not serves(findings.commitment, route):
        return "NOT AS PROMISED"
    if route.longest_tokens >= promised:
        return "held"
    other = findings.commitment.reach is Reach.TIERED and longest >= promised
    return "longer ones go elsewhere" if other else "TOO SHORT"


def _count(tokens: int | None) -> str:
    return NOTHING if tokens is None else f"{tokens:,}"
