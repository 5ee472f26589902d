"""The fair queue alone: who is due, who gives way, and the bound that it promises.

A state machine lets tenants come, go, be passed, recover, be granted and wait in vain in any order,
beside a model of plain lists. The bound is checked over every stretch in which two tenants both
wait and neither is passed. The same check on one line for all finds a stretch that breaks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations
from typing import ClassVar

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvairlock.core.errors import Reason
from kvairlock.core.promise.admission import judge_place, over_equal_places
from kvairlock.core.promise.fair import FairQueue
from kvairlock.core.terms import TransferId
from tests.core.fifo import OneLine

TENANTS = ("alice", "bob", "carol")


def name(text: str) -> TransferId:
    return TransferId(text)


def filled(**lines: int) -> FairQueue:
    """A queue in which so many requests of each tenant wait: alice0, alice1, ..."""
    queue = FairQueue()
    for tenant, count in lines.items():
        for i in range(count):
            queue.join(tenant, name(f"{tenant}{i}"))
    return queue


def served(queue: FairQueue, pages: dict[str, int], grants: int) -> list[str]:
    """Grant so many heads, each tenant's requests of so many pages."""
    order = []
    for _ in range(grants):
        head = queue.heads()[0]
        queue.grant(head, pages[head.rstrip("0123456789")])
        order.append(str(head))
    return order


# Whose turn it is


def test_equal_requests_take_turns() -> None:
    queue = filled(alice=4, bob=2)
    order = served(queue, {"alice": 3, "bob": 3}, 6)
    assert order == ["alice0", "bob0", "alice1", "bob1", "alice2", "alice3"]


def test_turns_are_counted_in_pages() -> None:
    queue = filled(alice=2, bob=7)
    order = served(queue, {"alice": 6, "bob": 2}, 8)
    assert order == ["alice0", "bob0", "bob1", "bob2", "alice1", "bob3", "bob4", "bob5"]


def test_a_tenant_that_comes_late_has_no_credit() -> None:
    queue = filled(alice=8)
    served(queue, {"alice": 5}, 4)
    for i in range(3):
        queue.join("bob", name(f"bob{i}"))
    assert served(queue, {"alice": 5, "bob": 5}, 5) == ["bob0", "alice4", "bob1", "alice5", "bob2"]


def test_a_tenant_that_was_alone_has_no_debt() -> None:
    queue = filled(alice=4)
    served(queue, {"alice": 100}, 4)
    queue.join("alice", name("alice4"))
    queue.join("bob", name("bob0"))
    assert queue.heads() == ["alice4", "bob0"], "nobody waited behind it: they start alike"


def test_leaving_and_coming_back_does_not_jump_the_line() -> None:
    queue = filled(alice=2, bob=2)
    assert served(queue, {"alice": 5, "bob": 1}, 2) == ["alice0", "bob0"]
    queue.leave(name("alice1"))
    queue.join("alice", name("alice2"))
    assert queue.heads() == ["bob1", "alice2"], "its five pages are not forgotten"


def test_who_is_passed_gets_no_credit() -> None:
    queue = filled(alice=3, bob=9)
    for i in range(6):
        queue.grant(name(f"bob{i}"), 4)  # alice has been due all the time
    assert served(queue, {"alice": 4, "bob": 4}, 4) == ["alice0", "alice1", "bob6", "alice2"]


def test_one_that_recovers_comes_first_in_its_own_line_only() -> None:
    queue = filled(alice=2, bob=2)
    served(queue, {"alice": 5, "bob": 1}, 1)
    queue.join_first("alice", name("alice0"))
    assert queue.heads() == ["bob0", "alice0"]
    assert queue.waiting("alice") == 2


def test_several_that_recover_keep_their_order() -> None:
    queue = filled(alice=4)
    served(queue, {"alice": 1}, 3)
    for i in (0, 1, 2):
        queue.join_first("alice", name(f"alice{i}"))
    queue.leave(name("alice1"))
    queue.join("alice", name("alice4"))
    queue.join_first("alice", name("alice1"))
    order = served(queue, {"alice": 1}, 5)
    assert order == ["alice0", "alice2", "alice1", "alice3", "alice4"]


def given_up(queue: FairQueue, pages: int) -> str:
    """Let whoever is due wait in vain for so many pages."""
    head = queue.heads()[0]
    queue.wait_for(head)
    queue.give_up(head, pages)
    return str(head)


def test_what_others_waited_for_is_paid_for_although_it_was_not_granted() -> None:
    queue = filled(alice=3, bob=9)
    assert given_up(queue, 6) == "alice0"
    order = served(queue, {"alice": 6, "bob": 2}, 5)
    assert order == ["bob0", "bob1", "bob2", "alice1", "bob3"]


def test_who_kept_nobody_waiting_pays_nothing() -> None:
    queue = filled(alice=4)
    given_up(queue, 50)
    queue.join("bob", name("bob0"))
    assert queue.heads() == ["alice1", "bob0"], "nobody else was there"
    queue.give_up(name("alice1"), 50)
    assert queue.heads() == ["alice2", "bob0"], "it was never found too large"
    queue.wait_for(name("alice2"))
    queue.leave(name("alice2"))
    queue.join("alice", name("alice2"))
    queue.give_up(name("alice2"), 50)
    assert queue.heads() == ["alice3", "bob0"], "nobody waited since it came back"


def test_a_debt_outlasts_a_queue_that_runs_empty() -> None:
    """Or else who gives up together with the others would never pay."""
    queue = filled(alice=1, bob=1)
    given_up(queue, 4)
    queue.give_up(name("bob0"), 2)
    assert len(queue) == 0
    for i in (1, 2, 3):
        queue.join("alice", name(f"alice{i}"))
        queue.join("bob", name(f"bob{i}"))
    order = served(queue, {"alice": 4, "bob": 2}, 4)
    assert order == ["bob1", "bob2", "alice1", "bob3"]


def test_a_debt_is_paid_by_what_others_are_granted_and_by_nothing_else() -> None:
    queue = filled(alice=2, bob=1)
    given_up(queue, 6)
    assert served(queue, {"alice": 1, "bob": 2}, 2) == ["bob0", "alice1"]
    for i in (1, 2):
        queue.join("alice", name(f"alice-alone{i}"))
        queue.grant(name(f"alice-alone{i}"), 9)
    starts = []
    for i in (1, 2, 3):
        queue.join("bob", name(f"bob{i}"))
        queue.join("alice", name(f"alice-again{i}"))
        starts.append(str(queue.heads()[0]))
        queue.leave(name(f"alice-again{i}"))
        queue.grant(name(f"bob{i}"), 2)
    assert starts == ["bob1", "bob2", "alice-again3"]
    assert not queue._lines, "all is paid"


def test_a_newcomer_has_no_credit_of_what_gave_up_before_it_came() -> None:
    queue = filled(alice=9, bob=9)
    assert [given_up(queue, 5) for _ in range(12)] == [
        f"{tenant}{i}" for i in range(6) for tenant in ("alice", "bob")
    ]
    for i in range(4):
        queue.join("carol", name(f"carol{i}"))
    order = served(queue, {"alice": 5, "bob": 5, "carol": 5}, 6)
    assert order == ["carol0", "alice6", "bob6", "carol1", "alice7", "bob7"]


def test_tenants_that_have_caught_up_are_forgotten() -> None:
    queue = filled(alice=3, bob=1)
    assert served(queue, {"alice": 4, "bob": 4}, 2) == ["alice0", "bob0"]
    assert set(queue._lines) == {"alice", "bob"}, "bob would start at 4, and it is 0"
    served(queue, {"alice": 4}, 1)
    assert set(queue._lines) == {"alice"}, "it is 4"
    served(queue, {"alice": 4}, 1)
    assert not queue._lines, "nobody waits"


# Who gives way


def admit(queue: FairQueue, tenant: str, request: str, places: int) -> str:
    """Join as a node lets one join; return who was refused or pushed out, or nothing."""
    refusal = judge_place(queue, tenant, places)
    if refusal is not None:
        return f"{refusal.reason} {refusal.asked}/{refusal.limit}"
    queue.join(tenant, name(request))
    if len(queue) <= places:
        return ""
    youngest = queue.youngest(queue.longest())
    queue.leave(youngest)
    return str(youngest)


def test_a_newcomer_takes_the_place_of_the_youngest_of_the_longest_line() -> None:
    queue = filled(alice=6, carol=1)
    assert [admit(queue, "bob", f"bob{i}", 7) for i in range(4)] == [
        "alice5",
        "alice4",
        "alice3",
        "tenant_share 4/2",
    ]
    assert [queue.waiting(tenant) for tenant in TENANTS] == [3, 3, 1]


def test_a_place_that_would_only_change_hands_stays() -> None:
    queue = filled(alice=1, bob=1)
    assert admit(queue, "carol", "carol0", 2) == "capacity 3/2"
    assert admit(queue, "alice", "alice1", 2) == "tenant_share 2/1"


def test_an_equal_part_is_that_of_those_who_wait_and_at_least_one_place() -> None:
    queue = filled(alice=3, bob=1)
    served(queue, {"alice": 4, "bob": 4}, 2)
    assert set(queue._lines) == {"alice", "bob"}, "bob is remembered, but does not wait"
    assert queue.places_each(4) == 4
    assert filled(alice=2, bob=2, carol=2).places_each(2) == 1, "recoveries may overfill a queue"


def test_a_tenant_alone_may_have_all_places() -> None:
    queue = FairQueue()
    assert [admit(queue, "alice", f"alice{i}", 3) for i in range(4)] == [
        *("", "", ""),
        "tenant_share 4/3",
    ]


@given(
    lines=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 8), min_size=1),
    tenant=st.sampled_from("abcdefg"),
    spare=st.integers(-1, 2),
)
def test_only_who_is_at_its_equal_part_is_refused(
    lines: dict[str, int], tenant: str, spare: int
) -> None:
    """Also in a queue that is over its limit, as recoveries make it; the figures show why."""
    queue, places = filled(**lines), max(1, sum(lines.values()) + spare)
    own, each = lines.get(tenant, 0), places // len(lines.keys() | {tenant})
    refusal = judge_place(queue, tenant, places)
    if refusal is None:
        queue.join(tenant, name("new"))
        if len(queue) > places:
            longest = queue.longest()
            assert longest != tenant
            assert queue.waiting(longest) >= own + 2, "it is still no shorter when it gave way"
            refusal = over_equal_places(queue, queue.waiting(longest), places)
            assert refusal.reason is Reason.TENANT_SHARE
    else:
        assert len(queue) >= places
        assert own >= each
        assert (refusal.reason is Reason.CAPACITY) == (own == 0)
    if refusal is not None:
        assert refusal.asked is not None
        assert refusal.limit is not None
        assert refusal.asked > refusal.limit


# Any order of events


class FairMachine(RuleBasedStateMachine):
    """Tenants that come, go, recover, are passed, granted or give up, beside plain lists."""

    queue_type: ClassVar[type[FairQueue]] = FairQueue
    reached: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.queue = self.queue_type()
        self.lines: dict[str, list[TransferId]] = {tenant: [] for tenant in TENANTS}
        self.tenants: dict[TransferId, str] = {}
        self.returned: set[TransferId] = set()
        self.never_fits: set[TransferId] = set()
        self.charged = Counter[str]()
        """Pages that tenants were granted, or kept others waiting for."""
        self.largest = Counter[str]()
        self.stretches: dict[tuple[str, str], list[int]] = {}
        """Leads of one tenant over another, from grant to grant, while both could be granted."""

    def waiting(self) -> list[TransferId]:
        return [request for line in self.lines.values() for request in line]

    def may_lead(self, request: TransferId) -> bool:
        return request not in self.never_fits

    def heads(self) -> list[TransferId]:
        return self.queue.heads(self.may_lead)

    def gone(self) -> list[TransferId]:
        return sorted(set(self.tenants) - set(self.waiting()))

    @rule(tenant=st.sampled_from(TENANTS), count=st.integers(1, 4))
    def join(self, tenant: str, count: int) -> None:
        for _ in range(count):
            request = name(f"r{len(self.tenants)}")
            self.tenants[request] = tenant
            self.lines[tenant].append(request)
            self.queue.join(tenant, request)

    @rule(tenant=st.sampled_from(TENANTS))
    def join_and_never_fit(self, tenant: str) -> None:
        """A request that is too large for all there is comes, and waits for its end."""
        self.never_fits.add(name(f"r{len(self.tenants)}"))
        self.join(tenant, 1)

    @precondition(lambda self: self.gone())
    @rule(data=st.data())
    def recover(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.gone()))
        line = self.lines[self.tenants[request]]
        line.insert(sum(other in self.returned for other in line), request)
        self.returned.add(request)
        self.queue.join_first(self.tenants[request], request)

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.waiting()))
        self.queue.leave(request)
        self._remove(request)
        self._end_stretches()

    @precondition(lambda self: self.heads())
    @rule(pages=st.integers(1, 9), passed=st.sampled_from((0, 0, 0, 1)))
    def grant(self, pages: int, passed: int) -> None:
        """Grant to who is due, or pass that tenant, as one that is over another limit."""
        self._charge(FairQueue.grant, pages, passed)

    @precondition(lambda self: self.heads())
    @rule(pages=st.integers(1, 9), passed=st.sampled_from((0, 0, 0, 1)))
    def give_up(self, pages: int, passed: int) -> None:
        """Who is due does not fit, all wait for it, and it gives up."""

        def wait_in_vain(queue: FairQueue, request: TransferId, pages: int) -> None:
            queue.wait_for(request)
            queue.give_up(request, pages)

        self.reached["waited for"] += len(self.heads()) > 1
        self._charge(wait_in_vain, pages, passed)

    @rule(tenant=st.sampled_from(TENANTS), requests=st.integers(4, 12), pages=st.integers(1, 9))
    def flood(self, tenant: str, requests: int, pages: int) -> None:
        """A tenant asks for a lot, and as many are granted, whoever is due."""
        self.join(tenant, requests)
        for _ in range(requests):
            self.grant(pages, 0)

    def _remove(self, request: TransferId) -> None:
        self.lines[self.tenants[request]].remove(request)
        self.returned.discard(request)

    def _charge(
        self, end: Callable[[FairQueue, TransferId, int], None], pages: int, passed: int
    ) -> None:
        heads = self.heads()
        passed = min(passed, len(heads) - 1)
        request, leads = heads[passed], self._leads()
        behind = self.lines[self.tenants[request]][0] is not request
        self.reached["went in front of what never fits"] += behind
        tenant = self.tenants[request]
        end(self.queue, request, pages)
        self._remove(request)
        self.charged[tenant] += pages
        self.largest[tenant] = max(self.largest[tenant], pages)
        self.reached["passed"] += passed
        self._compare(leads, {self.tenants[head] for head in heads[:passed]})
        self._end_stretches()

    def _leads(self) -> dict[tuple[str, str], int]:
        """The lead of each tenant over each other, of those that wait now."""
        lines = self.lines.items()
        both = combinations([tenant for tenant, line in lines if any(map(self.may_lead, line))], 2)
        return {(a, b): self.charged[a] - self.charged[b] for a, b in both}

    def _compare(self, leads: dict[tuple[str, str], int], passed: set[str]) -> None:
        """Judge all stretches that end with this grant; `leads` are those before it."""
        for pair, before in leads.items():
            one, other = pair
            if passed.intersection(pair):
                self.stretches.pop(pair, None)
                continue
            stretch = self.stretches.setdefault(pair, [before])
            stretch.append(self.charged[one] - self.charged[other])
            self.reached["compared"] += 1
            bound = self.largest[one] + self.largest[other]
            assert max(stretch) - min(stretch) <= bound, (pair, stretch)

    def _end_stretches(self) -> None:
        """Keep those of tenants that still wait."""
        waiting = self._leads()
        self.stretches = {p: leads for p, leads in self.stretches.items() if p in waiting}

    @invariant()
    def nobody_is_lost_or_there_twice(self) -> None:
        waiting = self.waiting()
        assert len(self.queue) == len(waiting)
        assert all(request in self.queue for request in waiting)


class FairOrderMachine(FairMachine):
    """The same, and within a tenant the order is that of arrival."""

    @invariant()
    def heads_are_the_first_of_each_tenant(self) -> None:
        assert set(self.queue.heads()) == {line[0] for line in self.lines.values() if line}
        fitting = [[r for r in line if self.may_lead(r)] for line in self.lines.values()]
        assert set(self.heads()) == {line[0] for line in fitting if line}
        assert [self.queue.waiting(t) for t in TENANTS] == [len(self.lines[t]) for t in TENANTS]


class FifoMachine(FairMachine):
    """The same promise, asked of one line for all."""

    queue_type = OneLine


LIMITS = settings(max_examples=200, stateful_step_count=40)


def test_the_bound_holds_whatever_tenants_do() -> None:
    FairOrderMachine.reached = Counter()
    run_state_machine_as_test(FairOrderMachine, settings=LIMITS)
    rare = ("passed", "compared", "waited for", "went in front of what never fits")
    assert min(FairOrderMachine.reached[what] for what in rare) > 50


def test_one_line_for_all_breaks_the_bound() -> None:
    """Or else the check above could not fail."""
    unshrunk = settings(LIMITS, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises(AssertionError, match=r"'alice'|'bob'"):
        run_state_machine_as_test(FifoMachine, settings=unshrunk)
