"""Where a commitment is not kept: each violation with its kind, its figures, its route.

    judge(commitment, routes) --+--> nothing: all that is promised is held
                                +--> violations: promised 1,024, held 256, by which limit of whom

`judge` sees what nodes report. What a gateway or an engine advertises, and whether its guards
enforce, is seen from outside only; its kinds are in the same closed list, so that whoever reads a
finding has one table to look it up in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kvairlock.core.errors import Misuse
from kvairlock.core.promise.commitment import (
    Commitment,
    LengthClass,
    Reach,
    RouteReports,
    Silence,
    Stated,
    differing_layout,
    is_as_pinned,
    published_tokens,
    serves,
)
from kvairlock.core.promise.together import held_together
from kvairlock.core.terms import NodeName


class ViolationKind(StrEnum):
    """In which way a commitment is not kept. Closed."""

    NO_ROUTE = "no_route"
    UNREPORTED = "unreported"
    STALE = "stale"
    FINGERPRINT_MISSING = "fingerprint_missing"
    FINGERPRINT_CHANGED = "fingerprint_changed"
    LAYOUTS_DIFFER = "layouts_differ"
    CONTEXT_OVER_ROUTE = "context_over_route"
    OUTPUT_OVER_CONTEXT = "output_over_context"
    CLASS_OVER_CONTEXT = "class_over_context"
    CLASS_OVER_ROUTES = "class_over_routes"
    CONCURRENCY_OVER_ROUTES = "concurrency_over_routes"
    ROLE_DIFFERS = "role_differs"
    ADVERTISED_OVER_HELD = "advertised_over_held"
    ADMITTED_OVER_HELD = "admitted_over_held"
    PUBLISHED_UNDER_PROMISED = "published_under_promised"
    DRILL_MODE = "drill_mode"
    GUARD_NOT_ENFORCING = "guard_not_enforcing"


VIOLATION_KINDS: dict[ViolationKind, str] = {
    ViolationKind.NO_ROUTE: "no route serves, so nothing that is promised can be kept",
    ViolationKind.UNREPORTED: "a node cannot be reached, or does not say what it holds",
    ViolationKind.STALE: "a node's report is too old to be believed",
    ViolationKind.FINGERPRINT_MISSING: "a fingerprint is pinned for a node that does not report",
    ViolationKind.FINGERPRINT_CHANGED: "a node reports another fingerprint than the pinned one",
    ViolationKind.LAYOUTS_DIFFER: "pages of the one node of a route are no pages of the other",
    ViolationKind.CONTEXT_OVER_ROUTE: "the context window is longer than a route holds that a "
    "request may take; with reach `tiered`, than any route holds",
    ViolationKind.OUTPUT_OVER_CONTEXT: "`output_tokens` leave no room for a prompt",
    ViolationKind.CLASS_OVER_CONTEXT: "a class is longer than the context window",
    ViolationKind.CLASS_OVER_ROUTES: "a class is longer than any route holds; with reach `every`, "
    "than one of them",
    ViolationKind.CONCURRENCY_OVER_ROUTES: "the routes do not hold as many requests of a class at "
    "one time as are promised, beside those of longer classes",
    ViolationKind.ROLE_DIFFERS: "an engine says that it runs in another role",
    ViolationKind.ADVERTISED_OVER_HELD: "a gateway or an engine advertises a longer context than "
    "it holds",
    ViolationKind.ADMITTED_OVER_HELD: "an engine admits longer prompts than it ever schedules",
    ViolationKind.PUBLISHED_UNDER_PROMISED: "a gateway publishes less than is promised",
    ViolationKind.DRILL_MODE: "a gateway runs in drill mode: failpoints can be armed",
    ViolationKind.GUARD_NOT_ENFORCING: "a guard does not enforce",
}
"""What each kind means."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One way in which a commitment is not kept.

    Args:
        kind: In which way.
        message: For people, with the figures; holds no key and no other secret.
        route: On which route, or None.
        node: Of which node, or None.
        length_class: Of which class of requests, or None.
        promised: What is promised, in the unit that `limit_name` says, or None.
        holds: What is held, or None.
        limit_name: Which limit that is, or None.
    """

    kind: ViolationKind
    message: str
    route: str | None = None
    node: NodeName | None = None
    length_class: str | None = None
    promised: int | None = None
    holds: int | None = None
    limit_name: str | None = None


def judge(commitment: Commitment, routes: Sequence[RouteReports]) -> tuple[Violation, ...]:
    """Compare what is promised with what the nodes report.

    Args:
        commitment: What is promised.
        routes: All routes that a request may take, as their nodes report now.
    """
    serving = [route for route in routes if serves(commitment, route)]
    return (
        *_of_nodes(commitment, routes),
        *_of_layouts(routes),
        *_of_context(commitment, routes, serving),
        *_of_classes(commitment, serving),
    )


def concurrency_held(commitment: Commitment, routes: Sequence[RouteReports]) -> dict[str, int]:
    """Return how many requests of each class are held at one time, beside those of longer ones.

    Args:
        commitment: What is promised; a class that is too long for the routes is left out.
        routes: All routes that a request may take, as their nodes report now.
    """
    serving = [route for route in routes if serves(commitment, route)]
    if not serving:
        return {}
    reach, classes = commitment.reach, commitment.classes
    short = [each for each in classes if not _short(reach, serving, each.context_tokens)]
    return held_together(short, serving)


def _of_nodes(commitment: Commitment, routes: Sequence[RouteReports]) -> Iterator[Violation]:
    stated = {s.node: s for route in routes for s in (route.prefill, route.decode)}
    for node in stated.values():
        yield from _of_silence(node)
    for name, pinned in commitment.fingerprints.items():
        yield from _of_fingerprint(commitment, name, pinned, stated.get(name))


def _of_silence(stated: Stated) -> Iterator[Violation]:
    match stated.said:
        case Silence.UNREPORTED:
            message = f"{stated.node} does not report what it holds"
            yield Violation(ViolationKind.UNREPORTED, message, node=stated.node)
        case Silence.STALE:
            message = f"the last report of {stated.node} is too old to be believed"
            yield Violation(ViolationKind.STALE, message, node=stated.node)


def _of_fingerprint(
    commitment: Commitment, name: NodeName, pinned: str, stated: Stated | None
) -> Iterator[Violation]:
    if stated is None or isinstance(stated.said, Silence):
        why = "is in no route" if stated is None else "does not report"
        message = f"fingerprint {pinned} is pinned for {name}, which {why}"
        yield Violation(ViolationKind.FINGERPRINT_MISSING, message, node=name)
    elif not is_as_pinned(commitment, stated.said):
        message = f"{name} reports fingerprint {stated.said.fingerprint}; {pinned} is pinned"
        yield Violation(ViolationKind.FINGERPRINT_CHANGED, message, node=name)


def _of_layouts(routes: Sequence[RouteReports]) -> Iterator[Violation]:
    for route in routes:
        if (differing := differing_layout(route)) is not None:
            what, prefill, decode = differing
            message = f"{route.route}: {what} is {prefill} on prefill and {decode} on decode"
            yield Violation(
                ViolationKind.LAYOUTS_DIFFER, message, str(route.route), limit_name=what
            )


def _of_context(
    commitment: Commitment, routes: Sequence[RouteReports], serving: Sequence[RouteReports]
) -> Iterator[Violation]:
    promised = commitment.context_tokens
    if not serving:
        message = f"none of {len(routes)} routes serves"
        yield Violation(ViolationKind.NO_ROUTE, message, promised=promised, holds=0)
        return
    for route in _short(commitment.reach, serving, promised):
        yield _over(ViolationKind.CONTEXT_OVER_ROUTE, "the context window", promised, route)
    most = (promised or published_tokens(commitment, serving)) - 1
    if commitment.output_tokens > most:
        message = f"{commitment.output_tokens} output tokens are promised, the context has {most}"
        kind, asked = ViolationKind.OUTPUT_OVER_CONTEXT, commitment.output_tokens
        yield Violation(kind, message, promised=asked, holds=most, limit_name="output_tokens")


def _of_classes(commitment: Commitment, serving: Sequence[RouteReports]) -> Iterator[Violation]:
    if not serving:
        return
    for each in commitment.classes:
        yield from _of_length(commitment, each, serving)
    held = concurrency_held(commitment, serving)
    for each in commitment.classes:
        if held.get(each.name, each.concurrency) < each.concurrency:
            yield _crowded(each, held[each.name])


def _of_length(
    commitment: Commitment, each: LengthClass, serving: Sequence[RouteReports]
) -> Iterator[Violation]:
    tokens, window = each.context_tokens, commitment.context_tokens
    if window and tokens > window:
        message = f"class {each.name} has {tokens} tokens, the context window {window}"
        kind = ViolationKind.CLASS_OVER_CONTEXT
        yield Violation(kind, message, None, None, each.name, tokens, window, "context_window")
    for route in _short(commitment.reach, serving, tokens):
        what = f"class {each.name}"
        yield _over(ViolationKind.CLASS_OVER_ROUTES, what, tokens, route, each.name)


def _short(reach: Reach, serving: Sequence[RouteReports], tokens: int) -> list[RouteReports]:
    """Return the routes that a request of a length would need longer.

    If any route may be taken, that is each that does not hold it; if requests are routed by length,
    none while one holds it, else the one that comes closest.
    """
    short = [route for route in serving if route.longest_tokens < tokens]
    if reach is Reach.EVERY:
        return short
    longest = max(serving, key=lambda route: route.longest_tokens)
    return [longest] if len(short) == len(serving) else []


def _over(
    kind: ViolationKind, what: str, tokens: int, route: RouteReports, name: str | None = None
) -> Violation:
    limit = route.limit
    if limit is None:
        raise Misuse(f"{route.route} does not report, so it is none of those that serve")
    message = (
        f"{what} promises {tokens} tokens, {route.route} holds {limit.tokens} "
        f"({limit.name} of {limit.node})"
    )
    return Violation(
        kind, message, str(route.route), limit.node, name, tokens, limit.tokens, limit.name
    )


def _crowded(each: LengthClass, held: int) -> Violation:
    message = (
        f"{each.concurrency} requests of class {each.name} ({each.context_tokens} tokens) are "
        f"promised at one time; beside longer classes the routes hold {held}"
    )
    kind = ViolationKind.CONCURRENCY_OVER_ROUTES
    return Violation(kind, message, None, None, each.name, each.concurrency, held, "concurrency")
