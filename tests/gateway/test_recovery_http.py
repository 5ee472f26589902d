"""Breakers over HTTP: a route that takes nothing, what clients are told, and the way back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.messages import Rehearse, Rehearsed, Submit
from kvairlock.core.promise.admission import judge_decode, judge_prefill
from kvairlock.core.promise.capacity import Demand
from kvairlock.core.promise.trial import RecordKind
from kvairlock.core.terms import NodeName, Role
from kvairlock.gateway.rehearsals import Rehearsals

from .fake_nodes import (
    DECODE_TOKENS,
    PREFILL_TOKENS,
    FakeNode,
    FakeNodes,
    Script,
    Talk,
    by_its_figures,
    greet,
    report,
)
from .stacks import TIMES, Stack, stack, until

SETTINGS = """
[gateway]
port = 0

[[prefill]]
name = "prefill-0"

[[prefill]]
name = "prefill-1"

[[decode]]
name = "decode-0"

[breaker]
failures = 2
"""
ROUTE, OTHER = "prefill-0/decode-0", "prefill-1/decode-0"
VIOLATION = Refusal(Reason.INTEGRITY, Stage.VERDICT, "1 of 1 pages is not what prefill wrote")
FAILURE = Refusal(Reason.ENGINE, Stage.PREFILL, "the engine failed")
ALL = [str(kind) for kind in RecordKind]
Json = dict[str, Any]


def start_three(nodes: FakeNodes) -> None:
    nodes.start("prefill-0", PREFILL_TOKENS)
    nodes.start("prefill-1", PREFILL_TOKENS)
    nodes.start("decode-0", DECODE_TOKENS, ["prefill-0", "prefill-1"])


def ending(refusal: Refusal) -> Script:
    """A script that ends every request alike."""

    async def end(talk: Talk) -> None:
        await talk.end(computed=0, generated=0, refusal=refusal)

    return end


async def as_nodes_do(talk: Talk) -> None:
    """Judge by the own figures, as both nodes of a route do, and answer what they hold."""
    refusal = judged(talk)
    await (greet(talk) if refusal is None else ending(refusal)(talk))


def judged(talk: Talk) -> Refusal | None:
    asked = talk.submit
    demand = Demand(len(asked.tokens) // 4, asked.max_tokens, asked.choices)
    refusal = judge_decode(report("decode-0", Role.DECODE, DECODE_TOKENS), demand)
    return refusal or judge_prefill(report("prefill-0", Role.PREFILL, PREFILL_TOKENS), demand)


@pytest.fixture(scope="module")
def running() -> Iterator[Stack]:
    with stack(SETTINGS, start_three, TIMES) as started:
        yield started


@pytest.fixture
def gateway(running: Stack) -> Iterator[Stack]:
    """The stack with nodes as they should be; whatever a test opened is recovered after it."""
    running.decode.script = as_nodes_do
    yield running
    running.decode.script = as_nodes_do
    for route in (ROUTE, OTHER):
        if told(running, route)["breaker"] != "closed":
            operate(running, "open", route, reason="so that nothing counts as entered")
            assert operate(running, "recover", route).json()["breaker"] == "closed"


def told(gateway: Stack, route: str = ROUTE) -> Json:
    headers = gateway.headers(gateway.operator_key)
    routes = gateway.http.get("/routes", headers=headers).raise_for_status().json()["routes"]
    found: Json = next(each for each in routes if each["route"] == route)
    return found


def shown(gateway: Stack, route: str = ROUTE) -> Json:
    headers = gateway.headers(gateway.operator_key)
    answer: Json = gateway.http.get(f"/routes/{route}", headers=headers).raise_for_status().json()
    return answer


def operate(gateway: Stack, act: str, route: str = ROUTE, **body: object) -> httpx.Response:
    headers = gateway.headers(gateway.operator_key)
    return gateway.http.post(f"/routes/{route}/{act}", json=body, headers=headers)


def lacks(answer: Json) -> dict[str, list[str]]:
    """What stands against each record."""
    return {record["record"]: record["lacks"] for record in answer["records"]}


def ask(gateway: Stack, key: str | None = None, route: str | None = None, **fields: object) -> Any:
    """Ask for a completion, as a tenant who may name a route."""
    headers = gateway.headers(key)
    if route is not None:
        headers["x-kvairlock-route"] = route
    body = {"model": "recall", "prompt": "hello", **fields}
    return gateway.http.post("/v1/completions", json=body, headers=headers)


def taken(gateway: Stack) -> str:
    """The prefill node of the route that the last request was sent on."""
    submits = []
    while not gateway.decode.heard.empty():
        submits.append(gateway.decode.heard.get())
    last = [message for message in submits if isinstance(message, Submit)][-1]
    return str(last.prefill)


def error(response: httpx.Response) -> Json:
    found: Json = response.json()["error"]
    return found


def break_down(gateway: Stack, refusal: Refusal = VIOLATION) -> None:
    """Have one request of a tenant end with a refusal that the decode node states."""
    gateway.decode.script = ending(refusal)
    assert ask(gateway).status_code >= 400
    gateway.decode.script = as_nodes_do


# Open


def test_a_violation_opens_the_breaker_and_the_other_route_goes_on(gateway: Stack) -> None:
    break_down(gateway)
    broken = told(gateway)
    assert (broken["breaker"], broken["takes_requests"]) == ("open", "no: breaker")
    assert broken["opening"]["condition"] == "violations"
    assert (broken["opening"]["reason"], broken["opening"]["stage"]) == ("integrity", "verdict")
    assert broken["missing"] == ALL
    assert told(gateway, OTHER)["breaker"] == "closed"
    for _ in range(3):
        assert ask(gateway).status_code == 200
        assert taken(gateway) == "prefill-1"


def test_with_no_route_left_the_error_says_which_condition_when_and_how_many(
    gateway: Stack,
) -> None:
    operate(gateway, "open", OTHER, reason="maintenance")
    for _ in range(2):
        break_down(gateway, FAILURE)
    answer = ask(gateway)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    found = error(answer)
    assert (found["code"], found["stage"]) == ("route_closed", "gateway")
    assert "a route takes no requests: its breaker is open, it opened at 20" in found["message"]
    assert "prefill-" not in found["message"], "to clients nodes have no names"
    assert "maintenance" not in found["message"], "and operators speak to operators"
    assert "`failures` (2 of 2, engine at prefill); and 1 more" in found["message"]
    health = gateway.http.get("/healthz")
    assert health.status_code == 503
    assert health.json() == {
        "status": "no_route",
        "nodes": {"prefill-0": "up", "prefill-1": "up", "decode-0": "up"},
        "breakers": {ROUTE: "open", OTHER: "open"},
    }
    model = gateway.http.get("/v1/models/recall", headers=gateway.headers()).json()
    assert model["max_model_len"] == 0


def test_status_and_metrics_show_breakers_and_no_tenants(gateway: Stack) -> None:
    break_down(gateway)
    headers = gateway.headers(gateway.operator_key)
    status = gateway.http.get("/status", headers=headers).json()
    assert status["routes"] == {ROUTE: "closed", OTHER: "up"}
    assert status["breakers"][ROUTE]["breaker"] == "open"
    assert status["breakers"][OTHER]["breaker"] == "closed"
    metrics = gateway.http.get("/metrics").text
    for state, value in (("closed", 0), ("open", 1), ("half_open", 0)):
        assert f'kvairlock_breaker{{route="{ROUTE}",state="{state}"}} {value}.0' in metrics
    assert "secret-name" not in metrics + str(status)


@pytest.mark.parametrize(
    "reason", [Reason.CAPACITY, Reason.TIMEOUT, Reason.DRAINING, Reason.PEER_LOST]
)
def test_what_load_and_lost_nodes_cause_opens_nothing(gateway: Stack, reason: Reason) -> None:
    for _ in range(5):
        break_down(gateway, Refusal(reason, Stage.PREFILL_ADMISSION, "as it is made to"))
    assert told(gateway)["breaker"] == "closed"


@pytest.mark.parametrize("reason", [Reason.MALFORMED, Reason.FORGED, Reason.CONTEXT_LENGTH])
def test_a_node_that_blames_clients_for_nothing_is_distrusted_and_no_tenant_is_shut_out(
    gateway: Stack, reason: Reason
) -> None:
    faults = len(gateway.evidence("tenant_fault"))
    gateway.decode.script = ending(
        Refusal(reason, Stage.PREFILL_ADMISSION, "you did it", 2, 1, "n")
    )
    for _ in range(2):
        answer = ask(gateway)
        assert (answer.status_code, error(answer)["code"]) == (502, "prefill_rejected")
        assert f"it says `{reason}` at prefill_admission" in error(answer)["message"]
    opening = told(gateway)["opening"]
    assert (opening["condition"], opening["reason"]) == ("failures", "peer_rejected")
    assert len(gateway.evidence("tenant_fault")) == faults


def test_a_decode_node_that_breaks_the_protocol_has_its_routes_opened(gateway: Stack) -> None:
    async def speaks_of_no_choice(talk: Talk) -> None:
        await talk.chunk(b"x", choice=99)

    gateway.decode.script = speaks_of_no_choice
    for _ in range(2):
        answer = ask(gateway)
        assert (answer.status_code, error(answer)["code"]) == (503, "node_lost")
        until(lambda: told(gateway)["moment"] is not None)
    for route in (ROUTE, OTHER):
        opening = told(gateway, route)["opening"]
        assert (opening["condition"], opening["reason"]) == ("failures", "peer_rejected")


def test_an_end_counts_also_if_its_client_has_left(gateway: Stack) -> None:
    async def violated_after_the_client(talk: Talk) -> None:
        await talk.chunk(b"first")
        await talk.cancelled.wait()
        await talk.end(refusal=VIOLATION)

    gateway.decode.script = violated_after_the_client
    body = {"model": "recall", "prompt": "hello", "stream": True}
    headers = gateway.headers()
    with gateway.http.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
        assert answer.status_code == 200
    until(lambda: told(gateway)["breaker"] == "open")


def test_a_success_that_is_none_counts_against_the_route(gateway: Stack) -> None:
    async def says_done_and_is_not(talk: Talk) -> None:
        await talk.chunk(b"hel")
        await talk.end()

    gateway.decode.script = says_done_and_is_not
    for _ in range(2):
        assert error(ask(gateway))["code"] == "missing_evidence"
    assert told(gateway)["opening"]["reason"] == "missing_evidence"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_it_is_still_open_in_the_next_life_of_the_gateway(
    gateway: Stack, number: signal.Signals
) -> None:
    break_down(gateway)
    before = told(gateway)
    gateway.process.send_signal(number)
    gateway.process.wait(10)
    gateway.begin()
    after = told(gateway)
    assert (after["breaker"], after["opening"]) == ("open", before["opening"])
    assert ask(gateway, gateway.operator_key).status_code == 200
    assert taken(gateway) == "prefill-1"

    def opened_again() -> list[dict[str, object]]:
        life = gateway.ready["incarnation"]
        return [r for r in gateway.evidence("breaker_opened") if r["incarnation"] == life]

    until(lambda: bool(opened_again()))  # it first seals what the life before left
    (opened,) = opened_again()
    assert (opened["was"], opened["condition"]) == ("open", "violations")


# The way back


def test_three_records_close_it_and_nothing_else_does(gateway: Stack) -> None:
    break_down(gateway)
    before = shown(gateway)
    assert (before["breaker"], before["missing"]) == ("open", ALL)
    assert lacks(before) == {
        "corrected": [],
        "refuses": ["the boundary is not replayed yet"],
        "in_effect": [],
    }
    assert told(gateway)["breaker"] == "open", "to look is not to try"
    answer = operate(gateway, "recover").json()
    assert (answer["breaker"], answer["missing"]) == ("closed", [])
    assert [record["on_record"] for record in answer["records"]] == ["yes"] * 3
    assert told(gateway)["takes_requests"] == "yes"


def test_the_replay_asks_for_exactly_one_token_more_than_each_node_holds(gateway: Stack) -> None:
    break_down(gateway)
    taken(gateway)
    before = len(gateway.evidence("boundary_replayed"))
    operate(gateway, "recover")
    asked = []
    while not gateway.decode.heard.empty():
        asked.append(gateway.decode.heard.get())
    submits = [message for message in asked if isinstance(message, Submit)]
    sizes = {(len(s.tokens) // 4, s.max_tokens) for s in submits}
    assert sizes == {(1, DECODE_TOKENS), (PREFILL_TOKENS + 1, 1)}
    for name, partner, prompt, most in (
        ("decode-0", "prefill-0", 1, DECODE_TOKENS),
        ("prefill-0", "decode-0", PREFILL_TOKENS + 1, 1),
    ):
        node = gateway.nodes.nodes[name]
        rehearsed = [m for m in (*asked, *node.heard.queue) if isinstance(m, Rehearse)]
        assert (partner, prompt, most, 1) in {
            (m.partner, m.prompt_tokens, m.max_tokens, m.choices) for m in rehearsed
        }
    until(lambda: len(gateway.evidence("boundary_replayed")) - before >= 4)
    figures = {
        (r["limit_of"], r["way"]): (
            r["answer"],
            r["stage"],
            r["asked"],
            r["limit"],
            r["limit_name"],
        )
        for r in gateway.evidence("boundary_replayed")[before:]
    }
    by_decode = (
        "refused",
        "decode_admission",
        DECODE_TOKENS + 1,
        DECODE_TOKENS,
        "decode_pool_tokens",
    )
    by_prefill = (
        "refused",
        "prefill_admission",
        PREFILL_TOKENS + 1,
        PREFILL_TOKENS,
        "prefill_pool_tokens",
    )
    assert figures == {
        ("decode-0", "request"): by_decode,
        ("decode-0", "rehearsal"): by_decode,
        ("prefill-0", "request"): by_prefill,
        ("prefill-0", "rehearsal"): by_prefill,
    }


async def computes_first(talk: Talk) -> None:
    """Refuse as a node should, but only after something was computed."""
    await talk.end(computed=1, generated=0, refusal=judged(talk))


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (greet, "answered"),
        (computes_first, "otherwise, context_length at decode_admission"),
        (ending(Refusal(Reason.CAPACITY, Stage.DECODE_ADMISSION, "")), "otherwise, capacity"),
        (
            ending(
                Refusal(
                    Reason.CONTEXT_LENGTH,
                    Stage.DECODE_ADMISSION,
                    "",
                    DECODE_TOKENS + 1,
                    4 * DECODE_TOKENS,
                    "decode_pool_tokens",
                )
            ),
            f"{DECODE_TOKENS + 1} over {4 * DECODE_TOKENS} (decode_pool_tokens)",
        ),
    ],
    ids=["answered", "after computing", "for something else", "by other figures"],
)
def test_what_nodes_do_not_refuse_opens_it_again(gateway: Stack, script: Script, said: str) -> None:
    break_down(gateway)
    gateway.decode.script = script
    answer = operate(gateway, "recover").json()
    assert (answer["breaker"], answer["missing"]) == ("open", ALL)
    assert answer["opening"]["condition"] == "trial"
    assert any(said in lack for lack in lacks(answer)["refuses"])
    assert said in answer["opening"]["detail"]
    assert lacks(answer)["in_effect"] == ["the trial has ended, so nothing more is put on record"]


def test_without_a_node_there_is_nothing_to_show(gateway: Stack) -> None:
    break_down(gateway)
    gateway.nodes.stop("prefill-0")
    try:
        until(lambda: told(gateway)["moment"] is None)
        answer = operate(gateway, "recover")
        assert (answer.status_code, error(answer)["code"]) == (409, "breaker_refuses")
        assert error(answer)["message"] == "a node of the route does not report"
        assert told(gateway)["breaker"] == "open"
    finally:
        gateway.nodes.start("prefill-0", PREFILL_TOKENS)
        until(lambda: told(gateway)["moment"] is not None)


def test_a_node_that_is_another_one_ends_the_trial(gateway: Stack) -> None:
    break_down(gateway)
    assert operate(gateway, "try").json()["breaker"] == "half_open"
    gateway.nodes.stop("prefill-0")
    gateway.nodes.start("prefill-0", PREFILL_TOKENS)
    until(lambda: told(gateway)["breaker"] == "open")
    assert told(gateway)["opening"]["condition"] == "violations"


# Half-open


def test_half_open_takes_an_operator_who_names_it_and_nobody_else(gateway: Stack) -> None:
    break_down(gateway)
    refused = ask(gateway, gateway.operator_key, ROUTE)
    assert (refused.status_code, error(refused)["code"]) == (503, "route_closed")
    assert operate(gateway, "try").json()["breaker"] == "half_open"
    assert ask(gateway, gateway.operator_key, ROUTE).status_code == 200
    assert taken(gateway) == "prefill-0"
    for key, route in ((None, ROUTE), (None, None), (gateway.operator_key, None)):
        assert ask(gateway, key, route).status_code == 200
        assert taken(gateway) == "prefill-1"


def test_one_failing_drill_opens_it_again(gateway: Stack) -> None:
    break_down(gateway)
    operate(gateway, "try")
    gateway.decode.script = ending(FAILURE)
    assert ask(gateway, gateway.operator_key, ROUTE).status_code == 500
    assert told(gateway)["opening"]["condition"] == "trial"


def test_of_a_closed_route_the_header_means_nothing_outside_drill_mode(gateway: Stack) -> None:
    assert ask(gateway, gateway.operator_key, OTHER).status_code == 200
    assert taken(gateway) == "prefill-0"


# What operators may ask


@pytest.mark.parametrize("act", ["open", "try", "recover"])
def test_only_operators_operate(gateway: Stack, act: str) -> None:
    answer = gateway.http.post(f"/routes/{ROUTE}/{act}", json={}, headers=gateway.headers())
    assert (answer.status_code, error(answer)["code"]) == (403, "operator_only")
    assert gateway.http.post(f"/routes/{ROUTE}/{act}", json={}).status_code == 401
    for path in ("/routes", f"/routes/{ROUTE}"):
        assert gateway.http.get(path, headers=gateway.headers()).status_code == 403


def test_what_makes_no_sense_is_refused(gateway: Stack) -> None:
    unknown = operate(gateway, "recover", "prefill-9/decode-0")
    assert (unknown.status_code, error(unknown)["code"]) == (404, "route_not_found")
    for act in ("try", "recover"):
        closed = operate(gateway, act)
        assert (closed.status_code, error(closed)["code"]) == (409, "breaker_refuses")
        assert "there is nothing to recover" in error(closed)["message"]
    for reason in (None, "", " ", 7, "two\nlines", "x" * 201):
        refused = operate(gateway, "open", reason=reason)
        assert (refused.status_code, error(refused)["param"]) == (400, "reason")
    assert told(gateway)["breaker"] == "closed"


# With a record that cannot be had


def test_a_promise_that_the_contract_does_not_keep_is_not_corrected() -> None:
    """Longer requests would still be sent there, and one was: the path is entered."""
    settings = (
        SETTINGS
        + """
[commitment]
context_tokens = 4096

[drill]
enabled = true
guards_off = ["contract"]
"""
    )
    with stack(settings, start_three, TIMES) as drilled:
        drilled.decode.script = as_nodes_do
        operate(drilled, "open", reason="by hand")
        operate(drilled, "try")
        long = ask(drilled, drilled.operator_key, ROUTE, prompt="x" * 600)
        assert (long.status_code, error(long)["stage"]) == (400, "decode_admission")
        answer = operate(drilled, "recover").json()
        assert (answer["breaker"], answer["entered"]) == ("half_open", 1)
        assert answer["missing"] == ["corrected", "in_effect"]
        not_corrected = " ".join(lacks(answer)["corrected"])
        assert "4096" in not_corrected
        assert "the guard `contract` is disabled" in not_corrected
        assert "it was entered" in not_corrected
        assert lacks(answer)["refuses"] == []


def test_a_guard_that_does_not_enforce_is_not_in_effect() -> None:
    settings = SETTINGS + '[drill]\nenabled = true\nguards_off = ["strip"]\n'
    with stack(settings, start_three, TIMES) as drilled:
        drilled.decode.script = as_nodes_do
        operate(drilled, "open", reason="by hand")
        answer = operate(drilled, "recover").json()
        assert (answer["breaker"], answer["missing"]) == ("half_open", ["in_effect"])
        assert lacks(answer)["in_effect"] == [f"gateway: {ROUTE} strip disabled: drill"]


def test_a_node_that_does_not_say_what_enforces_is_not_in_effect() -> None:
    def start(nodes: FakeNodes) -> None:
        start_three(nodes)
        nodes.stop("prefill-0")
        nodes.start("prefill-0", PREFILL_TOKENS, speaks=(1,))

    with stack(SETTINGS, start, TIMES) as mixed:
        mixed.decode.script = as_nodes_do
        operate(mixed, "open", reason="by hand")
        answer = operate(mixed, "recover").json()
        assert (answer["breaker"], answer["missing"]) == ("half_open", ["refuses", "in_effect"])
        (unasked,) = lacks(answer)["refuses"]
        assert unasked.startswith("by rehearsal asked for 257 tokens")
        assert unasked.endswith("prefill-0: no_form")
        (said,) = lacks(answer)["in_effect"]
        assert said.startswith("prefill-0 does not say which of its guards enforce")


UNEQUAL = """
[gateway]
port = 0

[commitment]
context_tokens = 4096

[[prefill]]
name = "prefill-0"

[[decode]]
name = "decode-0"

[[decode]]
name = "decode-1"
"""
SHORT = "prefill-0/decode-1"


def test_a_promise_that_only_the_longest_route_is_named_for_stands_against_the_shorter() -> None:
    """Requests are routed by length: that none holds the promise is said of the longest route."""

    def start(nodes: FakeNodes) -> None:
        nodes.start("prefill-0", 4096)
        nodes.start("decode-0", 512, ["prefill-0"])
        nodes.start("decode-1", 256, ["prefill-0"])

    with stack(UNEQUAL, start, TIMES) as unequal:
        short = report("decode-1", Role.DECODE, 256)

        async def refuses(talk: Talk) -> None:
            asked = talk.submit
            demand = Demand(len(asked.tokens) // 4, asked.max_tokens, asked.choices)
            await talk.end(computed=0, generated=0, refusal=judge_decode(short, demand))

        unequal.nodes.nodes["decode-1"].script = refuses
        operate(unequal, "open", SHORT, reason="by hand")
        answer = operate(unequal, "recover", SHORT).json()
        assert (answer["breaker"], answer["missing"]) == ("half_open", ["corrected"])
        (said,) = lacks(answer)["corrected"]
        assert said.startswith("the context window promises 4096 tokens, prefill-0/decode-0 holds")


def takes_anything(node: FakeNode, asked: Rehearse) -> Refusal | None:
    """Answer as a node whose check is broken, whatever it states of its guards."""
    return None


def test_a_prefill_whose_check_is_broken_is_found_where_no_request_can_meet_it() -> None:
    """Decode holds less: whatever is asked, it refuses first, and prefill is only rehearsed."""

    def start(nodes: FakeNodes) -> None:
        start_three(nodes)
        nodes.stop("prefill-0")
        nodes.start("prefill-0", 4 * DECODE_TOKENS)

    with stack(SETTINGS, start, TIMES) as hidden:
        hidden.decode.script = as_nodes_do
        prefill = hidden.nodes.nodes["prefill-0"]
        operate(hidden, "open", reason="by hand")
        prefill.rehearses = takes_anything
        answer = operate(hidden, "recover").json()
        assert (answer["breaker"], answer["missing"]) == ("open", ALL)
        said, _ = lacks(answer)["refuses"]
        assert said == (
            "by rehearsal asked for 2049 tokens (prefill_pool_tokens is 2048), prefill-0: answered"
        )
        assert answer["opening"]["condition"] == "trial"
        prefill.rehearses = None
        answer = operate(hidden, "recover").json()
        assert lacks(answer)["refuses"][0].endswith("prefill-0: silent")
        prefill.rehearses = by_its_figures
        answer = operate(hidden, "recover").json()
        assert (answer["breaker"], answer["missing"]) == ("closed", [])
        facts = {r["record"]: r["facts"] for r in answer["records"]}["refuses"]
        assert [fact.split(" asked")[0] for fact in facts] == [
            "by request",
            "by rehearsal",
            "by rehearsal",
        ]


def test_an_answer_that_another_node_gives_is_none() -> None:
    """Who is asked answers for itself; a question's name opens nothing for anybody else."""
    rehearsals = Rehearsals()
    with rehearsals.asking(NodeName("prefill-0"), "r/1") as arrives:
        rehearsals.heard(NodeName("decode-0"), Rehearsed("r/1", None))
        rehearsals.heard(NodeName("prefill-0"), Rehearsed("r/2", None))
        assert len(arrives) == 0
        rehearsals.heard(NodeName("prefill-0"), Rehearsed("r/1", None))
        assert len(arrives) == 1
    rehearsals.heard(NodeName("prefill-0"), Rehearsed("r/1", None))


# What cannot be kept


def test_an_opening_that_is_not_written_down_says_so() -> None:
    with stack(SETTINGS, start_three, TIMES) as full:
        assert told(full)["kept"] == "yes"
        blocks = full.root / f".breakers.json.{full.process.pid}"
        blocks.mkdir()  # the file is written under this name first
        opened = operate(full, "open", reason="by hand").json()
        assert (opened["breaker"], opened["kept"]) == ("open", "no: Is a directory")
        assert told(full)["kept"] == "no: Is a directory"
        blocks.rmdir()
        until(lambda: told(full)["kept"] == "yes")


def test_a_second_gateway_over_the_same_state_does_not_start() -> None:
    with stack(SETTINGS, start_three, TIMES) as first:
        second = first._start()
        try:
            assert second.wait(20) == 2
        finally:
            second.kill()
            assert second.stdout is not None
            second.stdout.close()
        assert ask(first).status_code == 200
