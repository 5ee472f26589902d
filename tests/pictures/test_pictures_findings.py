"""What stands out: each kind is found where it is, and nothing is where all is well."""

from __future__ import annotations

import pytest

from kvairlock.pictures.edges import Who
from kvairlock.pictures.finders import DIFFERENT, UNDECLARED
from kvairlock.pictures.findings import FINDINGS, Finding, FindingKind, sentence
from kvairlock.pictures.scenes import picture
from tests.pictures.recorded import (
    ACME,
    BRAVO,
    MS,
    Node,
    all_of,
    computed,
    decode,
    ended,
    prefill,
    received,
)

KIND = FindingKind


def found(*nodes: Node) -> list[Finding]:
    return list(picture(all_of(*nodes)).findings)


def kinds(*nodes: Node) -> list[FindingKind]:
    return [finding.kind for finding in found(*nodes)]


def test_nothing_stands_out_where_one_owner_comes_after_another() -> None:
    taker, giver = decode("direct"), prefill()
    for at_ms, who in ((10, ACME), (30, BRAVO)):
        received(taker, at_ms, who, [0, 1], f"w{at_ms}")
        ended(taker, at_ms + 10, who, [0, 1])
        computed(giver, at_ms, who, [5, 6], f"w{at_ms}")
        giver.record(at_ms + 4, "request_ended", who, end="completed")
        giver.record(at_ms + 5, "drain_began", who, pages=[5, 6])
        giver.record(at_ms + 6, "drain_ended", who, pages=[5, 6], fence="local")
    assert found(taker, giver) == []


def test_a_page_that_is_allocated_before_its_drain_has_ended_is_held_twice() -> None:
    node = decode()
    received(node, 10, ACME, [0, 1, 2], "w")
    node.record(20, "pages_allocated", BRAVO, lease=2, pages=[1, 2])
    ended(node, 27, ACME, [0, 1, 2])
    reads, held = found(node)
    assert (held.kind, held.pages, held.whos) == (KIND.HELD_TWICE, (1, 2), (BRAVO, ACME))
    assert (held.began_ns, held.ended_ns) == (20 * MS, 30 * MS)
    assert (reads.kind, reads.pages, reads.whos) == (KIND.FOREIGN, (1, 2), (ACME, BRAVO))
    assert (reads.began_ns, reads.ended_ns) == (20 * MS, 27 * MS)


def test_a_lost_end_shows_as_two_owners_rather_than_as_nothing() -> None:
    node = decode()
    received(node, 10, ACME, [0], "w")
    received(node, 30, BRAVO, [0], "v")
    ended(node, 40, BRAVO, [0])
    assert KIND.HELD_TWICE in kinds(node)


def late_window(landing: str) -> Node:
    """acme's window is open for 20 ms after its pages went to bravo."""
    node = decode(landing)
    node.record(10, "pages_allocated", ACME, lease=1, pages=[0])
    node.record(11, "window_granted", ACME, window="w", pages=[0])
    node.record(12, "drain_began", ACME, lease=1, pages=[0])
    node.record(13, "drain_ended", ACME, lease=1, pages=[0], fence="local")
    received(node, 20, BRAVO, [0], "v")
    ended(node, 30, BRAVO, [0])
    node.record(40, "window_fenced", ACME, window="w", fence="acknowledged")
    return node


@pytest.mark.parametrize("landing", ["copy", "seal"])
def test_a_window_that_outlives_its_request_beside_the_pool_is_nobodys_danger(landing: str) -> None:
    assert found(late_window(landing)) == []


@pytest.mark.parametrize("landing", ["direct", ""])
def test_a_window_over_the_pool_that_outlives_its_request_is_found(landing: str) -> None:
    foreign = [f for f in found(late_window(landing)) if f.kind is KIND.FOREIGN]
    assert [(f.whos, f.began_ns, f.ended_ns, f.detail) for f in foreign] == [
        ((ACME, BRAVO), 20 * MS, 33 * MS, "may write into")
    ]
    unheld = [f for f in found(late_window(landing)) if f.kind is KIND.UNHELD]
    assert [(f.began_ns, f.ended_ns) for f in unheld] == [
        (13 * MS, 20 * MS),
        (33 * MS, 40 * MS),
    ]


def test_whoever_reads_anothers_pages_is_found_with_both_names() -> None:
    node = decode()
    received(node, 10, ACME, [0, 1], "w")
    node.record(20, "read_started", BRAVO, pages=[0, 1])
    node.record(25, "request_ended", BRAVO, end="completed")
    ended(node, 30, ACME, [0, 1])
    foreign, unconfirmed = found(node)
    assert (foreign.kind, foreign.whos) == (KIND.FOREIGN, (BRAVO, ACME))
    assert (foreign.began_ns, foreign.ended_ns) == (20 * MS, 25 * MS)
    assert (unconfirmed.kind, unconfirmed.whos) == (KIND.UNCONFIRMED, (BRAVO,))


def test_a_read_of_more_than_was_confirmed_is_found_for_as_long_as_it_goes_on() -> None:
    node = decode()
    received(node, 10, ACME, [0, 1], "w")
    ended(node, 20, ACME, [0, 1])
    verdict = next(record for record in node.records if record["event"] == "verdict")
    verdict["stop"] = 1
    (finding,) = found(node)
    assert finding.kind is KIND.UNCONFIRMED
    assert finding.detail == "tokens [0, 1) were confirmed, of 90"
    assert (finding.began_ns, finding.ended_ns) == (14 * MS, 21 * MS)


@pytest.mark.parametrize("field", ["start", "stop", "expected_tokens"])
def test_a_range_that_was_not_recorded_confirms_nothing(field: str) -> None:
    node = decode()
    received(node, 10, ACME, [0], "w")
    ended(node, 20, ACME, [0])
    verdict = next(record for record in node.records if record["event"] == "verdict")
    verdict[field] = None
    assert kinds(node) == [KIND.UNCONFIRMED]


def test_what_decode_computes_itself_needs_no_verdict() -> None:
    node = decode()
    node.record(1, "pages_allocated", ACME, lease=1, pages=[0])
    node.record(2, "range_computed", ACME, start=0, stop=90, pages=[0])
    node.record(3, "read_started", ACME, pages=[0])
    ended(node, 4, ACME, [0])
    assert found(node) == []


def test_a_verdict_against_the_receipts_own_outcome_is_found() -> None:
    taker, giver = decode(), prefill()
    computed(giver, 5, ACME, [3], "w")
    giver.records[-1]["outcome"] = "rejected"
    received(taker, 10, ACME, [0], "w")
    ended(taker, 20, ACME, [0])
    (finding,) = [f for f in found(taker, giver) if f.life.node == "decode-0"]
    assert (finding.kind, finding.detail) == (KIND.AGAINST_STATEMENT, "prefill stated rejected")
    assert (finding.began_ns, finding.pages) == (12 * MS, (0,))


@pytest.mark.parametrize(("landing", "expected"), [("direct", [KIND.LATE_WRITE]), ("copy", [])])
def test_bytes_that_are_stored_after_the_fence_are_found_where_they_reach_pages(
    landing: str, expected: list[FindingKind]
) -> None:
    taker, giver = decode(landing), prefill()
    received(taker, 10, ACME, [0, 1], "w")
    ended(taker, 30, ACME, [0, 1])
    giver.record(20, "write_repeated", window="w", bytes_written=64)
    late = [f for f in found(taker, giver) if f.life.node == "decode-0"]
    assert [f.kind for f in late] == expected
    assert all((f.began_ns, f.pages) == (20 * MS, (0, 1)) for f in late)


def test_pages_that_go_back_without_proof_are_found() -> None:
    node = decode()
    received(node, 10, ACME, [0], "w")
    ended(node, 20, ACME, [0], fence="unproven")
    assert kinds(node) == [KIND.UNPROVEN]


def test_a_write_that_reads_pages_after_they_went_back_is_found() -> None:
    node = prefill()
    node.record(10, "pages_allocated", ACME, lease=1, pages=[0])
    node.record(11, "range_computed", ACME, stop=90, pages=[0])
    node.record(15, "drain_began", ACME, pages=[0])
    node.record(16, "drain_ended", ACME, pages=[0], fence="local")
    node.record(18, "write_ended", ACME, window="w", pages=[0], status="done")
    (finding,) = found(node)
    assert (finding.kind, finding.detail) == (KIND.UNHELD, "writes from")
    assert (finding.began_ns, finding.ended_ns) == (16 * MS, 18 * MS)


def test_a_prefix_of_another_tenant_is_found_and_one_of_the_same_is_not() -> None:
    same = Who(ACME.tenant, "c0c0c0c0")
    for who, expected in ((BRAVO, [KIND.ACROSS_TENANTS]), (same, [])):
        node = prefill()
        computed(node, 10, ACME, [0], "w")
        node.record(20, "request_ended", ACME, end="completed")
        node.record(30, "prefix_reused", who, tokens=16, pages=[0], creator=ACME.tenant)
        node.record(40, "request_ended", who, end="completed")
        assert kinds(node) == expected


@pytest.mark.parametrize(
    ("scopes", "details"),
    [
        (("5c0pe", "5c0pe"), []),
        (("5c0pe", "0ther"), [DIFFERENT]),
        (("", ""), [UNDECLARED]),
        (("5c0pe", ""), [UNDECLARED]),
    ],
)
def test_a_prefix_of_another_tenant_is_right_if_records_say_that_both_have_one_scope(
    scopes: tuple[str, str], details: list[str]
) -> None:
    node = prefill()
    computed(node, 10, ACME, [0], "w")
    node.record(20, "request_ended", ACME, end="completed")
    mine, creators = scopes
    said = {"tokens": 16, "pages": [0], "scope": mine, "creator_scope": creators}
    node.record(30, "prefix_reused", BRAVO, **said)
    node.record(40, "request_ended", BRAVO, end="completed")
    assert [finding.detail for finding in found(node)] == details


def test_books_that_do_not_hold_are_found() -> None:
    node = decode()
    node.record(10, "invariant_broken", invariant="page_life")
    (finding,) = found(node)
    assert (finding.kind, finding.detail, finding.pages) == (KIND.INVARIANT, "page_life", ())


@pytest.mark.parametrize("kind", FindingKind)
def test_every_kind_is_said_with_place_time_and_owners(kind: FindingKind) -> None:
    node = decode()
    received(node, 10, ACME, [0], "w")
    received(node, 10, BRAVO, [1], "v")
    seen = picture(node.records)
    life = seen.accounts[0].life
    whos = () if kind is KIND.INVARIANT else (BRAVO, ACME)
    finding = Finding(kind, life, (3, 4), whos, 10 * MS, 12 * MS, "what the records say")
    words = sentence(finding, seen.names)
    assert words.startswith("decode-0, pages 3\N{EN DASH}4, 10.0 to 12.0 ms: ")
    assert "what the records say" in words
    assert kind is KIND.INVARIANT or "request b0b0 · tenant bbbb" in words
    assert "{" not in FINDINGS[kind].short
