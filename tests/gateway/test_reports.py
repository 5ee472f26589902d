"""Which reports are believed, for how long, and why a route is closed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kvairlock.core.errors import PeerMisbehaved, Reason, Refusal
from kvairlock.core.guards import ALL_GUARDS
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.promise.commitment import Commitment, Reach, Silence
from kvairlock.core.terms import NS_PER_MS, Incarnation, Instant, NodeName, Role, Route
from kvairlock.gateway.closures import ClosedBy, Closure
from kvairlock.gateway.reports import Belief, NodeState
from kvairlock.gateway.routes import Routes
from kvairlock.wire.versions import SPEAKS

from .fake_nodes import report, status

P0, P1, D0 = (NodeName(n) for n in ("prefill-0", "prefill-1", "decode-0"))
NODES = {P0: Role.PREFILL, P1: Role.PREFILL, D0: Role.DECODE}
LOST_MS = 400
ROUTE = Route(P0, D0)


@dataclass
class Heard:
    """Routes over three nodes, and a clock that the test moves."""

    now_ms: int = 1_000
    commitment: Commitment = field(default_factory=Commitment)
    routes: Routes = field(init=False)

    def __post_init__(self) -> None:
        def now() -> Instant:
            return Instant(self.now_ms * NS_PER_MS)

        self.now = now
        self.routes = Routes(NODES, ALL_GUARDS, self.commitment, lost_ms=LOST_MS, now=now)

    def hear(self, name: NodeName, tokens: int = 512, life: str = "life-1", **more: Any) -> Belief:
        """A node reports; it is linked to all prefill nodes."""
        said = replace(report(name, NODES[name], tokens, life), **more)
        return self.routes.heard(name, status(said, (P0, P1)), self.now())

    def all(self) -> Heard:
        """All nodes report."""
        for name in NODES:
            self.hear(name)
        return self

    def state(self, name: NodeName) -> NodeState:
        return self.routes.nodes[name].state

    def pages(self, name: NodeName) -> int | None:
        """What is shown of a node's pages, believed or not."""
        shown = self.routes.nodes[name].status
        return shown.report.pages if shown else None


# Epochs


def test_of_one_life_the_higher_epoch_is_believed() -> None:
    heard = Heard()
    assert heard.hear(P0, 512) is Belief.NEW
    assert heard.hear(P0, 512) is Belief.SAME
    assert heard.hear(P0, 256, epoch=1) is Belief.NEW
    assert heard.pages(P0) == 16


def test_an_earlier_epoch_is_not_believed_and_overwrites_nothing() -> None:
    heard = Heard().all()
    heard.hear(P0, 256, epoch=5)
    heard.now_ms += LOST_MS - 1
    assert heard.hear(P0, 512, epoch=4) is Belief.EARLIER
    assert (heard.pages(P0), heard.state(P0)) == (16, NodeState.UP)
    heard.now_ms += 1
    assert heard.state(P0) is NodeState.STALE, "it is no sign that the figures still hold"


def test_two_reports_of_one_epoch_that_differ_are_a_contradiction() -> None:
    heard = Heard()
    heard.hear(P0, 512, epoch=2)
    with pytest.raises(PeerMisbehaved, match="two different reports of epoch 2") as refused:
        heard.hear(P0, 1024, epoch=2)
    assert refused.value.reason is Reason.MALFORMED
    assert heard.pages(P0) == 32
    heard.routes.lost(P0)
    with pytest.raises(PeerMisbehaved):
        heard.hear(P0, 1024, epoch=2)
    assert heard.hear(P0, 1024, epoch=3) is Belief.NEW


def test_a_fingerprint_that_changes_needs_an_epoch_of_its_own() -> None:
    heard = Heard()
    heard.hear(P0, fingerprint="a")
    with pytest.raises(PeerMisbehaved):
        heard.hear(P0, fingerprint="b")
    assert heard.hear(P0, fingerprint="b", epoch=1) is Belief.NEW


# Lives


def test_another_life_begins_with_any_epoch() -> None:
    heard = Heard().all()
    heard.hear(P0, 256, epoch=7)
    assert heard.hear(P0, 1024, life="life-2", epoch=0) is Belief.NEW
    assert heard.pages(P0) == 64


def test_figures_of_a_former_life_are_void_as_soon_as_there_is_another() -> None:
    heard = Heard().all()
    heard.routes.lost(P0)
    assert (heard.state(P0), heard.pages(P0)) == (NodeState.LOST, 32)
    heard.routes.connected(P0, Incarnation("life-2"), SPEAKS)
    assert (heard.state(P0), heard.pages(P0)) == (NodeState.UNSEEN, None)
    assert heard.routes.closure(ROUTE) == Closure(ClosedBy.UNSEEN, P0)
    heard.hear(P0, 256, life="life-2")
    assert heard.routes.closure(ROUTE) is None


def test_the_same_life_is_not_believed_again_before_it_reports_again() -> None:
    heard = Heard().all()
    heard.routes.lost(P0)
    heard.routes.connected(P0, Incarnation("life-1"), SPEAKS)
    assert (heard.state(P0), heard.pages(P0)) == (NodeState.LOST, 32)
    assert not heard.routes.is_up(ROUTE)
    assert heard.hear(P0, 512) is Belief.SAME
    assert heard.routes.is_up(ROUTE)


# Age


@pytest.mark.parametrize(("age_ms", "up"), [(LOST_MS - 1, True), (LOST_MS, False)])
@pytest.mark.parametrize("silent", [P0, D0])
def test_a_report_of_a_certain_age_closes_the_route(
    silent: NodeName, age_ms: int, up: bool
) -> None:
    heard = Heard().all()
    heard.now_ms += age_ms
    for name in NODES:
        if name != silent:
            heard.hear(name)
    assert heard.routes.is_up(ROUTE) is up
    assert heard.routes.closure(ROUTE) == (None if up else Closure(ClosedBy.STALE, silent))
    heard.hear(silent)
    assert heard.routes.is_up(ROUTE)


def test_a_stale_report_is_used_for_nothing_and_shown() -> None:
    heard = Heard()
    heard.hear(D0, 2048)
    heard.hear(P1, 256)
    heard.hear(P0, 1024)
    assert heard.routes.promise() == 1024
    heard.now_ms += LOST_MS
    heard.hear(D0, 2048)
    heard.hear(P1, 256)
    assert heard.routes.promise() == 256
    assert heard.routes.room_tokens(Demand(200, 1)) == 56
    assert heard.routes.choose(Demand(10, 1), {P1: 99}) == Route(P1, D0)
    over = heard.routes.choose(Demand(300, 1), {})
    assert isinstance(over, Refusal)
    assert over.limit == 256
    (stale, _) = (route.prefill.said for route in heard.routes.reports())
    assert stale is Silence.STALE
    assert (heard.state(P0), heard.pages(P0)) == (NodeState.STALE, 64)


def test_after_a_suspension_no_old_report_is_used_first() -> None:
    """The clock goes on while the machine is suspended; nobody need have looked meanwhile."""
    heard = Heard().all()
    assert heard.routes.choose(Demand(1, 1), {}) == ROUTE
    heard.now_ms += 3_600_000
    refused = heard.routes.choose(Demand(1, 1), {})
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.ROUTE_CLOSED
    assert heard.routes.promise() == 0


# Routes


def test_why_a_route_is_closed() -> None:
    heard = Heard(commitment=Commitment(fingerprints={P1: "pinned"}))
    assert heard.routes.closure(ROUTE) == Closure(ClosedBy.UNSEEN, P0)
    heard.hear(P0)
    heard.hear(P1)
    assert heard.routes.closure(ROUTE) == Closure(ClosedBy.UNSEEN, D0)
    alone = status(report(D0, Role.DECODE, 512), ())
    heard.routes.heard(D0, alone, heard.now())
    assert heard.routes.closure(ROUTE) == Closure(ClosedBy.UNLINKED, P0)
    heard.hear(D0)
    assert heard.routes.closure(ROUTE) is None
    assert heard.routes.closure(Route(P1, D0)) == Closure(ClosedBy.COMMITMENT)
    heard.routes.lost(D0)
    assert heard.routes.closure(ROUTE) == Closure(ClosedBy.LOST, D0)
    refused = heard.routes.choose(Demand(1, 1), {}, ROUTE)
    assert isinstance(refused, Refusal)
    assert refused.message == "the route prefill-0/decode-0 is not up: lost (decode-0)"


def test_a_node_on_which_nothing_fits_closes_its_routes_and_not_the_promise() -> None:
    heard = Heard(commitment=Commitment(reach=Reach.EVERY)).all()
    assert heard.routes.promise() == 512
    heard.hear(P0, 0, epoch=1)
    assert heard.routes.closure(ROUTE) == Closure(ClosedBy.NOTHING_FITS, P0)
    assert heard.routes.up() == (Route(P1, D0),)
    assert heard.routes.promise() == 512, "a route that is closed bounds nothing"
    heard.hear(D0, 0, epoch=1)
    assert heard.routes.promise() == 0
    refused = heard.routes.choose(Demand(1, 1), {})
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.ROUTE_CLOSED
    heard.hear(D0, 512, epoch=2)
    assert heard.routes.promise() == 512


def test_new_requests_are_judged_by_the_new_figures() -> None:
    heard = Heard().all()
    assert heard.routes.choose(Demand(500, 12), {}) == ROUTE
    heard.hear(D0, 256, epoch=1)
    refused = heard.routes.choose(Demand(500, 12), {})
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.asked, refused.limit) == (Reason.CONTEXT_LENGTH, 512, 256)
    heard.hear(D0, 512, epoch=2)
    assert heard.routes.choose(Demand(500, 12), {}) == ROUTE
