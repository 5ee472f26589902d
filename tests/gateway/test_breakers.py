"""Breakers of a gateway: what opens and closes them, what is kept, and who gets through."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kvairlock.core.errors import Misuse, Reason, Refusal, Stage
from kvairlock.core.guards import ALL_GUARDS
from kvairlock.core.promise.breaker import NEVER_OPENED, BreakerState, Traffic
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.promise.commitment import Commitment
from kvairlock.core.promise.conditions import Condition, Conditions
from kvairlock.core.promise.trial import NodeMoment, RecordKind, RecoveryRecord, RouteMoment
from kvairlock.core.terms import Instant, NodeName, Role, Route
from kvairlock.gateway.breaker_file import BreakerFile, StateUnusable, Unreadable
from kvairlock.gateway.breakers import Breakers
from kvairlock.gateway.closures import ClosedBy, Closure
from kvairlock.gateway.routes import Routes, all_routes
from kvairlock.sink.reading import read
from kvairlock.sink.recorder import Recorder

from .fake_nodes import report, status

P0, P1, D0 = (NodeName(name) for name in ("prefill-0", "prefill-1", "decode-0"))
NODES = {P0: Role.PREFILL, P1: Role.PREFILL, D0: Role.DECODE}
SMALL, LARGE = all_routes(NODES)
TOKENS = {P0: 256, P1: 512, D0: 512}
VIOLATION = Refusal(Reason.GENERATION, Stage.VERDICT, "of an earlier use")
FAILURE = Refusal(Reason.ENGINE, Stage.PREFILL, "the engine failed")
CONDITIONS = Conditions(failures=2, violations=1, within_ms=60_000)
EVENTS = {"breaker_opened", "breaker_half_open", "breaker_closed", "recovery_recorded"}
NOW = Instant(1)


class Gateway:
    """The breakers and the routes of one gateway, over one state directory."""

    def __init__(self, folder: Path, evidence: Recorder) -> None:
        self.path, self.evidence = folder / "breakers.json", evidence
        self.file = BreakerFile(self.path)
        self.start()

    def start(self) -> None:
        """Begin another life over the same state directory."""
        self.file.release()
        self.file = BreakerFile(self.path)
        self.file.claim()
        self.breakers = Breakers(all_routes(NODES), CONDITIONS, self.file, self.evidence)
        clock = lambda: NOW  # noqa: E731 - no report ages here
        self.routes = Routes(NODES, ALL_GUARDS, Commitment(), self.breakers, now=clock)
        for name, role in NODES.items():
            self.hears(name, role)

    def hears(self, name: NodeName, role: Role, incarnation: str = "life-1") -> None:
        stated = report(name, role, TOKENS[name], incarnation)
        self.routes.heard(name, status(stated, (P0, P1)), NOW)

    def moment(self, route: Route) -> RouteMoment:
        moment = self.routes.moment(route)
        assert moment is not None
        return moment

    def records(self, route: Route, *kinds: RecordKind) -> None:
        for kind in kinds:
            record = RecoveryRecord(kind, self.moment(route), (f"{kind} was seen",), 7)
            self.breakers.put_on_record(route, record)

    def recorded(self) -> list[dict[str, object]]:
        """Close the evidence, and return what it holds about breakers."""
        self.evidence.close()
        return [r for r in read(self.evidence.path) if r["event"] in EVENTS]


@pytest.fixture
def gateway(tmp_path: Path, evidence: Recorder) -> Iterator[Gateway]:
    made = Gateway(tmp_path, evidence)
    yield made
    made.file.release()


def refused(answer: Route | Refusal) -> Refusal:
    assert isinstance(answer, Refusal)
    return answer


# Open


def test_an_open_breaker_closes_its_route_and_no_other(gateway: Gateway) -> None:
    assert gateway.routes.promise() == 512
    gateway.breakers.failed(LARGE, VIOLATION)
    assert gateway.routes.up() == (SMALL,)
    assert gateway.routes.closure(LARGE) == Closure(ClosedBy.BREAKER)
    assert gateway.routes.promise() == 256, "nothing rests on it any more"
    assert gateway.routes.choose(Demand(10, 1), {P0: 9}) == SMALL
    assert refused(gateway.routes.choose(Demand(300, 1), {})).reason is Reason.CONTEXT_LENGTH


def test_who_names_an_open_route_is_told_which_condition_when_and_how_many(
    gateway: Gateway,
) -> None:
    gateway.breakers.failed(LARGE, FAILURE)
    assert gateway.routes.choose(Demand(10, 1), {}, LARGE) == LARGE, "one failure is not enough"
    gateway.breakers.failed(LARGE, FAILURE)
    refusal = refused(gateway.routes.choose(Demand(10, 1), {}, LARGE))
    assert (refusal.reason, refusal.stage) == (Reason.ROUTE_CLOSED, Stage.GATEWAY)
    assert (refusal.asked, refusal.limit, refusal.limit_name) == (2, 2, "failures")
    assert refusal.message.startswith(
        "the route prefill-1/decode-0 takes no requests: its breaker is open, it opened at 20"
    )
    assert refusal.message.endswith("on the condition `failures` (2 of 2, engine at prefill)")


def test_with_all_breakers_open_it_says_so(gateway: Gateway) -> None:
    for route in (SMALL, LARGE):
        gateway.breakers.open(route, Condition.OPERATOR, "maintenance")
    refusal = refused(gateway.routes.choose(Demand(10, 1), {}))
    assert refusal.reason is Reason.ROUTE_CLOSED
    assert refusal.message.startswith("no route is up: a route takes no requests: its breaker is")
    assert refusal.message.endswith("condition `operator`; and 1 more")
    assert gateway.routes.promise() == 0


def test_what_an_operator_says_and_what_nodes_are_called_is_told_to_operators_only(
    gateway: Gateway,
) -> None:
    for route in (SMALL, LARGE):
        gateway.breakers.open(route, Condition.OPERATOR, "tenant acme was read by bravo")
    anybody = refused(gateway.routes.choose(Demand(10, 1), {}))
    assert "its breaker is open, it opened at 20" in anybody.message
    for secret in ("acme", "bravo", "prefill-", "decode-"):
        assert secret not in anybody.message
    operator = refused(gateway.routes.choose(Demand(10, 1), {}, SMALL))
    assert operator.message.startswith("the route prefill-0/decode-0 takes no requests")
    assert operator.message.endswith(": tenant acme was read by bravo")


def test_what_a_client_causes_opens_nothing(gateway: Gateway) -> None:
    for _ in range(9):
        too_long = Refusal(Reason.CONTEXT_LENGTH, Stage.PREFILL_ADMISSION, "too long")
        gateway.breakers.failed(SMALL, too_long)
    assert gateway.breakers[SMALL].state is BreakerState.CLOSED
    assert json.loads(gateway.path.read_text())["routes"][str(SMALL)]["opening"] is None
    assert gateway.recorded() == []


def test_a_node_that_breaks_the_protocol_counts_on_all_its_routes_and_no_other(
    gateway: Gateway,
) -> None:
    for _ in range(CONDITIONS.failures):
        gateway.breakers.misbehaved(P1, FAILURE)
    assert gateway.breakers[LARGE].state is BreakerState.OPEN
    assert gateway.breakers[SMALL].state is BreakerState.CLOSED
    for _ in range(CONDITIONS.failures):
        gateway.breakers.misbehaved(D0, FAILURE)
    assert gateway.breakers[SMALL].state is BreakerState.OPEN


# Half-open


def test_half_open_lets_drills_through_that_name_it_and_nobody_else(gateway: Gateway) -> None:
    gateway.breakers.failed(LARGE, VIOLATION)
    assert gateway.breakers.refuses(LARGE, Traffic.DRILL) is not None
    gateway.breakers.try_out(LARGE, gateway.moment(LARGE))
    assert gateway.routes.choose(Demand(10, 1), {}, LARGE) == LARGE
    assert gateway.routes.choose(Demand(400, 1), {}, LARGE) == LARGE, "by its own figures"
    assert gateway.routes.choose(Demand(10, 1), {P0: 9}) == SMALL
    assert gateway.routes.promise() == 256
    gateway.breakers.open(SMALL, Condition.OPERATOR, "maintenance")
    assert refused(gateway.routes.choose(Demand(10, 1), {})).reason is Reason.ROUTE_CLOSED
    assert gateway.routes.choose(Demand(10, 1), {}, LARGE) == LARGE


def test_one_failure_opens_it_again(gateway: Gateway) -> None:
    gateway.breakers.open(LARGE, Condition.OPERATOR, "maintenance")
    gateway.breakers.try_out(LARGE, gateway.moment(LARGE))
    gateway.records(LARGE, *RecordKind)
    gateway.breakers.failed(LARGE, FAILURE)
    kept = gateway.breakers[LARGE]
    assert (kept.state, kept.trial) == (BreakerState.OPEN, None)
    assert kept.opening is not None
    assert kept.opening.condition is Condition.TRIAL


def test_a_report_of_another_life_ends_the_trial(gateway: Gateway) -> None:
    gateway.breakers.failed(LARGE, VIOLATION)
    gateway.breakers.try_out(LARGE, gateway.moment(LARGE))
    gateway.records(LARGE, *RecordKind)
    gateway.hears(P0, Role.PREFILL, "life-2")
    assert gateway.breakers[LARGE].state is BreakerState.HALF_OPEN, "it is no node of this route"
    gateway.hears(D0, Role.DECODE, "life-2")
    assert gateway.breakers[LARGE].state is BreakerState.OPEN
    with pytest.raises(Misuse, match="not on trial"):
        gateway.breakers.close(LARGE, gateway.moment(LARGE))
    assert (
        gateway.recorded()[-1]["detail"] == "a node of the route is another one than in the trial"
    )


# Across lives


@pytest.mark.parametrize("half_open", [False, True], ids=["open", "half-open"])
def test_the_next_life_of_the_gateway_knows_all_of_it(gateway: Gateway, half_open: bool) -> None:
    gateway.breakers.failed(LARGE, VIOLATION)
    if half_open:
        gateway.breakers.try_out(LARGE, gateway.moment(LARGE))
        gateway.records(LARGE, RecordKind.CORRECTED, RecordKind.REFUSES)
        gateway.breakers.entered(LARGE)
    before = gateway.breakers.all
    gateway.start()
    assert gateway.breakers.all == before
    assert gateway.routes.up() == (SMALL,)


def test_a_file_that_cannot_be_understood_opens_all_breakers(gateway: Gateway) -> None:
    gateway.breakers.failed(LARGE, VIOLATION)
    gateway.path.write_text(gateway.path.read_text()[:-20])
    gateway.start()
    for route in (SMALL, LARGE):
        refusal = gateway.breakers.refuses(route, Traffic.SERVICE)
        assert refusal is not None
        assert refusal.message.endswith("on the condition `state_file`")
        told = gateway.breakers.refuses(route, Traffic.DRILL)
        assert told is not None
        assert "`state_file`: breakers.json: " in told.message
    assert gateway.routes.up() == ()
    opened = [r for r in gateway.recorded() if r["condition"] == "state_file"]
    assert [r["route"] for r in opened] == [str(SMALL), str(LARGE)]


def test_a_file_of_another_release_lies_aside_and_its_other_routes_are_not_forgotten(
    gateway: Gateway,
) -> None:
    later = {"format": 2, "routes": {"prefill-9/decode-0": {"state": "open", "since": 7}}}
    gateway.path.write_text(json.dumps(later))
    gateway.start()
    aside = gateway.path.with_name("breakers.unreadable-1.json")
    assert json.loads(aside.read_text()) == later
    gateway.breakers.open(SMALL, Condition.OPERATOR, "written over it")
    elsewhere = Route(NodeName("prefill-9"), D0)
    unreadable = BreakerFile(gateway.path).read([elsewhere])[elsewhere]
    assert unreadable == Unreadable("it may be in breakers.unreadable-1.json, which cannot be read")
    aside.unlink()  # an operator has looked
    assert BreakerFile(gateway.path).read([elsewhere]) == {elsewhere: NEVER_OPENED}


def test_two_gateways_do_not_keep_their_breakers_in_one_place(
    gateway: Gateway, evidence: Recorder
) -> None:
    other = BreakerFile(gateway.path)
    with pytest.raises(StateUnusable, match=r"another gateway process keeps its breakers here"):
        other.claim()
    gateway.file.release()
    other.claim()
    other.release()


def test_a_gateway_that_cannot_write_does_not_start(gateway: Gateway) -> None:
    blocks = gateway.path.with_name(f".breakers.json.{os.getpid()}")
    blocks.mkdir()  # the file is written under this name first
    with pytest.raises(StateUnusable, match=r"breakers cannot be kept: .*breakers.json: Is a"):
        gateway.start()
    blocks.rmdir()
    gateway.start()


def test_whoever_looks_is_told_that_an_opening_is_not_kept(gateway: Gateway) -> None:
    blocks = gateway.path.with_name(f".breakers.json.{os.getpid()}")
    blocks.mkdir()
    gateway.breakers.open(SMALL, Condition.OPERATOR, "by hand")
    assert gateway.breakers.unkept == "Is a directory"
    blocks.rmdir()
    gateway.breakers.settle()
    assert gateway.breakers.unkept == ""


def test_what_nodes_say_at_length_is_kept_in_short(gateway: Gateway) -> None:
    gateway.breakers.open(LARGE, Condition.OPERATOR, "x" * 10**6)
    opening = gateway.breakers[LARGE].opening
    assert opening is not None
    assert (len(opening.detail), opening.detail[-4:]) == (1000, "x...")
    gateway.breakers.try_out(LARGE, gateway.moment(LARGE))
    fact = RecoveryRecord(RecordKind.CORRECTED, gateway.moment(LARGE), ("y" * 10**6,), 7)
    gateway.breakers.put_on_record(LARGE, fact)
    assert gateway.path.stat().st_size < 10_000


def test_an_entry_that_cannot_be_understood_opens_its_breaker_alone(gateway: Gateway) -> None:
    gateway.breakers.failed(LARGE, VIOLATION)
    written = json.loads(gateway.path.read_text())
    written["routes"][str(LARGE)]["state"] = "ajar"
    gateway.path.write_text(json.dumps(written))
    gateway.start()
    opening = gateway.breakers[LARGE].opening
    assert opening is not None
    assert opening.condition is Condition.STATE_FILE
    assert gateway.routes.up() == (SMALL,)


def test_nothing_is_closed_that_cannot_be_kept(gateway: Gateway, tmp_path: Path) -> None:
    gateway.breakers.failed(LARGE, VIOLATION)
    gateway.breakers.try_out(LARGE, gateway.moment(LARGE))
    gateway.records(LARGE, *RecordKind)
    gateway.path.unlink()
    gateway.path.mkdir()  # nothing can be written there now
    with pytest.raises(Misuse, match=r"breakers.json cannot be written"):
        gateway.breakers.close(LARGE, gateway.moment(LARGE))
    opening = gateway.breakers[LARGE].opening
    assert opening is not None
    assert opening.condition is Condition.STATE_FILE
    gateway.breakers.settle()
    gateway.path.rmdir()
    gateway.breakers.settle()
    expected = gateway.breakers.all
    gateway.start()
    assert gateway.breakers.all == expected, "it was written as soon as that was possible"


# Records


def test_a_whole_recovery_is_on_record_and_nothing_of_a_tenant(gateway: Gateway) -> None:
    gateway.breakers.failed(LARGE, replace(VIOLATION, message="about tenant acme"))
    gateway.breakers.try_out(LARGE, gateway.moment(LARGE))
    gateway.records(LARGE, *RecordKind)
    gateway.breakers.close(LARGE, gateway.moment(LARGE))
    assert gateway.routes.up() == (SMALL, LARGE)
    opened, tried, *shown, closed = gateway.recorded()
    told = {
        "route": "prefill-1/decode-0",
        "was": "closed",
        "condition": "violations",
        "count": 1,
        "limit": 1,
        "reason": "generation",
        "stage": "verdict",
        "detail": "",
    }
    assert {name: opened[name] for name in told} == told
    assert (tried["event"], tried["was"]) == ("breaker_half_open", "open")
    assert [r["record"] for r in shown] == list(RecordKind)
    assert shown[0]["facts"] == ["corrected was seen"]
    assert shown[0]["incarnations"] == ["life-1", "life-1"]
    assert (shown[0]["epochs"], shown[0]["fingerprints"]) == ([0, 0], ["fake", "fake"])
    assert (closed["event"], closed["was"]) == ("breaker_closed", "half_open")
    assert "acme" not in str(read(gateway.evidence.path)) + gateway.path.read_text()


def test_records_are_about_the_nodes_as_they_report(gateway: Gateway) -> None:
    prefill = NodeMoment.of(report(P1, Role.PREFILL, 512))
    decode = NodeMoment.of(report(D0, Role.DECODE, 512))
    assert gateway.routes.moment(LARGE) == RouteMoment(prefill, decode)
    gateway.routes.lost(D0)
    assert gateway.routes.moment(LARGE) is None
