"""Tenants that flood a decode node, and tenants that do not: who gets pages, and what is refused.

One request of 8 tokens and 2 more needs 3 pages here, unless a test says otherwise.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from kvairlock.core.ends import End
from kvairlock.core.errors import Reason
from kvairlock.core.messages import Ended
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.core.terms import LandingPolicy
from tests.core.ends import World
from tests.core.ends_parts import DECODE_LIMITS, PAGE_TOKENS, Request, Setup
from tests.core.ends_recovery import finish_all, reception_of, recover
from tests.core.fifo import OneLine

TOKENS, PAGES = 8, 3
ROUNDS = 11


def crowded(queue_max: int, decode_pages: int = PAGES) -> World:
    """A world in which few requests run at a time, and few may wait."""
    limits = replace(DECODE_LIMITS, queue_max=queue_max)
    world = World(Setup(decode_pages=decode_pages, decode_limits=limits))
    world.settle()
    return world


def ask(world: World, tenant: str, count: int) -> list[Request]:
    return [world.ask(tenant, f"{tenant}{i}", TOKENS) for i in range(count)]


def grants(world: World) -> list[str]:
    """Whose requests were given pages, by name, in order."""
    owners = [r.owner for r in world.decode.records if r.event == "pages_allocated"]
    return [owner.request for owner in owners if owner is not None]


def finish(world: World, request: Request) -> None:
    """Let a request that runs come to its end; its pages go to whoever is due."""
    world.settle()
    world.decode.finish(request)
    world.settle()


def finish_in_order_of_grant(world: World, count: int) -> None:
    by_name = {request.ticket.owner.request: request for request in world.requests.values()}
    for at in range(count):
        finish(world, by_name[grants(world)[at]])


# Turns


def test_tenants_take_turns_however_many_wait() -> None:
    world = crowded(queue_max=16)
    ask(world, "alice", 5)
    ask(world, "bob", 2)
    finish_in_order_of_grant(world, 7)
    assert grants(world) == ["alice0", "alice1", "bob0", "alice2", "bob1", "alice3", "alice4"]
    world.assert_baseline()


def test_a_tenant_alone_has_all_of_the_pool() -> None:
    world = crowded(queue_max=16, decode_pages=4 * PAGES)
    running = ask(world, "alice", 5)
    world.settle()
    assert [world.is_running(request) for request in running] == [True] * 4 + [False]
    finish_in_order_of_grant(world, 5)
    world.assert_baseline()


def test_a_large_request_that_is_due_is_not_starved_by_small_ones() -> None:
    world = crowded(queue_max=16, decode_pages=2 * PAGES)
    first = ask(world, "alice", 4)
    large = world.ask("bob", "large", 20)
    world.settle()
    finish(world, first[0])
    finish(world, first[1])
    assert grants(world) == ["alice0", "alice1", "alice2"]
    assert world.pages_free() == PAGES, "enough for alice, but it is not her turn"
    finish(world, first[2])
    assert grants(world)[3:] == ["large"]
    finish(world, large)
    assert grants(world)[4:] == ["alice3"]
    finish_all(world)


def test_a_tenant_over_its_landing_share_is_passed_whatever_it_waits_for() -> None:
    """Its next request does not even fit: that must not keep others waiting."""
    world = World(Setup(decode_pages=2 * PAGES, tenant_pages=4))
    first = world.ask("alice", "a", TOKENS)
    large = world.ask("alice", "large", 16)
    other = world.ask("bob", "b", TOKENS)
    world.deliver_all()
    assert grants(world) == ["a", "b"]
    for request in (first, other):
        world.complete(request)
    world.complete(large)
    world.assert_baseline()


def test_a_recovery_goes_before_its_own_tenants_requests() -> None:
    world, request = recover("waiting", LandingPolicy.COPY)
    world.start_prefill("q")
    own, other = (world.ask(t, f"{t}-later", TOKENS, prefill="q") for t in ("alice", "bob"))
    assert reception_of(world, request).stage is HandoffStage.RECOVERING
    assert world.decode.machine.queue.heads() == [request.transfer, other.transfer]
    assert own.transfer in world.decode.machine.queue
    world.manual.clear()
    finish_all(world)


def test_several_recoveries_of_a_tenant_keep_their_order() -> None:
    limits = replace(DECODE_LIMITS, recompute_tokens_per_min=10_000)
    world = World(Setup(decode_pages=4 * PAGES, decode_limits=limits))
    requests = ask(world, "alice", 4)
    world.manual.add("scrub")
    world.lose("p")
    stages = {reception_of(world, request).stage for request in requests}
    assert stages == {HandoffStage.RECOVERING}
    world.manual.clear()
    world.work()
    finish_all(world)
    assert grants(world) == [f"alice{i}" for i in (0, 1, 2, 3)] * 2


# What never fits

POOL = 30


@dataclass
class Blocker:
    """A tenant that keeps some pages and asks for all of them, again and again, beside another."""

    world: World
    blocks: int = 0
    other: list[Request] = field(default_factory=list)

    def block(self) -> None:
        """The blocker asks for the whole pool."""
        self.blocks += 1
        tokens = POOL * PAGE_TOKENS
        self.world.ask("blocker", f"all-{self.blocks}", 4, max_tokens=tokens - 4)

    def ask(self) -> None:
        """The other tenant asks for little."""
        self.other.append(self.world.ask("other", f"other-{len(self.other)}", TOKENS))

    def go_on(self, ms: int) -> None:
        """What the other tenant asked for and has pages comes to its end; time passes."""
        for request in self.other:
            if self.world.is_running(request):
                self.world.decode.finish(request)
        self.world.settle()
        self.world.advance(ms)
        self.world.settle()

    def judge(self) -> Counter[str]:
        """Let all end; return how the other tenant's requests ended."""
        self.go_on(0)
        self.go_on(2 * DECODE_LIMITS.queue_ms)
        return Counter(str(self.world.ended(request).end) for request in self.other)


def blocked_world() -> World:
    limits = replace(DECODE_LIMITS, queue_max=64, decode_ms=10**9)
    world = World(Setup(decode_pages=POOL, tenant_pages=20, decode_limits=limits))
    small = world.ask("blocker", "small", TOKENS)
    world.settle()
    assert world.is_running(small)
    assert world.pages_free() == POOL - PAGES, "so that all pages are never free"
    return world


def test_requests_that_never_fit_do_not_keep_others_from_their_part() -> None:
    """The blocker asks twice within the time that a request waits, and so is always there."""
    blocker = Blocker(blocked_world())
    for at in range(100):
        if at % 5 == 0:
            blocker.block()
        if at % 2 == 1:
            blocker.ask()
        blocker.world.settle()
        blocker.go_on(DECODE_LIMITS.queue_ms // 10)
    assert blocker.judge() == {"completed": 50}
    assert blocker.world.pages_free() == POOL - PAGES


def test_nor_do_they_when_they_give_up_together_with_the_others() -> None:
    blocker = Blocker(blocked_world())
    for _ in range(20):
        blocker.block()
        blocker.ask()
        blocker.world.settle()
        blocker.go_on(DECODE_LIMITS.queue_ms)
        assert not blocker.world.decode.machine.queue.heads()
    assert blocker.judge() == {"completed": 18, "rejected": 2}, "10 small ones cost as much"


def test_nor_do_they_when_nobody_waits_in_between() -> None:
    """Neither a queue that runs empty nor small grants pay for what was kept from others."""
    blocker, at_once = Blocker(blocked_world()), 0
    for at in range(200):
        if at % 10 == 0:
            blocker.block()
        if at % 10 == 5:
            blocker.world.ask("blocker", f"tiny-{at}", 2)
        if at % 4 == 3:
            blocker.ask()
        blocker.world.settle()
        at_once += at % 4 == 3 and blocker.world.is_running(blocker.other[-1])
        blocker.go_on(DECODE_LIMITS.queue_ms // 10)
    assert at_once == 40, "to wait once for one that blocks costs as much as ten small ones"
    assert blocker.judge() == {"completed": 50}


def test_a_passed_tenant_does_not_hide_who_keeps_the_others_waiting() -> None:
    """What the line that is due first waits for is another limit: nobody waits for it."""
    blocker = Blocker(blocked_world())
    world = blocker.world
    world.manual.add("land")
    world.ask("passed", "landing", 16)
    for at in (0, 1):
        world.ask("passed", f"over-{at}", 72)
        blocker.block()
        world.settle()
        if at == 0:
            world.advance(DECODE_LIMITS.queue_ms // 2)
    blocker.ask()
    queue = world.decode.machine.queue
    assert [world.requests[name].tenant for name in queue.heads()] == ["passed", "blocker", "other"]
    world.advance(DECODE_LIMITS.queue_ms // 2)
    assert grants(world) == ["small", "landing", "other-0"]


# A full queue


def test_the_longest_line_gives_way_and_is_told_so() -> None:
    world = crowded(queue_max=3)
    flood = ask(world, "alice", 4)
    quiet = ask(world, "bob", 1)
    refusal = world.refusal(flood[-1])
    assert (refusal.reason, refusal.row.http_status) == (Reason.TENANT_SHARE, 429)
    assert refusal.row.retry_after_s == 2
    assert (refusal.asked, refusal.limit, refusal.limit_name) == (3, 1, "tenant_queue_places")
    assert world.ended(flood[-1]).end is End.REJECTED
    assert world.decode.counters["pushed_out"] == 1
    assert world.decode.counters["refused.decode_admission.tenant_share"] == 1
    (record,) = (r for r in world.decode.records if r.event == "request_refused")
    assert record.owner == flood[-1].ticket.owner
    finish_in_order_of_grant(world, 4)
    assert world.ended(quiet[0]).end is End.COMPLETED
    world.assert_baseline()


def test_who_is_at_its_equal_part_is_refused_itself() -> None:
    world = crowded(queue_max=4)
    running, *flood = ask(world, "alice", 5)
    quiet = ask(world, "bob", 3)
    refused = [r for r in (*flood, *quiet) if r.transfer not in world.decode.machine.queue]
    assert refused == [flood[2], flood[3], quiet[2]]
    refusals = [world.refusal(request) for request in refused]
    assert [(r.reason, r.asked, r.limit) for r in refusals] == [
        (Reason.TENANT_SHARE, 3, 2),
        (Reason.TENANT_SHARE, 4, 2),
        (Reason.TENANT_SHARE, 3, 2),
    ]
    assert world.decode.counters["pushed_out"] == 2
    assert world.decode.counters["admitted"] == 7
    finish(world, running)
    finish_all(world)


# Ten to one


@dataclass
class Flood:
    """A flooder that asks for ten times what comes free, and a tenant that asks for half of it."""

    world: World
    asked: Counter[str] = field(default_factory=Counter)

    def run(self) -> Counter[str]:
        """In each round two requests end, the flooder asks for twenty and the other for one."""
        for _ in range(ROUNDS):
            for tenant, count in (("flood", 20), ("quiet", 1)):
                for _ in range(count):
                    self._ask(tenant)
            self._end_two()
        return Counter(name.split("-")[0] for name in grants(self.world))

    def _ask(self, tenant: str) -> None:
        self.asked[tenant] += 1
        self.world.ask(tenant, f"{tenant}-{self.asked[tenant]}", TOKENS)

    def _end_two(self) -> None:
        self.world.settle()
        for name in list(self.world.decode.running)[:2]:
            self.world.decode.finish(self.world.requests[name])
        self.world.settle()

    def refusals(self) -> Counter[str]:
        refused = [a.transfer for a in self.world.answers if isinstance(a, Ended) and a.refusal]
        return Counter(self.world.requests[name].tenant for name in refused)


def test_a_flood_of_ten_to_one_leaves_the_other_tenant_all_it_asks() -> None:
    flood = Flood(crowded(queue_max=16, decode_pages=4 * PAGES))
    granted, refused = flood.run(), flood.refusals()
    print(f"asked {flood.asked}, granted {granted}, refused {refused}")
    assert refused["quiet"] == 0
    assert flood.asked["quiet"] - granted["quiet"] <= 1, "one may wait for the next round"
    assert granted["flood"] >= ROUNDS, "and the flooder has the rest"
    assert refused["flood"] > 8 * granted["flood"]
    finish_all(flood.world)


def test_first_in_first_out_would_starve_it() -> None:
    """Or else the test above could not fail."""
    flood = Flood(crowded(queue_max=16, decode_pages=4 * PAGES))
    flood.world.decode.machine.queue = OneLine()
    granted, refused = flood.run(), flood.refusals()
    print(f"asked {flood.asked}, granted {granted}, refused {refused}")
    assert granted["quiet"] == 0
    assert refused["quiet"] == ROUNDS
    finish_all(flood.world)
