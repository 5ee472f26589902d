"""The book of one life: which stays, touches and marks its records come to."""

from __future__ import annotations

import pytest

from kvairlock.core.memory.page import PageStage
from kvairlock.pictures.book import Book, keep_books
from kvairlock.pictures.edges import read_edges
from kvairlock.pictures.history import Ending, History, Mark, MarkKind, Part, Reach, Touch
from tests.pictures.recorded import (
    ACME,
    BRAVO,
    MS,
    Node,
    computed,
    decode,
    ended,
    prefill,
    received,
)

LATER_MS = 1_000


def book_of(node: Node) -> Book:
    (book,) = keep_books(read_edges(node.records).edges).values()
    return book


def history_of(node: Node, page: int = 0) -> History:
    return book_of(node).histories(LATER_MS * MS)[page]


def stages(history: History) -> list[tuple[int, PageStage]]:
    (stay,) = history.stays
    return [(part.began_ns // MS, part.stage) for part in stay.parts]


def test_a_page_on_decode_goes_from_allocation_to_the_free_list() -> None:
    node = decode()
    received(node, 10, ACME, [0, 1], "w")
    ended(node, 20, ACME, [0, 1])
    history = history_of(node)
    assert stages(history) == [
        (10, PageStage.RESERVED),
        (11, PageStage.LANDING),
        (12, PageStage.READABLE),
        (22, PageStage.DRAINING),
    ]
    (stay,) = history.stays
    assert (stay.who, stay.began_ns, stay.ended_ns) == (ACME, 10 * MS, 23 * MS)
    assert (stay.ending, stay.fence) == (Ending.DRAINED, "acknowledged")
    assert history.touches == (
        Touch(Reach.WINDOW_FILE, ACME, ACME, 11 * MS, 13 * MS, "w"),
        Touch(Reach.READ, ACME, ACME, 14 * MS, 20 * MS, ACME.request),
    )
    assert history.marks == (Mark(12 * MS, MarkKind.ADMITTED, ACME),)


@pytest.mark.parametrize(
    ("landing", "reach"),
    [
        ("copy", Reach.WINDOW_FILE),
        ("seal", Reach.WINDOW_FILE),
        ("direct", Reach.WINDOW),
        ("", Reach.WINDOW),
        ("unheard of", Reach.WINDOW),
    ],
)
def test_a_window_is_a_way_to_the_page_unless_its_policy_says_otherwise(
    landing: str, reach: Reach
) -> None:
    node = decode(landing)
    received(node, 10, ACME, [0], "w")
    assert history_of(node).touches[0].reach is reach


def test_without_a_record_of_the_start_a_window_counts_as_a_way_to_the_page() -> None:
    node = decode("copy")
    received(node, 10, ACME, [0], "w")
    del node.records[0]
    assert history_of(node).touches[0].reach is Reach.WINDOW


def test_a_page_on_prefill_is_computed_written_and_drained_in_one_turn() -> None:
    node = prefill()
    computed(node, 10, ACME, [0], "w")
    node.record(20, "request_ended", ACME, end="completed")
    node.record(20.5, "drain_began", ACME, lease=1, pages=[0])
    node.record(21, "drain_ended", ACME, lease=1, pages=[0], fence="local")
    history = history_of(node)
    assert [stage for _, stage in stages(history)] == [
        PageStage.RESERVED,
        PageStage.SEALED,
        PageStage.DRAINING,
    ]
    assert history.touches == (Touch(Reach.SOURCE, ACME, ACME, 11 * MS, 12 * MS, "w"),)
    assert [mark.kind for mark in history.marks] == [MarkKind.COMPUTED, MarkKind.WRITTEN]


def test_what_prefill_does_not_drain_at_the_end_it_keeps_as_a_prefix() -> None:
    node = prefill()
    computed(node, 10, ACME, [0, 1], "w")
    node.record(20, "request_ended", ACME, end="completed")
    node.record(20.5, "drain_began", ACME, lease=1, pages=[1])
    node.record(21, "drain_ended", ACME, lease=1, pages=[1], fence="local")
    node.record(40, "drain_began", ACME, lease=2, pages=[0])
    node.record(41, "drain_ended", ACME, lease=2, pages=[0], fence="local")
    assert stages(history_of(node))[2:] == [(20, PageStage.SHARED), (40, PageStage.DRAINING)]
    assert stages(history_of(node, 1))[2:] == [(20, PageStage.DRAINING)]


def test_a_page_is_shared_from_the_record_on_that_it_is_kept() -> None:
    node = prefill()
    computed(node, 10, ACME, [0, 1], "w")
    node.record(18, "prefix_kept", ACME, lease=2, pages=[0])
    node.record(20, "request_ended", ACME, end="completed")
    node.record(20.5, "drain_began", ACME, lease=1, pages=[1])
    assert stages(history_of(node))[2:] == [(18, PageStage.SHARED)]
    assert stages(history_of(node, 1))[2:] == [(20, PageStage.DRAINING)]


def test_a_prefix_is_reached_under_the_stay_of_whoever_computed_it() -> None:
    node = prefill()
    computed(node, 10, ACME, [0], "w")
    node.record(20, "request_ended", ACME, end="completed")
    node.record(30, "prefix_reused", BRAVO, tokens=16, pages=[0], creator=ACME.tenant)
    node.record(31, "pages_allocated", BRAVO, lease=3, pages=[1])
    node.record(32, "range_computed", BRAVO, start=16, stop=30, pages=[1])
    node.record(33, "request_ended", BRAVO, end="completed")
    node.record(34, "write_ended", BRAVO, window="v", pages=[0, 1], status="done")
    history = history_of(node)
    assert history.touches[1:] == (
        Touch(Reach.PREFIX, BRAVO, ACME, 30 * MS, 34 * MS, BRAVO.request),
        Touch(Reach.SOURCE, BRAVO, ACME, 32 * MS, 34 * MS, "v"),
    )
    assert history_of(node, 1).touches[0].under == BRAVO


def test_a_loan_ends_when_it_is_returned_or_revoked_from_a_reader_that_asks() -> None:
    node = prefill()
    node.record(1, "pages_allocated", ACME, lease=1, pages=[0, 1, 2])
    for page, reader in enumerate(("validating", "trusting", "trusting")):
        claim = f"claim-{page}"
        node.record(2, "pages_claimed", ACME, claim=claim, reader=reader, pages=[page])
        if page < 2:
            node.record(5, "pages_revoked", ACME, claim=claim, reader=reader, pages=[page])
    node.record(7, "pages_returned", ACME, claim="claim-2", pages=[2])
    ends = [history_of(node, page).touches[0].ended_ns // MS for page in range(3)]
    assert ends == [5, LATER_MS, 7]


def test_a_read_of_another_nodes_pages_reaches_ones_own_until_it_is_terminal() -> None:
    node = decode()
    node.record(1, "pages_allocated", ACME, lease=1, pages=[0])
    node.record(2, "remote_read_started", ACME, claim="c", source_pages=[7], pages=[0])
    node.record(6, "remote_read_ended", ACME, claim="c", pages=[0], status="done")
    history = history_of(node)
    assert history.touches == (Touch(Reach.FETCH, ACME, ACME, 2 * MS, 6 * MS, "c"),)
    assert history.stays[0].parts[-1] == Part(2 * MS, PageStage.LANDING)


def test_without_a_record_of_its_end_a_page_counts_as_held_until_the_run_ends() -> None:
    node = decode()
    received(node, 10, ACME, [0], "w")
    stay = history_of(node).stays[0]
    assert (stay.ending, stay.ended_ns) == (Ending.NOT_RECORDED, LATER_MS * MS)
    node.close(50)
    stay = history_of(node).stays[0]
    assert (stay.ending, stay.ended_ns) == (Ending.PROCESS_CLOSED, 50 * MS)


def test_records_about_pages_that_nobody_is_known_to_hold_are_counted() -> None:
    node = decode()
    node.record(1, "drain_began", ACME, lease=1, pages=[0, 1])
    node.record(2, "drain_ended", ACME, lease=1, pages=[0, 1], fence="local")
    node.record(3, "pages_allocated", BRAVO, lease=2, pages=[0])
    node.record(4, "drain_ended", ACME, lease=1, pages=[0], fence="local")
    book = book_of(node)
    assert book.unmatched == 3
    assert list(book.histories(LATER_MS * MS)) == [0]
    assert book.histories(LATER_MS * MS)[0].stays[0].ending is Ending.NOT_RECORDED
