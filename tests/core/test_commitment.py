"""What is promised against what nodes report: what may be published, and each kind of violation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvairlock.core.promise.capacity import Basis, CapacityReport, KvGroup
from kvairlock.core.promise.commitment import (
    Commitment,
    LengthClass,
    Reach,
    RouteReports,
    RouteState,
    Silence,
    Stated,
    limits_of,
    published_output_tokens,
    published_tokens,
    serves,
)
from kvairlock.core.promise.violations import VIOLATION_KINDS, Violation, ViolationKind, judge
from kvairlock.core.terms import Incarnation, NodeName, Role, Route

PAGE_TOKENS = 16
K = ViolationKind
BASIS = Basis("recall-1", "float32", "tp1", 1 << 20, "0.2.0", "2")


def report(name: str, pages: int, **more: object) -> CapacityReport:
    """A report of a node whose name says its role."""
    role = Role.PREFILL if name.startswith("prefill") else Role.DECODE
    plain = CapacityReport(
        node=NodeName(name),
        role=role,
        incarnation=Incarnation("life-1"),
        epoch=0,
        fingerprint=f"of-{name}",
        basis=BASIS,
        page_tokens=PAGE_TOKENS,
        pages=pages,
        landing_pages=pages if role is Role.DECODE else 0,
        windows=0,
        context_tokens=8192,
        groups=(),
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def route(
    prefill: CapacityReport | Stated,
    decode: CapacityReport | Stated,
    state: RouteState = RouteState.UP,
) -> RouteReports:
    """A route of two nodes that report, unless they are said not to."""
    both = [s if isinstance(s, Stated) else Stated(s.node, s) for s in (prefill, decode)]
    return RouteReports(both[0], both[1], state)


def silent(name: str, why: Silence = Silence.UNREPORTED) -> Stated:
    return Stated(NodeName(name), why)


LARGE, SMALL = report("prefill-0", 64), report("prefill-1", 16)
DECODE = report("decode-0", 64)
TWO = (route(LARGE, DECODE), route(SMALL, DECODE))
"""Two routes: one holds 1,024 tokens, the other 256."""


def found(commitment: Commitment, routes: Sequence[RouteReports] = TWO) -> list[ViolationKind]:
    return [violation.kind for violation in judge(commitment, routes)]


def the_one(commitment: Commitment, routes: Sequence[RouteReports] = TWO) -> Violation:
    (violation,) = judge(commitment, routes)
    return violation


# What is published


@pytest.mark.parametrize(
    ("commitment", "published"),
    [
        (Commitment(), 1024),
        (Commitment(reach=Reach.EVERY), 256),
        (Commitment(512), 512),
        (Commitment(512, reach=Reach.EVERY), 256),
        (Commitment(4096), 1024),
    ],
)
def test_what_is_published_is_held_by_the_routes_in_reach(
    commitment: Commitment, published: int
) -> None:
    assert published_tokens(commitment, TWO) == published


def test_nothing_is_published_on_account_of_a_route_that_does_not_serve() -> None:
    pinned = Commitment(fingerprints={LARGE.node: "another"})
    other_pages = route(LARGE, replace(DECODE, page_tokens=32))
    other_model = route(LARGE, replace(DECODE, basis=replace(BASIS, model="other")))
    closed = route(LARGE, DECODE, RouteState.CLOSED)
    unheard = route(silent("prefill-0"), DECODE)
    stale = route(LARGE, silent("decode-0", Silence.STALE))
    assert serves(Commitment(), TWO[0])
    assert not serves(pinned, TWO[0])
    for broken in (other_pages, other_model, closed, unheard, stale):
        assert not serves(Commitment(), broken)
        assert published_tokens(Commitment(), [broken]) == 0
        assert published_tokens(Commitment(), [broken, TWO[1]]) == 256
        assert published_tokens(Commitment(reach=Reach.EVERY), [broken, TWO[0]]) == 1024


@pytest.mark.parametrize(
    ("output", "context", "published"),
    [(0, 1024, 0), (100, 1024, 100), (2000, 1024, 1023), (100, 1, 0), (100, 0, 0)],
)
def test_published_output_leaves_room_for_a_prompt(
    output: int, context: int, published: int
) -> None:
    assert published_output_tokens(Commitment(output_tokens=output), context) == published


# Each kind of violation, with its figures


def test_what_is_held_violates_nothing() -> None:
    kept = Commitment(
        1024,
        512,
        Reach.TIERED,
        (LengthClass("long", 1024, 1),),
        {LARGE.node: "of-prefill-0", DECODE.node: "of-decode-0"},
    )
    assert judge(kept, TWO) == ()
    assert judge(Commitment(256, reach=Reach.EVERY), TWO) == ()
    assert judge(Commitment(), TWO) == ()


def test_a_context_over_the_smallest_route_names_it_when_any_may_be_taken() -> None:
    violation = the_one(Commitment(1024, reach=Reach.EVERY))
    assert violation == Violation(
        K.CONTEXT_OVER_ROUTE,
        "the context window promises 1024 tokens, prefill-1/decode-0 holds 256 "
        "(prefill_pool_tokens of prefill-1)",
        "prefill-1/decode-0",
        NodeName("prefill-1"),
        None,
        1024,
        256,
        "prefill_pool_tokens",
    )


def test_every_route_that_is_too_short_is_named() -> None:
    violations = judge(Commitment(2000, reach=Reach.EVERY), TWO)
    assert [(v.kind, v.route, v.holds) for v in violations] == [
        (K.CONTEXT_OVER_ROUTE, "prefill-0/decode-0", 1024),
        (K.CONTEXT_OVER_ROUTE, "prefill-1/decode-0", 256),
    ]


def test_a_tiered_context_is_over_the_route_that_comes_closest() -> None:
    violation = the_one(Commitment(1025))
    told = (violation.kind, violation.route, violation.promised, violation.holds)
    assert told == (K.CONTEXT_OVER_ROUTE, "prefill-0/decode-0", 1025, 1024)


@pytest.mark.parametrize(
    ("node", "limit_name", "holds"),
    [
        (report("decode-0", 32), "decode_pool_tokens", 512),
        (report("decode-0", 64, landing_pages=5), "landing_tokens", 80),
        (report("decode-0", 64, context_tokens=100), "model_context_tokens", 100),
        (
            report("decode-0", 64, groups=(KvGroup("full", 16, 7, 1, 0),)),
            "full_tokens",
            112,
        ),
        (
            report("decode-0", 64, groups=(KvGroup("window", 16, 2, 1, 64),)),
            "window_tokens",
            32,
        ),
    ],
)
def test_the_limit_that_is_named_is_the_smallest(
    node: CapacityReport, limit_name: str, holds: int
) -> None:
    violation = the_one(Commitment(1024), [route(LARGE, node)])
    assert (violation.node, violation.limit_name, violation.holds) == (
        "decode-0",
        limit_name,
        holds,
    )


def test_a_class_that_no_route_holds() -> None:
    violation = the_one(Commitment(classes=(LengthClass("book", 1025, 1),)))
    told = (violation.kind, violation.length_class, violation.route)
    assert told == (K.CLASS_OVER_ROUTES, "book", "prefill-0/decode-0")
    assert (violation.promised, violation.holds) == (1025, 1024)


def test_a_class_that_only_one_route_holds_is_too_long_where_any_may_be_taken() -> None:
    classes = (LengthClass("book", 1024, 1),)
    assert found(Commitment(classes=classes)) == []
    violation = the_one(Commitment(reach=Reach.EVERY, classes=classes))
    assert (violation.kind, violation.route) == (K.CLASS_OVER_ROUTES, "prefill-1/decode-0")


def test_a_class_longer_than_the_window_contradicts_it() -> None:
    violation = the_one(Commitment(512, classes=(LengthClass("book", 600, 1),)))
    told = (violation.kind, violation.length_class, violation.promised, violation.holds)
    assert told == (K.CLASS_OVER_CONTEXT, "book", 600, 512)


def test_a_concurrency_over_what_the_routes_hold() -> None:
    violation = the_one(Commitment(classes=(LengthClass("page", 256, 6),)))
    told = (violation.kind, violation.length_class, violation.promised, violation.holds)
    # Prefill has room for 4 and 1, but both write to one decode node, which has room for 4.
    assert told == (K.CONCURRENCY_OVER_ROUTES, "page", 6, 4)
    assert found(Commitment(classes=(LengthClass("page", 256, 4),))) == []


def test_classes_are_promised_beside_each_other() -> None:
    long, short = LengthClass("long", 768, 1), LengthClass("short", 256, 1)
    assert found(Commitment(classes=(long, short))) == []
    violation = the_one(Commitment(classes=(replace(short, concurrency=2), long)))
    told = (violation.kind, violation.length_class, violation.promised, violation.holds)
    assert told == (K.CONCURRENCY_OVER_ROUTES, "short", 2, 1)


def test_output_that_leaves_no_room_for_a_prompt() -> None:
    violation = the_one(Commitment(512, 512))
    told = (violation.kind, violation.promised, violation.holds, violation.limit_name)
    assert told == (K.OUTPUT_OVER_CONTEXT, 512, 511, "output_tokens")
    assert found(Commitment(512, 511)) == []
    assert found(Commitment(0, 1024)) == [K.OUTPUT_OVER_CONTEXT]


def test_a_changed_fingerprint_closes_its_routes_and_is_named() -> None:
    commitment = Commitment(256, fingerprints={LARGE.node: "as-checked"})
    violation = the_one(commitment)
    assert (violation.kind, violation.node) == (K.FINGERPRINT_CHANGED, "prefill-0")
    assert "of-prefill-0" in violation.message
    assert "as-checked" in violation.message
    assert published_tokens(commitment, TWO) == 256
    assert found(replace(commitment, context_tokens=1024)) == [
        K.FINGERPRINT_CHANGED,
        K.CONTEXT_OVER_ROUTE,
    ]


def test_a_pinned_node_that_does_not_report() -> None:
    commitment = Commitment(fingerprints={NodeName("prefill-0"): "f", NodeName("nobody"): "g"})
    violations = judge(commitment, [route(silent("prefill-0"), DECODE), TWO[1]])
    assert [(v.kind, v.node) for v in violations] == [
        (K.UNREPORTED, "prefill-0"),
        (K.FINGERPRINT_MISSING, "prefill-0"),
        (K.FINGERPRINT_MISSING, "nobody"),
    ]
    assert [v.message.split(", which ")[-1] for v in violations[1:]] == [
        "does not report",
        "is in no route",
    ]


def test_each_silent_node_is_named_once() -> None:
    stale = silent("decode-1", Silence.STALE)
    routes = [*TWO, route(LARGE, stale), route(SMALL, stale), route(silent("prefill-2"), DECODE)]
    violations = judge(Commitment(1024), routes)
    assert [(v.kind, v.node) for v in violations] == [
        (K.STALE, "decode-1"),
        (K.UNREPORTED, "prefill-2"),
    ]


@pytest.mark.parametrize(
    ("decode", "what"),
    [
        (report("decode-0", 64, page_tokens=32), "page_tokens"),
        (report("decode-0", 64, basis=replace(BASIS, model="other")), "model"),
        (report("decode-0", 64, basis=replace(BASIS, dtype="float16")), "dtype"),
    ],
)
def test_layouts_that_differ_make_no_route(decode: CapacityReport, what: str) -> None:
    violations = judge(Commitment(), [route(LARGE, decode), route(SMALL, DECODE)])
    assert [(v.kind, v.route, v.limit_name) for v in violations] == [
        (K.LAYOUTS_DIFFER, "prefill-0/decode-0", what)
    ]


def test_a_node_that_states_no_model_is_compared_by_its_pages() -> None:
    old = replace(DECODE, basis=None)
    assert found(Commitment(), [route(LARGE, old)]) == []
    assert found(Commitment(), [route(LARGE, replace(old, page_tokens=32))]) == [
        K.LAYOUTS_DIFFER,
        K.NO_ROUTE,
    ]


def test_without_a_route_nothing_else_is_judged() -> None:
    commitment = Commitment(1024, 5000, classes=(LengthClass("book", 9999, 9),))
    violation = the_one(commitment, [route(LARGE, DECODE, RouteState.CLOSED)])
    assert (violation.kind, violation.promised, violation.holds) == (K.NO_ROUTE, 1024, 0)
    assert found(commitment, []) == [K.NO_ROUTE]


def test_every_kind_has_a_meaning() -> None:
    assert set(VIOLATION_KINDS) == set(ViolationKind)


# Properties

pages = st.integers(0, 40)
groups = st.builds(
    KvGroup,
    name=st.sampled_from(["full", "window"]),
    page_tokens=st.sampled_from([8, 16]),
    pages=pages,
    pages_reserved=st.integers(0, 2),
    window_tokens=st.sampled_from([0, 0, 64, 256]),
)


@st.composite
def reports(draw: st.DrawFn, name: str) -> CapacityReport:
    return report(
        name,
        draw(pages),
        landing_pages=draw(pages) if name.startswith("decode") else 0,
        windows=draw(st.integers(0, 5)),
        context_tokens=draw(st.sampled_from([50, 300, 8192])),
        groups=tuple(draw(st.lists(groups, max_size=2))),
    )


NAMES = [(p, d) for p in ("prefill-0", "prefill-1") for d in ("decode-0", "decode-1")]


@st.composite
def tables(draw: st.DrawFn) -> list[RouteReports]:
    nodes = {name: draw(reports(name)) for pair in NAMES for name in pair}
    chosen = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    return [route(nodes[p], nodes[d], draw(st.sampled_from(RouteState))) for p, d in chosen]


commitments = st.builds(
    Commitment,
    context_tokens=st.integers(0, 700),
    output_tokens=st.integers(0, 100),
    reach=st.sampled_from(Reach),
    classes=st.lists(
        st.builds(LengthClass, st.sampled_from("ab"), st.integers(1, 700), st.integers(1, 9)),
        max_size=2,
        unique_by=lambda c: c.name,
    ).map(tuple),
)


@given(reports("decode-0"))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_the_smallest_limit_is_the_longest_request(decode: CapacityReport) -> None:
    assert min(limit.tokens for limit in limits_of(decode)) == decode.longest_tokens


@given(commitments, tables())
@settings(max_examples=400, deadline=None, derandomize=True)
def test_what_is_published_is_held_and_what_is_violated_is_not(
    commitment: Commitment, table: list[RouteReports]
) -> None:
    published = published_tokens(commitment, table)
    serving = [each for each in table if serves(commitment, each)]
    holding = [each for each in serving if each.longest_tokens >= published]
    if commitment.reach is Reach.EVERY:
        assert holding == serving
    elif published:
        assert holding
    violations = judge(commitment, table)
    if not violations and commitment.context_tokens:
        assert published == commitment.context_tokens
    for violation in violations:
        if violation.promised is not None and violation.kind is not K.NO_ROUTE:
            assert violation.holds is not None
            assert violation.holds < violation.promised
        named = {str(each.route) for each in table} | {None}
        assert violation.route in named


def test_routes_are_named_as_everywhere() -> None:
    assert TWO[0].route == Route(NodeName("prefill-0"), NodeName("decode-0"))
    assert (TWO[0].longest_tokens, TWO[1].longest_tokens) == (1024, 256)
    assert (TWO[0].concurrency(256), TWO[1].concurrency(256)) == (4, 1)
    unheard = route(LARGE, silent("decode-0"))
    assert (unheard.limit, unheard.longest_tokens, unheard.concurrency(1)) == (None, 0, 0)
