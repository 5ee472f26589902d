"""What the gateway believes of the pages that nodes tell of, and how old it says that they are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from kvairlock.core.errors import PeerMisbehaved, Reason
from kvairlock.core.memory.page import PageStage
from kvairlock.core.memory.page_map import Changes, PageView
from kvairlock.core.messages import PageMap
from kvairlock.core.terms import NS_PER_MS, Instant, NodeName
from kvairlock.gateway.console.page_maps import LEASE_MS, POOL_PAGES_MAX, NodePages, PageMaps

NODE, PAGES = NodeName("decode-0"), 6


@dataclass
class Bench:
    """A node that tells of six pages, and a clock that stands still."""

    at_ms: int = 0
    stage: np.ndarray = field(default_factory=lambda: np.zeros(PAGES, np.int8))
    generation: np.ndarray = field(default_factory=lambda: np.zeros(PAGES, np.int64))
    number: int = 0

    def __post_init__(self) -> None:
        self.maps = PageMaps([NODE], lambda: Instant(self.at_ms * NS_PER_MS))
        self.view = PageView(PAGES)

    def said(self, most: int = PAGES) -> PageMap:
        changes: Changes = self.view.changes(self.stage, self.generation, most)
        packed, number = changes.pack(), self.number
        self.number += 1
        name = self.maps.watch(NODE).view
        parts = packed.spans, packed.stages, packed.generations
        return PageMap(name, number, PAGES, *parts, changes.rest)

    def known(self) -> NodePages:
        known = self.maps[NODE]
        assert known is not None
        return known

    def ages_ms(self, *pages: int) -> list[int]:
        now = Instant(self.at_ms * NS_PER_MS)
        ages: list[int] = self.known().ages_ms(np.array(pages, np.int32), now).tolist()
        return ages


def test_nothing_is_known_before_a_node_tells() -> None:
    assert Bench().maps[NODE] is None


def test_what_a_node_tells_is_known_page_by_page() -> None:
    bench = Bench()
    bench.maps.heard(NODE, bench.said(4))
    assert bench.known().stage.tolist() == [0, 0, 0, 0, -1, -1]
    bench.stage[1], bench.generation[1] = PageStage.READABLE, 7
    bench.maps.heard(NODE, bench.said())
    assert bench.known().stage.tolist() == [0, PageStage.READABLE, 0, 0, 0, 0]
    assert bench.known().generation.tolist() == [0, 7, 0, 0, 0, 0]


def test_an_age_begins_with_a_change_or_with_the_view() -> None:
    bench = Bench()
    bench.maps.heard(NODE, bench.said(4))
    bench.at_ms = 1000
    bench.stage[0] = PageStage.RESERVED
    bench.maps.heard(NODE, bench.said())
    bench.at_ms = 1500
    assert bench.ages_ms(0, 1) == [500, 1500]
    assert bench.ages_ms(5) == [1500], "told later is not changed later"


def test_a_gap_ends_what_is_known_and_another_view_begins() -> None:
    bench = Bench()
    before = bench.maps.watch(NODE)
    bench.maps.heard(NODE, bench.said())
    bench.stage[0] = PageStage.RESERVED
    lost = bench.said()
    bench.stage[1] = PageStage.RESERVED
    assert lost.number == 1
    bench.maps.heard(NODE, bench.said())
    assert bench.maps[NODE] is None
    assert bench.maps.watch(NODE).view != before.view


def test_what_belongs_to_another_view_changes_nothing() -> None:
    bench = Bench()
    bench.maps.heard(NODE, bench.said())
    known = bench.known()
    bench.maps.heard(NODE, replace(bench.said(), view="another", pool_pages=-1))
    assert bench.maps[NODE] is known


def test_a_lost_node_has_no_pages_that_anybody_knows() -> None:
    bench = Bench()
    bench.maps.heard(NODE, bench.said())
    late = bench.said()
    bench.maps.forget(NODE)
    bench.maps.heard(NODE, late)
    assert bench.maps[NODE] is None


def test_a_lease_is_renewed_under_its_name_and_ended_by_no_time() -> None:
    maps = Bench().maps
    assert maps.watch(NODE) == maps.watch(NODE)
    assert maps.watch(NODE).lease_ms == LEASE_MS
    assert maps.watch(NODE, lease_ms=0).lease_ms == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"stages": bytes([99] * PAGES)},
        {"generations": b""},
        {"pool_pages": PAGES - 1},
        {"pool_pages": 0},
        {"rest": 1},
    ],
    ids=str,
)
def test_a_map_that_makes_no_sense_is_held_against_its_node(wrong: dict[str, object]) -> None:
    bench = Bench()
    with pytest.raises(PeerMisbehaved) as caught:
        bench.maps.heard(NODE, replace(bench.said(), **wrong))  # type: ignore[arg-type]
    assert caught.value.reason is Reason.MALFORMED
    assert bench.maps[NODE] is None


def test_a_pool_that_is_too_large_to_be_kept_has_no_map_and_is_no_fault() -> None:
    bench = Bench()
    bench.maps.heard(NODE, replace(bench.said(), pool_pages=POOL_PAGES_MAX + 1))
    assert bench.maps[NODE] is None
    assert bench.maps.why_none(NODE) == "more than 4,194,304 pages"
    assert bench.maps.watch(NODE).lease_ms == 0, "it need not tell any more"
    bench.maps.forget(NODE)
    assert bench.maps.why_none(NODE) == ""


def test_a_pool_does_not_change_its_size_within_a_view() -> None:
    bench = Bench()
    bench.maps.heard(NODE, bench.said())
    bench.stage[0] = PageStage.RESERVED
    with pytest.raises(PeerMisbehaved, match="7 pages"):
        bench.maps.heard(NODE, replace(bench.said(), pool_pages=PAGES + 1))
