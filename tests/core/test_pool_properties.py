"""Pool and drain against a model of plain dicts, under any order of verbs.

The model keeps stage, owner and generation of each page, the free stack and the holds. After each
rule both must agree, and what the model forbids must raise and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvairlock.core.effects import Effect, Record, Scrub
from kvairlock.core.errors import InvariantBroken, Misuse
from kvairlock.core.guards import GuardSet
from kvairlock.core.memory import invariants
from kvairlock.core.memory.drain import Drain
from kvairlock.core.memory.page import PageStage, Verb
from kvairlock.core.memory.pool import NOBODY, Fenced, Hold, Lease, Pool, Scrubbed
from kvairlock.core.terms import Fence, Incarnation, Instant, LeaseId, Owner

PAGES = 12
S, V = PageStage, Verb
EDGES: dict[tuple[PageStage, Verb], PageStage] = {
    (S.RESERVED, V.FILL): S.FILLING,
    (S.RESERVED, V.GRANT): S.LANDING,
    (S.RESERVED, V.ADMIT): S.READABLE,
    (S.FILLING, V.FILL): S.FILLING,
    (S.FILLING, V.SEAL): S.SEALED,
    (S.LANDING, V.ADMIT): S.READABLE,
    (S.SEALED, V.SHARE): S.SHARED,
}
"""The verbs of a live lease; everything else must be refused."""


@dataclass
class ModelLease:
    """What the model knows of a lease."""

    owner: Owner
    pages: list[int]
    live: bool = True
    holds: dict[Hold, int] = field(default_factory=dict)


def snapshot(pool: Pool, drain: Drain) -> tuple[object, ...]:
    """All that a refused verb must leave as it was."""
    leases = {
        lease.id: (lease.live, lease.pages.tolist(), dict(lease.holds))
        for lease in pool.leases.values()
    }
    return (
        pool.stage.tolist(),
        pool.generation.tolist(),
        pool.lease.tolist(),
        pool.free_list.tolist(),
        (pool.pages_withdrawn, pool.pages_surplus),
        leases,
        sorted(drain.waiting),
    )


class PoolMachine(RuleBasedStateMachine):
    """The real pool and drain, the model, and rules that move both."""

    def __init__(self) -> None:
        super().__init__()
        self.out: list[Effect] = []
        self.pool = Pool(PAGES, 4, Incarnation("i"))
        self.drain = Drain(self.pool, GuardSet(), self.out)
        self.now = Instant(0)
        self.requests = 0

    @initialize()
    def model(self) -> None:
        self.stage = dict.fromkeys(range(PAGES), S.FREE)
        self.generation = dict.fromkeys(range(PAGES), 0)
        self.free = list(self.pool.free_list.tolist())
        self.leases: dict[int, ModelLease] = {}
        self.real: dict[int, Lease] = {}
        self.scrubs: list[Fenced] = []
        self.target = PAGES
        self.withdrawn: set[int] = set()

    # Helpers

    def pick(self, data: st.DataObject, *, live: bool) -> int | None:
        ids = [i for i, lease in self.leases.items() if lease.live is live]
        return data.draw(st.sampled_from(ids)) if ids else None

    def note(self, lease: Lease, pages: list[int]) -> None:
        self.leases[int(lease.id)] = ModelLease(lease.owner, pages)
        self.real[int(lease.id)] = lease

    def take_effects(self) -> None:
        self.scrubs += [e.fenced for e in self.out if isinstance(e, Scrub)]
        assert all(isinstance(e, Scrub | Record) for e in self.out)
        self.out.clear()

    def unheld_become_fenced(self) -> None:
        """The model's drain: every ended lease without a hold is fenced."""
        for lease_id, lease in list(self.leases.items()):
            if not lease.live and not lease.holds:
                for page in lease.pages:
                    self.stage[page] = S.FENCED
                del self.leases[lease_id]

    @property
    def surplus(self) -> int:
        return max(0, PAGES - len(self.withdrawn) - self.target)

    def withdraw_surplus(self) -> None:
        """The model's withdrawal: what is free goes, the longest free first."""
        count = min(self.surplus, len(self.free))
        gone, self.free = self.free[:count], self.free[count:]
        for page in gone:
            self.stage[page] = S.WITHDRAWN
        self.withdrawn |= set(gone)

    # Rules

    @rule(pages=st.integers(0, PAGES))
    def resize(self, pages: int) -> None:
        self.pool.resize(pages)
        self.target = pages
        self.withdraw_surplus()
        missing = max(0, pages - (PAGES - len(self.withdrawn)))
        back = sorted(self.withdrawn)[:missing]
        for page in back:
            self.stage[page] = S.FREE
        self.withdrawn -= set(back)
        self.free += reversed(back)

    @rule(pages=st.sampled_from((-1, PAGES + 1)))
    def resize_beyond_what_was_mapped(self, pages: int) -> None:
        before = snapshot(self.pool, self.drain)
        with pytest.raises(Misuse):
            self.pool.resize(pages)
        assert snapshot(self.pool, self.drain) == before

    @rule(count=st.integers(0, PAGES + 2), tenant=st.sampled_from("ab"))
    def reserve(self, count: int, tenant: str) -> None:
        self.requests += 1
        owner = Owner(tenant, f"r{self.requests}", 1)
        if count > len(self.free):
            before = snapshot(self.pool, self.drain)
            with pytest.raises(Misuse):
                self.pool.reserve(owner, count)
            assert snapshot(self.pool, self.drain) == before
            return
        expected = [self.free.pop() for _ in range(count)]
        lease = self.pool.reserve(owner, count)
        assert lease.pages.tolist() == expected, "most recently freed first"
        assert lease.generations.tolist() == [self.generation[p] for p in expected]
        for page in expected:
            self.stage[page] = S.RESERVED
        self.note(lease, expected)

    @rule(data=st.data(), verb=st.sampled_from(list(Verb)))
    def advance(self, data: st.DataObject, verb: Verb) -> None:
        chosen = self.pick(data, live=True)
        if chosen is None:
            return
        model, lease = self.leases[chosen], self.real[chosen]
        size = data.draw(st.integers(0, len(model.pages)))
        pages, array = model.pages[:size], np.array(model.pages[:size], dtype=np.int32)
        after = [EDGES.get((self.stage[p], verb)) for p in pages]
        if verb in (V.RETIRE, V.QUARANTINE) or None in after:
            before = snapshot(self.pool, self.drain)
            with pytest.raises(InvariantBroken):
                self.pool.advance(lease, verb, array)
            assert snapshot(self.pool, self.drain) == before
            return
        self.pool.advance(lease, verb, array)
        for page, stage in zip(pages, after, strict=True):
            assert stage is not None
            self.stage[page] = stage

    @rule(data=st.data(), verb=st.sampled_from(list(Verb)))
    def advance_pages_of_another(self, data: st.DataObject, verb: Verb) -> None:
        mine, other = self.pick(data, live=True), self.pick(data, live=True)
        if mine is None or other is None or mine == other or not self.leases[other].pages:
            return
        before = snapshot(self.pool, self.drain)
        with pytest.raises(InvariantBroken):
            self.pool.advance(self.real[mine], verb, self.real[other].pages)
        assert snapshot(self.pool, self.drain) == before

    @rule(data=st.data(), kind=st.sampled_from(list(Hold)))
    def hold(self, data: st.DataObject, kind: Hold) -> None:
        chosen = self.pick(data, live=True)
        if chosen is not None:
            holds = self.leases[chosen].holds
            holds[kind] = holds.get(kind, 0) + 1
            self.real[chosen].hold(kind)

    @rule(data=st.data(), kind=st.sampled_from(list(Hold)), live=st.booleans())
    def release(self, data: st.DataObject, kind: Hold, live: bool) -> None:
        chosen = self.pick(data, live=live)
        if chosen is None:
            return
        holds = self.leases[chosen].holds
        if kind not in holds:
            before = snapshot(self.pool, self.drain)
            with pytest.raises(InvariantBroken):
                self.real[chosen].release(kind)
            assert snapshot(self.pool, self.drain) == before
            return
        holds[kind] -= 1
        if not holds[kind]:
            del holds[kind]
        self.real[chosen].release(kind)

    @rule(data=st.data(), verb=st.sampled_from([V.RETIRE, V.QUARANTINE]))
    def end(self, data: st.DataObject, verb: Verb) -> None:
        chosen = self.pick(data, live=True)
        if chosen is None:
            return
        model = self.leases[chosen]
        self.drain.begin(self.real[chosen], verb, "completed", self.now)
        model.live = False
        for page in model.pages:
            self.stage[page] = S.DRAINING if verb is V.RETIRE else S.QUARANTINED
            self.generation[page] += 1
        self.unheld_become_fenced()
        self.take_effects()

    @rule(data=st.data(), verb=st.sampled_from([V.RETIRE, V.QUARANTINE]))
    def end_twice(self, data: st.DataObject, verb: Verb) -> None:
        chosen = self.pick(data, live=False)
        if chosen is None:
            return
        before = snapshot(self.pool, self.drain)
        with pytest.raises(InvariantBroken):
            self.pool.end(self.real[chosen], verb)
        assert snapshot(self.pool, self.drain) == before

    @rule(data=st.data(), verb=st.sampled_from(list(Verb)))
    def fence_or_advance_too_early_or_late(self, data: st.DataObject, verb: Verb) -> None:
        before = snapshot(self.pool, self.drain)
        alive, ended = self.pick(data, live=True), self.pick(data, live=False)
        if alive is not None:
            with pytest.raises(InvariantBroken):
                self.pool.fence(self.real[alive], Fence.LOCAL)
        if ended is not None:
            with pytest.raises(InvariantBroken):
                self.pool.advance(self.real[ended], verb, self.real[ended].pages)
            with pytest.raises(InvariantBroken):
                self.pool.transfer(self.real[ended], Owner("x", "x", 1), 0)
        assert snapshot(self.pool, self.drain) == before

    @rule()
    def turn(self) -> None:
        self.drain.turn(self.now)
        self.unheld_become_fenced()
        self.take_effects()

    @precondition(lambda self: self.scrubs)
    @rule(data=st.data())
    def scrub_done(self, data: st.DataObject) -> None:
        fenced = self.scrubs.pop(data.draw(st.integers(0, len(self.scrubs) - 1)))
        self.drain.scrubbed(fenced)
        pages = fenced.pages.tolist()
        for page in pages:
            assert self.stage[page] is S.FENCED
            self.stage[page] = S.FREE
        self.free += reversed(pages)
        self.withdraw_surplus()
        if pages:
            before = snapshot(self.pool, self.drain)
            with pytest.raises(InvariantBroken):
                self.drain.scrubbed(fenced)
            with pytest.raises(InvariantBroken):
                self.pool.free(Scrubbed(fenced.pages))
            assert snapshot(self.pool, self.drain) == before

    @rule(data=st.data())
    def transfer(self, data: st.DataObject) -> None:
        chosen = self.pick(data, live=True)
        if chosen is None:
            return
        model, lease = self.leases[chosen], self.real[chosen]
        taker = Owner("prefix", "p", 1)
        with pytest.raises(InvariantBroken):
            self.pool.transfer(lease, taker, len(model.pages) + 1)
        if model.holds:
            return
        count = data.draw(st.integers(0, len(model.pages)))
        new = self.pool.transfer(lease, taker, count)
        given, model.pages = model.pages[:count], model.pages[count:]
        self.note(new, given)

    # What must hold after each rule

    @invariant()
    def books_add_up(self) -> None:
        invariants.check(self.pool)

    @invariant()
    def pool_equals_model(self) -> None:
        assert {p: S(int(s)) for p, s in enumerate(self.pool.stage)} == self.stage
        assert dict(enumerate(self.pool.generation.tolist())) == self.generation
        assert self.pool.free_list.tolist() == self.free
        assert self.pool.pages_free == len(self.free)
        fenced = sum(stage is S.FENCED for stage in self.stage.values())
        assert self.pool.pages_coming == len(self.free) + fenced - self.surplus
        counts = {stage: list(self.stage.values()).count(stage) for stage in S}
        assert self.pool.count() == counts

    @invariant()
    def leases_free_and_withdrawn_pages_are_all(self) -> None:
        counts = self.pool.count()
        assert counts[S.WITHDRAWN] == self.pool.pages_withdrawn == len(self.withdrawn)
        assert self.pool.pages_surplus == self.surplus
        owned = sum(len(lease.pages) for lease in self.pool.leases.values())
        coming = counts[S.FENCED] + counts[S.SCRUBBED]
        assert counts[S.FREE] + counts[S.WITHDRAWN] + owned + coming == PAGES
        assert not (self.surplus and self.free), "nothing is free that is to be withdrawn"

    @invariant()
    def owners_equal_model(self) -> None:
        assert {int(i) for i in self.pool.leases} == set(self.leases)
        for lease_id, model in self.leases.items():
            real = self.real[lease_id]
            assert (real.owner, real.live) == (model.owner, model.live)
            assert real.pages.tolist() == model.pages
            assert all(self.pool.lease[p] == lease_id for p in model.pages)
        assert all(self.pool.lease[p] == NOBODY for p in self.free)

    @invariant()
    def held_pages_are_never_on_their_way_to_free(self) -> None:
        gone = {S.FREE, S.FENCED, S.SCRUBBED}
        for model in self.leases.values():
            if model.holds:
                assert not [p for p in model.pages if self.stage[p] in gone]
                assert not [p for p in model.pages if S(int(self.pool.stage[p])) in gone]

    @invariant()
    def references_live_exactly_as_long_as_their_lease(self) -> None:
        stages = frozenset(S) - {S.FREE}
        for lease_id, model in self.leases.items():
            lease = self.real[lease_id]
            span = self.pool.span(lease.pages)
            named = type(span)(span.incarnation, lease.pages, lease.generations)
            expected = [] if model.live else model.pages
            assert self.pool.stale(named, stages).tolist() == expected

    def teardown(self) -> None:
        """Let go of everything: all pages must come back."""
        if not hasattr(self, "leases"):
            return
        for lease_id, model in list(self.leases.items()):
            lease = self.real[lease_id]
            if model.live:
                self.drain.begin(lease, V.RETIRE, "completed", self.now)
            for kind, count in list(lease.holds.items()):
                for _ in range(count):
                    lease.release(kind)
        self.drain.turn(self.now)
        self.take_effects()
        for fenced in self.scrubs:
            self.drain.scrubbed(fenced)
        invariants.check(self.pool)
        assert self.pool.pages_free == self.target
        assert self.pool.pages_withdrawn == PAGES - self.target
        assert not self.pool.leases
        assert not self.drain.waiting


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40)


def test_the_next_owner_of_as_many_pages_gets_them_in_the_same_order() -> None:
    pool = Pool(8, 4, Incarnation("i"))
    first = pool.reserve(Owner("a", "1", 1), 5)
    order = first.pages.tolist()
    pool.end(first, V.RETIRE)
    pool.free(pool.scrub(pool.fence(first, Fence.LOCAL)))
    assert pool.reserve(Owner("b", "2", 1), 5).pages.tolist() == order


def test_a_reference_of_another_life_is_stale_as_a_whole() -> None:
    pool = Pool(4, 4, Incarnation("new"))
    pages = pool.reserve(Owner("a", "1", 1), 3).pages
    span = pool.span(pages)
    old = type(span)(Incarnation("old"), span.pages, span.generations)
    assert pool.stale(span, frozenset({S.RESERVED})).tolist() == []
    assert pool.stale(old, frozenset({S.RESERVED})).tolist() == pages.tolist()
    assert pool.stale(span, frozenset({S.READABLE})).tolist() == pages.tolist()


@pytest.mark.parametrize("count", [-1, 5])
def test_more_pages_than_there_are_is_misuse_and_changes_nothing(count: int) -> None:
    pool = Pool(4, 4, Incarnation("i"))
    with pytest.raises(Misuse):
        pool.reserve(Owner("a", "1", 1), count)
    assert pool.pages_free == 4
    assert not pool.leases


BREAKS: dict[str, Callable[[Pool], None]] = {
    "free page that is not on the list": lambda pool: pool.stage.__setitem__(0, S.FREE),
    "page of two leases": lambda pool: pool.leases[LeaseId(2)].pages.__setitem__(0, 0),
    "page that names no lease": lambda pool: pool.lease.__setitem__(0, NOBODY),
    "live lease in a later generation": lambda pool: pool.generation.__setitem__(0, 7),
    "page on the list that is owned": lambda pool: pool.stage.__setitem__(5, S.READABLE),
    "free page with an owner": lambda pool: pool.lease.__setitem__(5, 1),
    "page that is withdrawn and not counted": lambda pool: pool.stage.__setitem__(0, S.WITHDRAWN),
    "withdrawn page with an owner": lambda pool: pool.lease.__setitem__(7, 1),
    "free page that is to be withdrawn": lambda pool: setattr(pool, "_target", 5),
}


@pytest.mark.parametrize("name", BREAKS)
def test_broken_books_are_found(name: str) -> None:
    """The invariants can fail: each way of breaking the arrays is noticed."""
    pool = Pool(8, 4, Incarnation("i"))
    pool.resize(6)
    pool.reserve(Owner("a", "1", 1), 2)
    pool.reserve(Owner("b", "2", 1), 2)
    assert pool.stage.tolist() == [S.RESERVED] * 4 + [S.FREE] * 2 + [S.WITHDRAWN] * 2
    invariants.check(pool)
    BREAKS[name](pool)
    with pytest.raises(InvariantBroken):
        invariants.check(pool)
