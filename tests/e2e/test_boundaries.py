"""Each limit at one below, exactly, one over and twice: what was computed, not only what was said.

One topology, in which each limit is the smallest of one route, on two stacks: behind a gateway that
refuses nothing, so that the nodes themselves judge, and behind one that does its part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from _pytest.mark.structures import ParameterSet

from kvairlock.drills.canaries import Marked
from kvairlock.drills.records import Entry

from .served import CANARY_TOKENS, Served, error_of, serving, text_of

PAGE_TOKENS = 16
POOL_TOKENS = 256
MODEL_TOKENS = 8192
WINDOW_TOKENS = 640
SHORT = 200

TOPOLOGY = """
[gateway]

[commitment]
context_tokens = {context_tokens}

[[prefill]]
name = "prefill-small"
pages = 16
prefix_share = 0

[[prefill]]
name = "prefill-large"
pages = 600
prefix_share = 0

[[decode]]
name = "decode-small"
pages = 16
tenant_share = 1.0

[[decode]]
name = "decode-share"
pages = 80
landing_pages = 32
tenant_share = 0.5

[[decode]]
name = "decode-large"
pages = 1100
tenant_share = 1.0

[limits]
beat_ms = 50

[drill]
enabled = true
guards_off = [{guards_off}]
"""


@dataclass(frozen=True)
class Limit:
    """One limit and the route on which it is the smallest.

    Args:
        name: What refusals call it.
        prefill: Prefill node of the route.
        decode: Decode node of the route.
        tokens: The limit.
        grows: `prompt`, `context` (a longer prompt) or `output` (more max_tokens).
        stage: Where it is judged.
    """

    name: str
    prefill: str
    decode: str
    tokens: int
    grows: str
    stage: str

    @property
    def route(self) -> str:
        return f"{self.prefill}/{self.decode}"

    def sizes(self, asked: int) -> tuple[int, int]:
        """Prompt and max_tokens that ask for this much."""
        match self.grows:
            case "prompt":
                return asked, CANARY_TOKENS
            case "context":
                return asked - CANARY_TOKENS, CANARY_TOKENS
            case _:
                return SHORT, asked - SHORT


AT_PREFILL, AT_DECODE, AT_GATEWAY = "prefill_admission", "decode_admission", "gateway"
ON_PREFILL = ("prefill-small", "decode-large", POOL_TOKENS, "prompt")
ON_DECODE = ("prefill-large", "decode-small", POOL_TOKENS, "context")
ON_OUTPUT = ("prefill-large", "decode-small", POOL_TOKENS, "output")
ON_LANDING = ("prefill-large", "decode-share", POOL_TOKENS, "prompt")
ON_MODEL = ("prefill-large", "decode-large", MODEL_TOKENS, "output")
ON_WINDOW = ("prefill-large", "decode-large", WINDOW_TOKENS, "context")

BY_NODES = [
    Limit("prefill_pool_tokens", *ON_PREFILL, AT_PREFILL),
    Limit("decode_pool_tokens", *ON_DECODE, AT_DECODE),
    Limit("decode_pool_tokens", *ON_OUTPUT, AT_DECODE),
    Limit("landing_tokens", *ON_LANDING, AT_DECODE),
    Limit("model_context_tokens", *ON_MODEL, AT_DECODE),
]
BY_GATEWAY = [
    Limit("route_prefill_tokens", *ON_PREFILL, AT_GATEWAY),
    Limit("route_decode_tokens", *ON_DECODE, AT_GATEWAY),
    Limit("route_decode_tokens", *ON_OUTPUT, AT_GATEWAY),
    Limit("route_landing_tokens", *ON_LANDING, AT_GATEWAY),
    Limit("context_window", *ON_WINDOW, AT_GATEWAY),
    Limit("context_window", *ON_WINDOW[:3], "output", AT_GATEWAY),
]


@pytest.fixture(scope="module")
def nodes_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The gateway advertises anything and refuses nothing."""
    settings = TOPOLOGY.format(context_tokens=100_000, guards_off='"contract"')
    with serving(tmp_path_factory.mktemp("n"), settings, {"acme": "none"}, operators=True) as stack:
        yield stack


@pytest.fixture(scope="module")
def with_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The gateway promises no more than is configured and than its nodes hold."""
    settings = TOPOLOGY.format(context_tokens=WINDOW_TOKENS, guards_off="")
    with serving(tmp_path_factory.mktemp("g"), settings, {"acme": "none"}, operators=True) as stack:
        yield stack


def ask(stack: Served, limit: Limit, asked: int) -> tuple[Marked, httpx.Response, str]:
    """Ask for this much of what a limit counts; return the request's pseudonym too."""
    characters, max_tokens = limit.sizes(asked)
    prompt = stack.canaries.prompt("acme", characters)
    response = stack.post(prompt, limit.route, max_tokens=max_tokens)
    return prompt, response, stack.records.request(response.headers["x-request-id"])


def within(limits: list[Limit]) -> list[ParameterSet]:
    return [
        pytest.param(limit, asked, id=f"{limit.name}-{limit.grows}-{name}")
        for limit in limits
        for name, asked in (("below", limit.tokens - 1), ("at", limit.tokens))
    ]


def beyond(limits: list[Limit]) -> list[ParameterSet]:
    return [
        pytest.param(limit, asked, id=f"{limit.name}-{limit.grows}-{name}")
        for limit in limits
        for name, asked in (("one-over", limit.tokens + 1), ("twice", 2 * limit.tokens))
    ]


def assert_served(stack: Served, limit: Limit, asked: int) -> None:
    prompt, response, request = ask(stack, limit, asked)
    assert response.status_code == 200, response.text
    assert text_of(response) == prompt.canary
    tokens, pages = len(prompt.text), -(-len(prompt.text) // PAGE_TOKENS)
    assert response.json()["usage"] == {
        "prompt_tokens": tokens,
        "completion_tokens": CANARY_TOKENS,
        "total_tokens": tokens + CANARY_TOKENS,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    computed = stack.one("range_computed", request=request)
    assert (computed["node"], computed["start"], computed["stop"]) == (limit.prefill, 0, tokens)
    written = stack.one("write_ended", request=request)
    assert (written["node"], written["status"]) == (limit.prefill, "done")
    assert len(written["pages"]) == pages
    verdict = stack.one("verdict", request=request)
    told = (verdict["node"], verdict["outcome"], verdict["start"], verdict["stop"])
    assert told == (limit.decode, "admitted", 0, tokens)
    assert (verdict["expected_tokens"], len(verdict["pages"])) == (tokens, pages)
    assert_witnessed(stack, limit, request, written, pages)
    stack.baseline()


def assert_witnessed(stack: Served, limit: Limit, request: str, written: Entry, pages: int) -> None:
    """Assert what somebody else than the node under test has to say about the bytes.

    Decode counts what the writer stored into its window, and digests every page of it itself;
    prefill has in its own books what it stored for a decode node.
    """
    fenced = stack.one("window_fenced", request=request)
    assert (fenced["node"], fenced["bytes_written"]) == (limit.decode, written["bytes_written"])
    assert written["bytes_written"] == pages * page_bytes(stack, limit.decode)
    assert "integrity" in stack.one("verdict", request=request)["checks"]


def page_bytes(stack: Served, node: str) -> int:
    """Bytes of a page, as a node says what its pool was given."""
    report = stack.status_of(node)["report"]
    bytes_each: int = report["basis"]["memory_bytes"] // report["pages"]
    return bytes_each


def assert_refused(stack: Served, limit: Limit, asked: int) -> str:
    """Assert the refusal as the client and the evidence have it; return the request."""
    _, response, request = ask(stack, limit, asked)
    assert response.status_code == 400, response.text
    error = error_of(response)
    assert error["code"] == "context_length_exceeded"
    told = {name: error[name] for name in ("asked", "limit", "limit_name", "stage", "reason")}
    assert told == {
        "asked": asked,
        "limit": limit.tokens,
        "limit_name": limit.name,
        "stage": limit.stage,
        "reason": "context_length",
    }
    assert str(asked) in error["message"]
    assert str(limit.tokens) in error["message"]
    stack.baseline()
    records = stack.records
    records.last("request_refused", request=request, stage=limit.stage)
    assert_nothing_was_done(stack, request)
    refused = records.all("request_refused", request=request, stage=limit.stage)
    figures = [(r["reason"], r["asked"], r["limit"], r["limit_name"]) for r in refused]
    assert set(figures) == {("context_length", asked, limit.tokens, limit.name)}
    return request


def assert_nothing_was_done(stack: Served, request: str) -> None:
    """Assert that no node has computed, written or read anything, by the books of each."""
    for event in ("range_computed", "write_ended", "read_started"):
        assert stack.records.all(event, request=request) == []
    for fenced in stack.records.all("window_fenced", request=request):
        assert fenced["bytes_written"] == 0


def roles(entries: list[Entry]) -> set[str]:
    return {entry["role"] for entry in entries}


@pytest.mark.parametrize(("limit", "asked"), within(BY_NODES))
def test_the_nodes_serve_up_to_the_limit(nodes_alone: Served, limit: Limit, asked: int) -> None:
    assert_served(nodes_alone, limit, asked)


@pytest.mark.parametrize(("limit", "asked"), beyond(BY_NODES))
def test_the_nodes_refuse_what_is_over(nodes_alone: Served, limit: Limit, asked: int) -> None:
    request = assert_refused(nodes_alone, limit, asked)
    records = nodes_alone.records
    refused = records.all("request_refused", request=request)
    granted = records.all("window_granted", request=request)
    if limit.stage == AT_DECODE:
        assert roles(refused) == {"decode"}
        assert granted == []
        # Who witnesses it is prefill, which never heard of it.
        assert records.all("request_admitted", request=request, role="prefill") == []
        return
    # The receiver's own record, not the sender's word for it.
    assert roles(refused) == {"prefill", "decode"}
    (verdict,) = records.all("verdict", request=request)
    stated = (verdict["node"], verdict["outcome"], verdict["start"], verdict["stop"])
    assert stated == (limit.decode, "context_length", 0, 0)
    (fenced,) = records.all("window_fenced", request=request)
    assert (fenced["fence"], fenced["bytes_written"]) == ("acknowledged", 0)
    (ended,) = records.all("request_ended", request=request, role="decode")
    assert (ended["end"], ended["generated_tokens"]) == ("rejected", 0)


HUNDRED = 100
MET_BY_NODES = [
    (BY_NODES[0], "decode_pool_tokens", 1100 * PAGE_TOKENS),
    (BY_NODES[1], "decode_pool_tokens", POOL_TOKENS),
    (BY_NODES[2], "decode_pool_tokens", POOL_TOKENS),
    (BY_NODES[3], "decode_pool_tokens", 80 * PAGE_TOKENS),
    (BY_NODES[4], "decode_pool_tokens", 1100 * PAGE_TOKENS),
]
"""The first limit that a hundredfold of each meets: decode judges before prefill hears of it."""

MET_BY_GATEWAY = [
    (BY_GATEWAY[0], "route_prefill_tokens", POOL_TOKENS),
    (BY_GATEWAY[1], "route_decode_tokens", POOL_TOKENS),
    (BY_GATEWAY[2], "route_decode_tokens", POOL_TOKENS),
    (BY_GATEWAY[3], "context_window", WINDOW_TOKENS),
    (BY_GATEWAY[4], "context_window", WINDOW_TOKENS),
    (BY_GATEWAY[5], "context_window", WINDOW_TOKENS),
]
"""The smallest limit of the route and of the promise: who keeps to it is refused for no other."""


def hundredfold(stack: Served, limit: Limit, name: str, tokens: int) -> str:
    """Ask for a hundredfold, assert which limit refused it and how far it came."""
    _, response, request = ask(stack, limit, HUNDRED * limit.tokens)
    error = error_of(response)
    assert (response.status_code, error["limit_name"], error["limit"]) == (400, name, tokens)
    assert error["asked"] >= HUNDRED * limit.tokens
    stack.baseline()
    assert_nothing_was_done(stack, request)
    return request


@pytest.mark.parametrize(("limit", "name", "tokens"), MET_BY_NODES)
def test_the_nodes_refuse_a_hundredfold_by_the_first_limit_that_it_meets(
    nodes_alone: Served, limit: Limit, name: str, tokens: int
) -> None:
    request = hundredfold(nodes_alone, limit, name, tokens)
    assert roles(nodes_alone.records.all("request_refused", request=request)) == {"decode"}


@pytest.mark.parametrize(("limit", "name", "tokens"), MET_BY_GATEWAY)
def test_the_gateway_refuses_a_hundredfold_by_the_smallest_limit(
    with_gateway: Served, limit: Limit, name: str, tokens: int
) -> None:
    request = hundredfold(with_gateway, limit, name, tokens)
    assert roles(with_gateway.records.all("request_refused", request=request)) == {"gateway"}


@pytest.mark.parametrize(("limit", "asked"), within(BY_GATEWAY))
def test_the_gateway_lets_through_up_to_the_limit(
    with_gateway: Served, limit: Limit, asked: int
) -> None:
    assert_served(with_gateway, limit, asked)


@pytest.mark.parametrize(("limit", "asked"), beyond(BY_GATEWAY))
def test_the_gateway_refuses_before_a_node_hears_of_it(
    with_gateway: Served, limit: Limit, asked: int
) -> None:
    request = assert_refused(with_gateway, limit, asked)
    records = with_gateway.records
    assert roles(records.all("request_refused", request=request)) == {"gateway"}
    assert records.all("request_admitted", request=request) == []


def test_the_gateway_advertises_what_is_configured_and_held(with_gateway: Served) -> None:
    assert with_gateway.client.context_tokens() == WINDOW_TOKENS
    assert with_gateway.client.status()["promise_tokens"] == WINDOW_TOKENS


def test_requests_are_routed_by_length(with_gateway: Served) -> None:
    prompt = with_gateway.canaries.prompt("acme", 600)
    response = with_gateway.post(prompt)
    assert (response.status_code, text_of(response)) == (200, prompt.canary)
    request = with_gateway.records.request(response.headers["x-request-id"])
    computed = with_gateway.one("range_computed", request=request)
    assert computed["node"] == "prefill-large"
    assert with_gateway.one("read_started", request=request)["node"] == "decode-large"


def ask_for_choices(stack: Served, choices: int) -> tuple[Marked, httpx.Response]:
    """The first takes 8 of the decode node's 16 pages, each further one 2 of its own."""
    prompt = stack.canaries.prompt("acme", 104)
    return prompt, stack.post(prompt, "prefill-small/decode-small", n=choices)


def test_as_many_choices_as_the_pool_holds_are_served(with_gateway: Served) -> None:
    prompt, response = ask_for_choices(with_gateway, 5)
    assert response.status_code == 200
    texts = [choice["text"] for choice in response.json()["choices"]]
    assert texts == [prompt.canary] * 5
    with_gateway.baseline()


def test_one_choice_more_is_refused_by_the_pages_that_it_needs(with_gateway: Served) -> None:
    _, response = ask_for_choices(with_gateway, 6)
    error = error_of(response)
    assert (response.status_code, error["limit_name"]) == (400, "route_decode_tokens")
    assert (error["asked"], error["limit"]) == (18 * PAGE_TOKENS, POOL_TOKENS)
    with_gateway.baseline()
