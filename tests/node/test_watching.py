"""Who looks at a node's pages is told of them, for as long as the lease lasts and no longer."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvairlock.core.memory.page import PageStage
from kvairlock.core.memory.page_map import Packed, unpack
from kvairlock.core.memory.pool import Pool
from kvairlock.core.messages import PageMap, Watch
from kvairlock.core.terms import NS_PER_MS, Incarnation, Instant, NodeName, Owner, TransferId
from kvairlock.node.watching import EVERY_MS_MIN, LEASE_MS_MAX, Watching

GATEWAY, OTHER = NodeName("gateway"), NodeName("gateway-1")


@dataclass
class Bench:
    """A pool that is looked at, and a clock that stands still."""

    pool: Pool = field(default_factory=lambda: Pool(8, 16, Incarnation("a")))
    at_ms: int = 0
    sent: list[tuple[NodeName, PageMap]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watching = Watching(
            self.pool,
            lambda name, message: self.sent.append((name, message)),
            lambda: Instant(self.at_ms * NS_PER_MS),
        )

    def watch(self, view: str = "v", lease_ms: int = 1000, who: NodeName = GATEWAY) -> None:
        self.watching.asked(who, Watch(view, lease_ms, 100))

    def look(self, after_ms: int = 0) -> list[PageMap]:
        self.at_ms += after_ms
        before = len(self.sent)
        self.watching.look()
        return [message for _, message in self.sent[before:]]

    def reserve(self, pages: int) -> None:
        self.pool.reserve(Owner.named("acme", TransferId("r/1")), pages)


def pages_in(message: PageMap) -> list[int]:
    packed = Packed(message.spans, message.stages, message.generations)
    told: list[int] = unpack(packed, message.pool_pages, message.rest).pages.tolist()
    return told


def test_nobody_is_told_anything_unasked() -> None:
    bench = Bench()
    assert not bench.look()
    assert not len(bench.watching)


def test_the_first_map_has_all_pages_and_the_next_those_that_changed() -> None:
    bench = Bench()
    bench.watch()
    (first,) = bench.look()
    assert (first.number, first.pool_pages, pages_in(first)) == (0, 8, list(range(8)))
    assert not bench.look(100), "nothing has changed"
    bench.reserve(3)
    (second,) = bench.look(100)
    assert (second.number, second.view, pages_in(second)) == (1, "v", [0, 1, 2])
    assert list(second.stages) == [PageStage.RESERVED] * 3


def test_a_map_comes_no_sooner_than_asked() -> None:
    bench = Bench()
    bench.watch()
    bench.look()
    bench.reserve(1)
    assert not bench.look(99)
    assert len(bench.look(1)) == 1


def test_a_lease_that_is_renewed_goes_on_with_what_was_told() -> None:
    bench = Bench()
    bench.watch()
    bench.look()
    bench.at_ms = 999
    bench.watch()
    bench.reserve(1)
    (message,) = bench.look(900)
    assert (message.number, pages_in(message)) == (1, [0])


def test_a_lease_that_is_over_is_forgotten_and_a_later_one_begins_with_all_pages() -> None:
    bench = Bench()
    bench.watch()
    bench.look()
    bench.reserve(1)
    assert not bench.look(1000)
    assert not len(bench.watching)
    bench.watch()
    assert pages_in(bench.look()[0]) == list(range(8))


def test_another_name_begins_anew_and_no_lease_at_all_ends_it() -> None:
    bench = Bench()
    bench.watch()
    bench.look()
    bench.watch("w")
    (message,) = bench.look()
    assert (message.view, message.number, pages_in(message)) == ("w", 0, list(range(8)))
    bench.watch("w", 0)
    assert not len(bench.watching)


def test_each_gateway_is_told_for_itself() -> None:
    bench = Bench()
    bench.watch()
    bench.look()
    bench.watch(who=OTHER)
    bench.look()
    assert [(name, message.number) for name, message in bench.sent] == [(GATEWAY, 0), (OTHER, 0)]


def test_no_gateway_can_ask_for_more_than_there_is_a_bound_for() -> None:
    bench = Bench()
    bench.watching.asked(GATEWAY, Watch("v", 10**9, 0))
    bench.look()
    bench.reserve(1)
    assert not bench.look(EVERY_MS_MIN - 1)
    assert len(bench.look(1)) == 1
    bench.look(LEASE_MS_MAX)
    assert not len(bench.watching)
