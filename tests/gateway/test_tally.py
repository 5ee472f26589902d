"""What clients do wrong counts against their tenant: after as much as is set it gets 429."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from kvairlock.core.errors import REASONS, Fault, Reason, Refusal, Stage
from kvairlock.core.terms import NS_PER_MS, Instant, Owner
from kvairlock.gateway import tally
from kvairlock.gateway.tally import TENANTS_MAX, Tally, is_fault
from kvairlock.sink.reading import read
from kvairlock.sink.recorder import Recorder

from .fake_nodes import wait_for_cancel
from .stacks import TIMES, Stack, stack, until

LIMIT = 3
SETTINGS = f"""
[gateway]
port = 0

[breaker]
failures = 1
tenant_faults_per_min = {LIMIT}
"""
ACME, RIVAL = Owner("acme", "r-1", 1), Owner("rival", "r-2", 1)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ms = 5_000_000

    def now(self) -> Instant:
        return Instant(self.ms * NS_PER_MS)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(tally, "clock", clock)
    return clock


def test_only_what_is_the_clients_own_doing_is_a_fault_and_to_leave_is_none() -> None:
    faults = {r for r in Reason if is_fault(Refusal(r, Stage.GATEWAY, ""))}
    clients = {r for r, row in REASONS.items() if row.fault is Fault.CLIENT}
    assert faults == clients - {Reason.CANCELLED}


def test_a_tenant_is_refused_after_as_many_faults_and_let_in_as_they_pass(
    clock: Clock, evidence: Recorder
) -> None:
    counted = Tally(2, evidence)
    assert counted.refuses("acme") is None
    counted.add(ACME, "malformed_json")
    clock.ms += 10_000
    assert counted.refuses("acme") is None
    counted.add(ACME, "context_length")
    refused = counted.refuses("acme")
    assert refused is not None
    refusal, error = refused
    assert (refusal.reason, refusal.stage) == (Reason.TENANT_SHARE, Stage.GATEWAY)
    assert (refusal.asked, refusal.limit, refusal.limit_name) == (2, 2, "tenant_faults_per_min")
    assert (error.status, error.headers) == (429, {"retry-after": "50"})
    assert counted.refuses("rival") is None
    clock.ms += 49_999
    assert counted.refuses("acme") is not None
    clock.ms += 1
    assert counted.refuses("acme") is None


def test_without_a_limit_faults_are_recorded_and_refuse_nobody(
    clock: Clock, evidence: Recorder
) -> None:
    counted = Tally(0, evidence)
    for _ in range(5):
        counted.add(ACME, "forged")
    assert counted.refuses("acme") is None
    evidence.close()
    recorded = [r for r in read(evidence.path) if r["event"] == "tenant_fault"]
    assert [(r["fault"], r["faults"], r["limit"]) for r in recorded] == [
        ("forged", count, 0) for count in range(1, 6)
    ]
    assert "acme" not in str(read(evidence.path))


def test_the_tenants_that_were_at_fault_last_are_remembered(
    clock: Clock, evidence: Recorder
) -> None:
    counted = Tally(1, evidence)
    counted.add(RIVAL, "forged")
    for number in range(TENANTS_MAX - 1):
        counted.add(Owner(f"t{number}", "r", 1), "forged")
    assert counted.refuses("rival") is not None
    counted.add(ACME, "forged")
    assert counted.refuses("rival") is None, "4096 others came after it"


@pytest.fixture
def gateway() -> Iterator[Stack]:
    with stack(SETTINGS, limits=TIMES) as running:
        yield running


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def test_faults_of_clients_close_no_route_and_refuse_their_tenant_alone(gateway: Stack) -> None:
    assert code_of(gateway.complete(prompt="x" * 300)) == (400, "context_length_exceeded")
    assert code_of(gateway.complete(max_tokens=-1)) == (400, "invalid_value")
    assert gateway.complete().status_code == 200
    assert code_of(gateway.complete(model="other")) == (404, "model_not_found")
    for _ in range(2):
        refused = gateway.complete()
        assert code_of(refused) == (429, "tenant_share_exceeded")
        assert 0 < int(refused.headers["retry-after"]) <= 60
        figures = refused.json()["error"]
        assert (figures["asked"], figures["limit"]) == (LIMIT, LIMIT)
        assert figures["limit_name"] == "tenant_faults_per_min"
    assert gateway.complete(gateway.other_key).status_code == 200
    health = gateway.http.get("/healthz").json()
    assert health["breakers"] == {"prefill-0/decode-0": "closed"}
    until(lambda: len(gateway.evidence("tenant_fault")) == LIMIT)
    faults = [(r["fault"], r["faults"]) for r in gateway.evidence("tenant_fault")]
    assert faults == [("context_length", 1), ("invalid_value", 2), ("model_not_found", 3)]
    until(lambda: len(gateway.evidence("request_refused")) == 3)
    reasons = [r["reason"] for r in gateway.evidence("request_refused")]
    assert reasons == ["context_length", "tenant_share", "tenant_share"]


def test_clients_that_leave_and_keys_that_nobody_has_are_nobodys_fault(gateway: Stack) -> None:
    gateway.decode.script = wait_for_cancel
    for _ in range(LIMIT):
        assert code_of(gateway.complete("kva-no"))[0] == 401
        body = {"model": "recall", "prompt": "hello", "stream": True}
        headers = gateway.headers()
        with gateway.http.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
            assert answer.status_code == 200
    status = gateway.headers(gateway.operator_key)
    until(lambda: gateway.http.get("/status", headers=status).json()["in_flight"] == 0)
    assert gateway.evidence("tenant_fault") == []
