"""The deployment gate: what is advertised follows what the nodes report, and every change shows."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import httpx
import pytest

from kvairlock.core.errors import Reason, Refusal
from kvairlock.core.guards import ALL_GUARDS, Guard, GuardSet
from kvairlock.core.messages import Submit
from kvairlock.core.promise.capacity import CapacityReport, Demand
from kvairlock.core.promise.commitment import Commitment, LengthClass, Reach
from kvairlock.core.promise.violations import ViolationKind
from kvairlock.core.terms import Instant, NodeName, Role, Route
from kvairlock.gateway.gate import Gate, Outcome
from kvairlock.gateway.routes import Routes
from kvairlock.sink.reading import read
from kvairlock.sink.recorder import Recorder

from .fake_nodes import FakeNodes, report, status
from .stacks import Stack, stack, until

P0, P1, D0 = (NodeName(name) for name in ("prefill-0", "prefill-1", "decode-0"))
ROLES = {P0: Role.PREFILL, P1: Role.PREFILL, D0: Role.DECODE}
NOW = Instant(1)
EPOCHS = count()
UNCONTRACTED = GuardSet(frozenset({Guard.CONTRACT}))


def table(commitment: Commitment, guards: GuardSet = ALL_GUARDS) -> Routes:
    """Routes over two unequal prefill nodes: one holds 512 tokens, the other 256."""
    routes = Routes(ROLES, guards, commitment, now=lambda: NOW)
    hear(routes, report(P0, Role.PREFILL, 512))
    hear(routes, report(P1, Role.PREFILL, 256))
    hear(routes, report(D0, Role.DECODE, 1024))
    return routes


def hear(routes: Routes, said: CapacityReport) -> None:
    """A node reports: each time anew, as after a change."""
    anew = replace(said, epoch=next(EPOCHS))
    routes.heard(said.node, status(anew, (P0, P1)), NOW)


def refused(answer: Route | Refusal) -> tuple[object, ...]:
    assert isinstance(answer, Refusal)
    return answer.reason, answer.asked, answer.limit, answer.limit_name


# Routes keep to the commitment


def test_nothing_longer_than_the_smallest_route_is_admitted_where_any_may_be_taken() -> None:
    routes = table(Commitment(reach=Reach.EVERY))
    assert routes.promise() == 256
    assert isinstance(routes.choose(Demand(255, 1), {}), Route)
    answer = routes.choose(Demand(256, 1), {})
    assert refused(answer) == (Reason.CONTEXT_LENGTH, 257, 256, "context_window")
    assert routes.room_tokens(Demand(200, 999)) == 56
    routes.lost(P1)
    assert routes.promise() == 512
    assert routes.choose(Demand(256, 1), {}) == Route(P0, D0)


def test_another_fingerprint_than_the_pinned_one_closes_the_route() -> None:
    routes = table(Commitment(fingerprints={P0: "as-checked"}))
    assert routes.up() == (Route(P1, D0),)
    assert routes.promise() == 256
    forced = routes.choose(Demand(1, 1), {}, Route(P0, D0))
    assert isinstance(forced, Refusal)
    assert forced.reason is Reason.ROUTE_CLOSED
    hear(routes, replace(report(P0, Role.PREFILL, 512), fingerprint="as-checked"))
    assert routes.promise() == 512


def test_nodes_with_two_layouts_are_no_route() -> None:
    routes = table(Commitment())
    hear(routes, replace(report(P0, Role.PREFILL, 512), page_tokens=32))
    assert routes.up() == (Route(P1, D0),)


@pytest.mark.parametrize(("asked", "limit"), [(101, 100), (1000, 100)])
def test_output_over_what_is_promised_is_refused_with_figures(asked: int, limit: int) -> None:
    routes = table(Commitment(output_tokens=100))
    answer = routes.choose(Demand(10, asked), {})
    assert refused(answer) == (Reason.CONTEXT_LENGTH, asked, limit, "output_tokens")
    assert isinstance(answer, Refusal)
    assert str(asked) in answer.message
    assert isinstance(routes.choose(Demand(10, limit), {}), Route)


def test_an_answer_whose_length_nobody_said_keeps_to_the_output_limit() -> None:
    assert table(Commitment(output_tokens=100)).room_tokens(Demand(10, 256)) == 100
    assert table(Commitment()).room_tokens(Demand(10, 256)) == 502
    assert table(Commitment(output_tokens=100)).room_tokens(Demand(500, 256)) == 12


def test_the_output_limit_is_part_of_the_contract() -> None:
    routes = table(Commitment(output_tokens=100), UNCONTRACTED)
    assert isinstance(routes.choose(Demand(10, 101), {}), Route)


def test_output_is_never_advertised_beyond_the_context() -> None:
    assert table(Commitment(output_tokens=100)).promised_output() == 100
    assert table(Commitment(output_tokens=9999)).promised_output() == 511
    assert table(Commitment()).promised_output() == 0


# What the gate remembers


def recorded(evidence: Recorder) -> list[tuple[object, ...]]:
    """Outcome, published tokens and violations of each judgement on record."""
    evidence.close()
    checked = [r for r in read(evidence.path) if r["event"] == "commitment_checked"]
    return [(r["outcome"], r["published_tokens"], r["violations"]) for r in checked]


def test_only_what_changes_the_outcome_is_recorded(evidence: Recorder) -> None:
    routes = table(Commitment(512))
    gate = Gate(routes, evidence)
    assert gate.look().outcome is Outcome.KEPT
    hear(routes, report(P1, Role.PREFILL, 256))
    hear(routes, report(P1, Role.PREFILL, 128))
    assert gate.look().outcome is Outcome.KEPT
    hear(routes, report(P0, Role.PREFILL, 400))
    judged = gate.look()
    assert judged is gate.look()
    (violation,) = judged.violations
    assert (violation.kind, violation.holds) == (ViolationKind.CONTEXT_OVER_ROUTE, 400)
    hear(routes, report(P0, Role.PREFILL, 512))
    assert gate.look().outcome is Outcome.KEPT
    assert recorded(evidence) == [
        ("kept", 512, []),
        ("violated", 400, [f"context_over_route: {violation.message}"]),
        ("kept", 512, []),
    ]


def test_a_lost_node_is_a_change(evidence: Recorder) -> None:
    routes = table(Commitment(classes=(LengthClass("long", 512, 1),)))
    gate = Gate(routes, evidence)
    gate.look()
    routes.lost(P0)
    kinds = [violation.kind for violation in gate.look().violations]
    assert kinds == [ViolationKind.UNREPORTED, ViolationKind.CLASS_OVER_ROUTES]
    assert [record[:2] for record in recorded(evidence)] == [("kept", 512), ("violated", 256)]


# The whole gateway

COMMITTED = """
[gateway]
port = 0

[commitment]
context_tokens = 400
output_tokens = 64
reach = "every"

[[commitment.classes]]
name = "page"
context_tokens = 256
concurrency = 2

[[prefill]]
name = "prefill-0"

[[prefill]]
name = "prefill-1"
"""


def start_unequal(nodes: FakeNodes) -> None:
    nodes.start("prefill-0", 512)
    nodes.start("prefill-1", 256)
    nodes.start("decode-0", 1024, ["prefill-0", "prefill-1"])


def told_of(running: Stack) -> dict[str, object]:
    headers = running.headers(running.operator_key)
    told: dict[str, object] = running.http.get("/status", headers=headers).json()["commitment"]
    return told


def model_of(running: Stack) -> dict[str, object]:
    models = running.http.get("/v1/models", headers=running.headers()).json()
    (model,) = models["data"]
    return dict(model)


def error_of(response: httpx.Response) -> tuple[object, ...]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["asked"], error["limit"], error["limit_name"]


def test_the_gate_lowers_the_promise_and_says_so_everywhere() -> None:
    with stack(COMMITTED, start_unequal) as running:
        assert model_of(running)["max_model_len"] == 256
        assert model_of(running)["max_output_tokens"] == 64
        told = told_of(running)
        assert (told["outcome"], told["promised_tokens"]) == ("violated", 400)
        assert (told["published_tokens"], told["published_output_tokens"]) == (256, 64)
        assert told["classes"] == [{"name": "page", "context_tokens": 256, "concurrency": 2}]
        assert isinstance(told["violations"], list)
        (violation,) = told["violations"]
        assert (violation["kind"], violation["route"]) == (
            "context_over_route",
            "prefill-1/decode-0",
        )
        metrics = running.http.get("/metrics").text
        assert "kvairlock_commitment_violations 1.0" in metrics.splitlines()
        over = running.complete(prompt=[1] * 250, max_tokens=8)
        assert error_of(over) == (400, "context_length_exceeded", 258, 256, "context_window")
        lengthy = running.complete(max_tokens=65)
        assert error_of(lengthy) == (400, "context_length_exceeded", 65, 64, "output_tokens")
        assert running.complete(max_tokens=64).status_code == 200


def test_a_node_that_comes_back_larger_raises_the_promise() -> None:
    with stack(COMMITTED, start_unequal) as running:
        running.nodes.stop("prefill-1")
        running.nodes.start("prefill-1", 512)
        until(lambda: model_of(running)["max_model_len"] == 400)
        until(lambda: told_of(running)["outcome"] == "kept")
        assert running.complete(prompt=[1] * 250, max_tokens=8).status_code == 200
        running.stop()
        published = [
            (r["outcome"], r["published_tokens"]) for r in running.evidence("commitment_checked")
        ]
        assert published[0] == ("violated", 256)
        assert published[-1] == ("kept", 400)


PINNED = """
[gateway]
port = 0

[commitment.fingerprints]
prefill-0 = "as-checked"

[[prefill]]
name = "prefill-0"

[[prefill]]
name = "prefill-1"
"""


def test_a_node_that_is_not_as_pinned_gets_no_request() -> None:
    with stack(PINNED, start_unequal) as running:
        told = told_of(running)
        assert told["fingerprints"] == {"prefill-0": "as-checked"}
        assert isinstance(told["violations"], list)
        assert [v["kind"] for v in told["violations"]] == ["fingerprint_changed"]
        assert model_of(running)["max_model_len"] == 256
        for _ in range(3):
            assert running.complete(prompt=[1] * 9, max_tokens=4).status_code == 200
            submit = running.decode.next(Submit)
            assert isinstance(submit, Submit)
            assert submit.prefill == "prefill-1"
        over = running.complete(prompt=[1] * 300, max_tokens=4)
        assert error_of(over)[:2] == (400, "context_length_exceeded")


def test_a_chat_whose_length_nobody_said_is_cut_to_the_output_limit() -> None:
    with stack(COMMITTED, start_unequal) as running:
        assert running.chat().status_code == 200
        submit = running.decode.next(Submit)
        assert isinstance(submit, Submit)
        assert submit.max_tokens == 64
