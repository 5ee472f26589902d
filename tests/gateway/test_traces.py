"""The gateway's own spans: each attempt has one, and its nodes are told which."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.messages import Submit
from kvairlock.gateway.endpoints import ENDPOINTS
from kvairlock.gateway.tracing import OPERATIONS
from tests.otlp import Collector, Seen, collecting

from .fake_nodes import DECODE_TOKENS, PREFILL_TOKENS, FakeNodes, Talk, greet
from .stacks import Stack, stack

TWO = """
[gateway]
port = 0

[[prefill]]
name = "prefill-0"

[[decode]]
name = "decode-0"

[[decode]]
name = "decode-1"

[tracing]
endpoint = "{url}"
"""
FULL = Refusal(Reason.CAPACITY, Stage.DECODE_ADMISSION, "no pages", 9, 4, "decode_pool_pages")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


def start_three(nodes: FakeNodes) -> None:
    nodes.start("prefill-0", PREFILL_TOKENS)
    nodes.start("decode-0", DECODE_TOKENS, ["prefill-0"])
    nodes.start("decode-1", DECODE_TOKENS, ["prefill-0"])


async def full(talk: Talk) -> None:
    await talk.end(refusal=FULL)


def told(running: Stack, node: str) -> list[str]:
    """The traces that a node was told of with requests, without their flags."""
    heard = list(running.nodes.nodes[node].heard.queue)
    return [m.trace[:-3] for m in heard if isinstance(m, Submit)]


def context_of(span: Seen) -> str:
    return f"00-{span.trace}-{span.id}"


def test_every_endpoint_has_a_name_among_the_conventions() -> None:
    assert set(OPERATIONS) == {endpoint.path for endpoint in ENDPOINTS}


def test_a_second_attempt_is_a_span_beside_the_first(collector: Collector) -> None:
    with stack(TWO.format(url=collector.url), start_three) as running:
        running.nodes.nodes["decode-0"].script = full
        running.nodes.nodes["decode-1"].script = greet
        assert running.complete().status_code == 200
        collector.wait_named("request")
        request = collector.one("request")
        first, second = sorted(collector.named("attempt"), key=lambda span: span.start_ns)
        assert [told(running, "decode-0"), told(running, "decode-1")] == [
            [context_of(first)],
            [context_of(second)],
        ]
    assert (first.parent, second.parent) == (request.id, request.id)
    assert first.end_ns <= second.start_ns
    assert first.is_error
    assert first.attributes == {
        "kvairlock.attempt": 1,
        "kvairlock.route": "prefill-0/decode-0",
        "error.type": "capacity",
        "kvairlock.refusal.stage": "decode_admission",
        "kvairlock.refusal.asked": 9,
        "kvairlock.refusal.limit": 4,
        "kvairlock.refusal.limit_name": "decode_pool_pages",
    }
    assert not second.is_error
    assert not request.is_error
    assert second.attributes == {
        "kvairlock.attempt": 2,
        "kvairlock.route": "prefill-0/decode-1",
    }


def test_a_stream_ends_its_spans_with_its_last_byte(collector: Collector) -> None:
    with stack(TWO.format(url=collector.url), start_three) as running:
        for node in ("decode-0", "decode-1"):
            running.nodes.nodes[node].script = greet
        assert running.chat(stream=True).status_code == 200
        collector.wait_named("request")
        request = collector.one("request").attributes
    assert request["gen_ai.operation.name"] == "chat"
    assert request["gen_ai.request.stream"] is True
    assert request["kvairlock.end"] == "completed"


def test_a_request_that_is_not_traced_tells_its_nodes_nothing(collector: Collector) -> None:
    settings = TWO.format(url=collector.url) + "sampled_share = 0\n"
    with stack(settings, start_three) as running:
        for node in ("decode-0", "decode-1"):
            running.nodes.nodes[node].script = greet
        assert running.complete().status_code == 200
        assert told(running, "decode-0") + told(running, "decode-1") == [""]
    assert collector.raw == b""
