"""A prefill node that is lost in mid-transfer: decode computes the prompt, as far as it may."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from kvairlock.drills.canaries import Marked
from kvairlock.drills.stack import wait_for

from .served import CANARY_TOKENS, Json, Served, error_of, serving, text_of

PROMPT_TOKENS = 400
TIGHT_TOKENS_PER_MIN = 500
"""Enough for one prompt a minute, not for two."""

SETTINGS = f"""
[[prefill]]
name = "prefill-0"
pages = 128
prefix_share = 0

[[decode]]
name = "copying"
pages = 128
landing = "copy"
tenant_share = 1.0
recompute_tokens_per_min = 100000

[[decode]]
name = "sealing"
pages = 128
landing = "seal"
tenant_share = 1.0
recompute_tokens_per_min = 100000

[[decode]]
name = "directly"
pages = 128
landing = "direct"
tenant_share = 1.0
recompute_tokens_per_min = 100000

[[decode]]
name = "tight"
pages = 128
tenant_share = 1.0
recompute_tokens_per_min = {TIGHT_TOKENS_PER_MIN}

[breaker]
failures = 1000  # what is lost on purpose is to close no route

[limits]
beat_ms = 100
lost_ms = 600

[drill]
enabled = true
"""
PIECES = 5
DECODES = pytest.mark.parametrize("decode", ["copying", "sealing", "directly"])


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One prefill node, and decode nodes of every landing that may recompute."""
    folder = tmp_path_factory.mktemp("recompute")
    with serving(folder, SETTINGS, {"acme": "none", "bravo": "none"}, operators=True) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_stays_held(stack: Served) -> Iterator[None]:
    yield
    stack.release_all()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    """Clients that wait for their answers."""
    with ThreadPoolExecutor(2) as pool:
        yield pool


Asked = tuple[Marked, Future[httpx.Response]]


def hold_mid_transfer(stack: Served, threads: ThreadPoolExecutor, decode: str) -> tuple[Asked, str]:
    """Ask for a prompt whose transfer halts after some pieces; return its pseudonym too."""
    stack.client.point("prefill-0", "arm", "write.piece", after=PIECES)
    asked = ask(stack, threads, "acme", decode)
    window = stack.client.held("prefill-0", "write.piece").split(" ")[0]
    request: str = stack.one("window_granted", window=window)["request"]
    return asked, request


def ask(stack: Served, threads: ThreadPoolExecutor, tenant: str, decode: str) -> Asked:
    prompt = stack.canaries.prompt(tenant, PROMPT_TOKENS)
    return prompt, threads.submit(stack.post, prompt, f"prefill-0/{decode}")


def assert_answered(asked: Asked) -> None:
    """Its own canary, and usage by what was computed."""
    prompt, answer = asked
    response = answer.result()
    assert response.status_code == 200, response.text
    assert text_of(response) == prompt.canary
    assert response.json()["usage"] == {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": CANARY_TOKENS,
        "total_tokens": PROMPT_TOKENS + CANARY_TOKENS,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def assert_recomputed(stack: Served, request: str, decode: str) -> None:
    """The evidence tells why, how much, by whom, and that nothing of prefill's was admitted."""
    noted = stack.one("request_recomputed", request=request, node=decode)
    assert (noted["reason"], noted["tokens"]) == ("peer_lost", PROMPT_TOKENS)
    computed = stack.one("range_computed", request=request, node=decode)
    assert (computed["start"], computed["stop"]) == (0, PROMPT_TOKENS)
    assert stack.records.all("verdict", request=request) == []
    first, second = stack.records.all("pages_allocated", request=request, node=decode)
    assert computed["pages"] == second["pages"][: len(computed["pages"])]
    assert first["lease"] != second["lease"]
    ended = stack.one("request_ended", request=request, node=decode)
    assert (ended["end"], ended["reason"]) == ("completed", "")
    assert (ended["computed_tokens"], ended["generated_tokens"]) == (PROMPT_TOKENS, CANARY_TOKENS)


def kill_prefill(stack: Served) -> Json:
    """Kill the prefill node; return what the stack said of itself before."""
    before = stack.facts
    stack.kill("prefill-0")
    return before


def reborn(stack: Served, before: Json) -> None:
    """Wait until prefill has another life and all routes lead to it."""

    def look() -> bool | None:
        facts, status = stack.facts, stack.client.status()
        life = facts["incarnations"]["prefill-0"]
        if life == before["incarnations"]["prefill-0"]:
            return None
        stated = status["nodes"]["prefill-0"]["status"]
        up = set(status["routes"].values()) == {"up"}
        return True if up and stated["report"]["incarnation"] == life else None

    wait_for("prefill to be started again", look)


@DECODES
def test_a_killed_prefill_costs_no_answer(
    stack: Served, threads: ThreadPoolExecutor, decode: str
) -> None:
    asked, request = hold_mid_transfer(stack, threads, decode)
    before = kill_prefill(stack)
    assert_answered(asked)
    assert_recomputed(stack, request, decode)
    fenced = stack.one("window_fenced", request=request, node=decode)
    assert (fenced["fence"], fenced["bytes_written"]) == ("process_gone", 0)
    reborn(stack, before)
    stack.baseline()
    stack.serves("bravo", f"prefill-0/{decode}")
    stack.baseline()


@DECODES
def test_a_stopped_prefill_costs_no_answer(
    stack: Served, threads: ThreadPoolExecutor, decode: str
) -> None:
    """It is silent; its window stays in use until it speaks again, and what it says is late."""
    asked, request = hold_mid_transfer(stack, threads, decode)
    pid = stack.pid("prefill-0")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert_answered(asked)
        assert_recomputed(stack, request, decode)
        assert stack.records.all("window_fenced", request=request) == []
        figures = wait_for("only the window to wait", lambda: _only_a_window(stack, decode))
        assert figures["counters"]["recomputed"] >= 1
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for("all routes to be up", lambda: _all_up(stack))
    stack.client.point("prefill-0", "release", "write.piece")
    fenced = stack.one("window_fenced", request=request, node=decode)
    assert fenced["fence"] == "acknowledged"
    assert fenced["bytes_written"] > 0
    stack.baseline()
    assert stack.pid("prefill-0") == pid
    assert_recomputed(stack, request, decode)
    stack.serves("bravo", f"prefill-0/{decode}")
    stack.baseline()


def _only_a_window(stack: Served, decode: str) -> Json | None:
    figures = stack.status_of(decode)
    idle = (figures["windows"], figures["windows_draining"]) == (1, 1)
    return figures if idle and not figures["requests"] else None


def _all_up(stack: Served) -> bool | None:
    return True if set(stack.client.status()["routes"].values()) == {"up"} else None


def test_what_the_budget_does_not_reach_for_is_503(
    stack: Served, threads: ThreadPoolExecutor
) -> None:
    """Two wait for the node that is killed, and the budget is for one of them."""
    first, request = hold_mid_transfer(stack, threads, "tight")
    second = ask(stack, threads, "bravo", "tight")
    wait_for("both to be granted", lambda: _granted(stack, "tight") == 2 or None)
    before = kill_prefill(stack)
    assert_answered(first)
    assert_recomputed(stack, request, "tight")
    response = second[1].result()
    assert response.status_code == 503, response.text
    assert error_of(response)["code"] == "node_lost"
    assert response.headers["retry-after"] == "1"
    refused = stack.one("request_refused", node="tight")
    assert (refused["stage"], refused["reason"]) == ("transfer", "peer_lost")
    assert len(stack.records.all("request_recomputed", node="tight")) == 1
    reborn(stack, before)
    stack.baseline()
    stack.serves("bravo", "prefill-0/tight")
    stack.baseline()


def _granted(stack: Served, decode: str) -> int:
    count: int = stack.status_of(decode)["requests"].get("granted", 0)
    return count


def test_choices_and_a_stream_go_on_from_what_was_recomputed(
    stack: Served, threads: ThreadPoolExecutor
) -> None:
    """All choices find the canary of their own prompt; another tenant is served meanwhile."""
    stack.client.point("prefill-0", "arm", "write.piece", after=PIECES)
    prompt = stack.canaries.prompt("acme", PROMPT_TOKENS)
    route = "prefill-0/copying"
    several = threads.submit(stack.post, prompt, route, n=3)
    stack.client.held("prefill-0", "write.piece")
    streamed_prompt = stack.canaries.prompt("bravo", PROMPT_TOKENS)
    streamed = stack.start(streamed_prompt, route)
    wait_for("both to be granted", lambda: _granted(stack, "copying") == 2 or None)
    before = kill_prefill(stack)
    response = several.result()
    assert response.status_code == 200, response.text
    assert [choice["text"] for choice in response.json()["choices"]] == [prompt.canary] * 3
    assert response.json()["usage"]["prompt_tokens"] == PROMPT_TOKENS
    assert response.json()["usage"]["completion_tokens"] == 3 * CANARY_TOKENS
    reply = streamed.result()
    assert (reply.status, reply.text) == (200, streamed_prompt.canary)
    reborn(stack, before)
    stack.baseline()
