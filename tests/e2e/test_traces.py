"""One request's spans from three processes are one tree, and hold figures only.

They are read at a real collector, from what the processes of a real stack have sent to it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvairlock.drills.stack import wait_for
from tests.otlp import Collector, Seen, collecting

from .served import OPERATOR, Served, error_of, question, serving, text_of

SETTINGS = """
[commitment]
context_tokens = 1024

[[prefill]]
name = "prefill-0"
pages = 128
chunk_tokens = 64
prefix_share = 0

[[decode]]
name = "decode-0"
pages = 256

[limits]
beat_ms = 50

[drill]
enabled = true
"""
TENANTS = ("acme-planted-name", "bravo-planted-name")
ACME, BRAVO = TENANTS
CLIENT_TRACE, CLIENT_SPAN = "c1" * 16, "d2" * 8
PARENTS = {
    "request": "",
    "admit": "request",
    "attempt": "request",
    "decode": "attempt",
    "decode.queue": "decode",
    "decode.receipt": "decode",
    "decode.window": "decode",
    "prefill": "decode.receipt",
    "prefill.queue": "prefill",
    "prefill.compute": "prefill",
    "prefill.chunk": "prefill.compute",
    "prefill.seal": "prefill",
    "prefill.write": "prefill",
    "prefill.ruling": "prefill",
    "prefill.drain": "prefill",
    "decode.land": "decode",
    "decode.verdict": "decode",
    "decode.read": "decode",
    "decode.drain": "decode",
}
"""Every span of a request that is answered, in the order in which they begin."""

DROPPED = "kvairlock_trace_spans_dropped_total"
IN_TURN = [name for name in PARENTS if name not in {"prefill.drain", "decode.window"}]
"""Those whose order does not depend on how fast two processes are."""


def tracing(url: str, **more: float) -> str:
    lines = [
        f'endpoint = "{url}"',
        'client = "parent"',
        *(f"{name} = {value}" for name, value in more.items()),
    ]
    return "\n".join((SETTINGS, "[tracing]", *lines, ""))


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Served]:
    scopes = dict.fromkeys(TENANTS, "none")
    folder = tmp_path_factory.mktemp("traced")
    with serving(folder, tracing(collector.url), scopes, operators=True) as running:
        yield running


def whole(collector: Collector, trace: str, *names: str) -> dict[str, Seen]:
    """Wait until a trace has all these spans; return them by name, the first of each."""
    wanted = set(names)
    collector.wait(
        f"{trace} to have {names}",
        lambda spans: wanted <= {s.name for s in spans if s.trace == trace},
    )
    found = sorted((s for s in collector.spans if s.trace == trace), key=lambda s: -s.start_ns)
    return {span.name: span for span in found}


def header(trace: str, flags: str = "01") -> dict[str, str]:
    return {"traceparent": f"00-{trace}-{CLIENT_SPAN}-{flags}"}


def ask(stack: Served, tenant: str, trace: str, characters: int = 300, **more: object) -> int:
    """Ask under a trace of the client's own; return the status."""
    prompt = stack.canaries.prompt(tenant, characters)
    body = {"model": "recall", "prompt": prompt.text, "max_tokens": 5, **more}
    headers = {**stack.auth(tenant), **header(trace)}
    return stack.http.post("/v1/completions", headers=headers, json=body).status_code


def test_the_spans_of_three_processes_are_one_tree(stack: Served, collector: Collector) -> None:
    assert ask(stack, ACME, CLIENT_TRACE) == 200
    spans = whole(collector, CLIENT_TRACE, *PARENTS)
    assert set(spans) == set(PARENTS)
    names = {span.id: span.name for span in collector.spans} | {CLIENT_SPAN: ""}
    assert {name: names[span.parent] for name, span in spans.items()} == PARENTS
    in_turn = [spans[name].start_ns for name in IN_TURN]
    assert in_turn == sorted(in_turn)
    assert all(span.end_ns > span.start_ns for span in spans.values())
    assert not any(span.is_error for span in spans.values())
    services = {span.resource["service.name"] for span in spans.values()}
    assert services == {"kvairlock-gateway", "kvairlock-decode", "kvairlock-prefill"}


def test_a_tree_has_the_figures_of_its_request(stack: Served, collector: Collector) -> None:
    trace = "c2" * 16
    assert ask(stack, ACME, trace) == 200
    spans = whole(collector, trace, *PARENTS)
    request = spans["request"].attributes
    assert request["http.route"] == "/v1/completions"
    assert request["http.response.status_code"] == 200
    assert request["gen_ai.operation.name"] == "text_completion"
    assert request["gen_ai.usage.input_tokens"] == 300
    assert request["gen_ai.usage.output_tokens"] == 5
    assert request["kvairlock.end"] == "completed"
    chunks = collector.named("prefill.chunk", trace)
    assert [c.attributes["kvairlock.computed_tokens"] for c in chunks] == [64, 128, 192, 256, 300]
    assert spans["decode.verdict"].attributes["kvairlock.verdict"] == "admitted"
    assert spans["decode.window"].attributes["kvairlock.fence"] == "acknowledged"
    written = spans["prefill.write"].attributes["kvairlock.bytes_written"]
    assert written == spans["decode.window"].attributes["kvairlock.bytes_written"] > 0


def test_a_refused_request_has_its_reason_and_figures(stack: Served, collector: Collector) -> None:
    trace = "c3" * 16
    assert ask(stack, ACME, trace, max_tokens=1_000) == 400
    spans = whole(collector, trace, "request")
    assert set(spans) == {"request", "admit"}
    request = spans["request"]
    assert request.is_error
    assert request.attributes["error.type"] == "context_length"
    assert request.attributes["kvairlock.refusal.asked"] == 1_300
    assert request.attributes["kvairlock.refusal.limit"] == 1_024
    assert request.attributes["http.response.status_code"] == 400


def test_what_was_never_a_request_has_the_code_of_its_error(
    stack: Served, collector: Collector
) -> None:
    trace = "c4" * 16
    headers = {"authorization": "Bearer kva-nobody", **header(trace)}
    answer = stack.http.post("/v1/completions", headers=headers, json={})
    assert answer.status_code == 401
    request = whole(collector, trace, "request", "admit")["request"]
    assert request.is_error
    assert request.attributes["error.type"] == error_of(answer)["code"]
    assert request.attributes["kvairlock.end"] == "rejected"


def test_the_window_and_the_drain_of_a_client_that_left_end_after_its_request(
    stack: Served, collector: Collector
) -> None:
    stack.client.point("prefill-0", "arm", "write.piece", after=3)
    before = {span.trace for span in collector.named("request")}
    call = stack.start(stack.canaries.prompt(BRAVO, 300))
    stack.client.held("prefill-0", "write.piece")
    call.leave()

    def left() -> list[Seen]:
        spans = collector.named("request")
        return [s for s in spans if s.trace not in before]

    collector.wait("the request to be over", lambda spans: bool(left()))
    (request,) = left()
    assert request.attributes["error.type"] == "cancelled"
    spans = whole(collector, request.trace, "attempt", "decode")
    assert not {"decode.window", "prefill.write", "prefill.drain"} & set(spans)
    stack.client.point("prefill-0", "release", "write.piece")
    spans = whole(collector, request.trace, "decode.window", "prefill.write", "prefill.drain")
    ended_ns = max(spans[name].end_ns for name in ("request", "decode", "prefill"))
    for name in ("decode.window", "prefill.write", "prefill.drain"):
        assert spans[name].end_ns > ended_ns, name
    assert spans["prefill.drain"].attributes["kvairlock.drain.cause"] == "cancelled"
    assert spans["prefill.drain"].attributes["kvairlock.fence"] == "local"
    assert spans["decode"].attributes["kvairlock.end"] == "cancelled"
    stack.baseline()


def test_no_tenant_prompt_or_request_id_is_in_what_was_sent(
    stack: Served, collector: Collector
) -> None:
    trace, prompt = "c5" * 16, stack.canaries.prompt(ACME, 300)
    body = {**question(prompt), "user": "planted-user"}
    headers = {**stack.auth(ACME), **header(trace)}
    answer = stack.http.post("/v1/completions", headers=headers, json=body)
    assert text_of(answer) == prompt.canary
    whole(collector, trace, *PARENTS)
    planted = [*TENANTS, OPERATOR, prompt.canary, prompt.text[:20], "planted-user"]
    planted += [answer.json()["id"], *stack.keys.of.values()]
    planted += [stack.records.tenant(tenant) for tenant in TENANTS]
    assert b"http.route" in collector.raw
    assert [word for word in planted if word.encode() in collector.raw] == []


def test_a_share_of_nothing_sends_nothing_whatever_clients_say(tmp_path: Path) -> None:
    with collecting() as collector:
        settings = tracing(collector.url, sampled_share=0)
        with serving(tmp_path, settings, {ACME: "none"}, operators=True) as stack:
            assert ask(stack, ACME, CLIENT_TRACE) == 200
            stack.baseline()
            assert stack.stop() == 0
        assert collector.raw == b""


def test_a_collector_that_is_down_costs_no_answer_and_no_clean_end(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can answer there
        settings = tracing(f"http://127.0.0.1:{taken.getsockname()[1]}/v1/traces", queue_max=3)
        with serving(tmp_path, settings, {ACME: "none"}, operators=True) as stack:
            for _ in range(3):
                stack.serves(ACME)
            wait_for("spans to be dropped", lambda: dropped(stack) > 0 or None)
            stack.baseline()
            assert stack.stop() == 0


def dropped(stack: Served) -> float:
    """How many spans the gateway says that it has dropped."""
    text = stack.http.get("/metrics").text
    shown = [line for line in text.splitlines() if line.startswith(DROPPED)]
    (line,) = [line for line in shown if 'node="gateway"' in line]
    return float(line.split()[-1])
