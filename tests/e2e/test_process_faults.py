"""Processes that die, sleep or start anew: noticed, fenced on evidence, and the stack serves on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from kvairlock.drills.client import Call
from kvairlock.drills.stack import wait_for

from .served import Json, Served, serving

SETTINGS = """
[[prefill]]
name = "prefill-0"
pages = 64
prefix_share = 0

[[prefill]]
name = "prefill-1"
pages = 64
prefix_share = 0

[[decode]]
name = "decode-0"
pages = 64
landing = "copy"
tenant_share = 1.0

[[decode]]
name = "decode-1"
pages = 64
landing = "direct"
tenant_share = 1.0

[limits]
beat_ms = 100
lost_ms = 600

[drill]
enabled = true
"""
PROMPT_CHARACTERS = 400
RESERVED_PAGES = 27  # for the prompt and 17 tokens of answer
PAGES = 64
PIECES = 5
LANDINGS = pytest.mark.parametrize("decode", ["decode-0", "decode-1"], ids=["copy", "direct"])


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two prefill nodes, and decode nodes that land by copy and directly; silence counts soon."""
    folder = tmp_path_factory.mktemp("faults")
    with serving(folder, SETTINGS, {"acme": "none", "bravo": "none"}, operators=True) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_stays_held(stack: Served) -> Iterator[None]:
    """One failure must not become those of all tests after it."""
    yield
    stack.release_all()


def hold_mid_transfer(stack: Served, decode: str) -> tuple[Call, str]:
    """Start a request whose transfer halts after some pieces; return its pseudonym too."""
    stack.client.point("prefill-0", "arm", "write.piece", after=PIECES)
    prompt = stack.canaries.prompt("acme", PROMPT_CHARACTERS)
    call = stack.start(prompt, f"prefill-0/{decode}")
    transfer = stack.client.held("prefill-0", "write.piece").split(" ")[1]
    return call, stack.records.transfer(transfer)


def reborn(stack: Served, name: str, before: Json) -> None:
    """Wait until a process lives again, is another one than before, and all routes are up."""
    lives = wait_for(f"{name} to be started again", lambda: _other(stack, name, before))
    assert lives["pids"][name] != before["pids"][name]

    def look() -> bool | None:
        status = reached(stack)
        if status is None or set(status["routes"].values()) != {"up"}:
            return None
        if name in status["nodes"]:
            stated = status["nodes"][name]["status"]["report"]["incarnation"]
            return True if stated == lives["incarnations"][name] else None
        return True

    wait_for("all routes to be up", look)


def reached(stack: Served) -> Json | None:
    """The operator's view, if there is a gateway."""
    try:
        return stack.client.status()
    except httpx.TransportError:
        return None


def _other(stack: Served, name: str, before: Json) -> Json | None:
    facts = stack.facts
    return facts if facts["incarnations"][name] != before["incarnations"][name] else None


def assert_lost(call: Call, node: str) -> None:
    reply = call.result()
    assert (reply.status, reply.refusal) == (503, "node_lost"), reply
    assert reply.headers["retry-after"] == "1"
    assert node in reply.error["message"]


def ended_once(stack: Served, request: str) -> Json:
    ended = stack.one("request_ended", request=request, role="decode")
    return {name: ended[name] for name in ("end", "reason", "generated_tokens")}


FAILED_BY_LOSS = {"end": "failed", "reason": "peer_lost", "generated_tokens": 0}


@LANDINGS
def test_a_killed_prefill_fences_its_window(stack: Served, decode: str) -> None:
    call, request = hold_mid_transfer(stack, decode)
    before = stack.facts
    stack.kill("prefill-0")
    assert_lost(call, "prefill-0")
    fenced = stack.one("window_fenced", request=request)
    assert (fenced["fence"], fenced["bytes_written"]) == ("process_gone", 0)
    assert ended_once(stack, request) == FAILED_BY_LOSS
    assert stack.records.all("verdict", request=request) == []
    stack.serves("bravo", f"prefill-1/{decode}")
    reborn(stack, "prefill-0", before)
    stack.baseline()
    drained = stack.one("drain_ended", request=request, node=decode)
    assert drained["fence"] == ("process_gone" if decode == "decode-1" else "local")
    stack.serves("acme", f"prefill-0/{decode}")
    stack.baseline()


def test_a_decode_killed_while_it_generates_fails_its_requests(stack: Served) -> None:
    stack.client.point("decode-0", "arm", "decode.step", after=4)
    streamed = stack.start(stack.canaries.prompt("acme", 200), "prefill-0/decode-0")
    request = stack.records.transfer(stack.client.held("decode-0", "decode.step"))
    wait_for("the first tokens", lambda: streamed.reply.text or None)
    before = stack.facts
    stack.kill("decode-0")
    reply = streamed.result()
    assert reply.status == 200  # its first tokens were sent: the error is the last event
    assert reply.error["code"] == "node_lost"
    assert "decode-0" in reply.error["message"]
    assert len(reply.text) == 4
    stack.serves("bravo", "prefill-1/decode-1")
    reborn(stack, "decode-0", before)
    stack.baseline()
    assert stack.records.all("request_ended", request=request, role="decode") == []
    stack.serves("acme", "prefill-0/decode-0")
    stack.baseline()


def test_a_decode_killed_before_the_first_token_is_503(stack: Served) -> None:
    stack.client.point("decode-0", "arm", "land")
    call = stack.start(stack.canaries.prompt("acme", 200), "prefill-0/decode-0")
    request = stack.records.transfer(stack.client.held("decode-0", "land"))
    before = stack.facts
    stack.kill("decode-0")
    assert_lost(call, "decode-0")
    ended = stack.one("request_ended", request=request, role="prefill")
    assert (ended["end"], ended["reason"]) == ("failed", "peer_lost")
    reborn(stack, "decode-0", before)
    stack.baseline()
    stack.serves("acme", "prefill-0/decode-0")


def test_a_transfer_that_was_complete_survives_its_sender(stack: Served) -> None:
    stack.client.point("decode-0", "arm", "land")
    prompt = stack.canaries.prompt("acme", PROMPT_CHARACTERS)
    call = stack.start(prompt, "prefill-0/decode-0")
    stack.client.held("decode-0", "land")
    before = stack.facts
    stack.kill("prefill-0")
    reborn(stack, "prefill-0", before)
    stack.client.point("decode-0", "release", "land")
    reply = call.result()
    assert (reply.status, reply.text) == (200, prompt.canary)
    stack.baseline()


@LANDINGS
def test_a_stopped_prefill_keeps_its_window_until_it_speaks(stack: Served, decode: str) -> None:
    call, request = hold_mid_transfer(stack, decode)
    pid = stack.pid("prefill-0")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert_lost(call, "prefill-0")
        assert ended_once(stack, request) == FAILED_BY_LOSS
        stack.serves("bravo", f"prefill-1/{decode}")
        assert_only_the_window_waits(stack, decode)
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for("all routes to be up", lambda: all_up(stack))
    assert stack.records.all("window_fenced", request=request) == []
    stack.client.point("prefill-0", "release", "write.piece")
    fenced = stack.one("window_fenced", request=request)
    assert fenced["fence"] == "acknowledged"
    assert fenced["bytes_written"] > 0
    assert fenced["wait_ms"] > 0
    stack.baseline()
    assert stack.pid("prefill-0") == pid
    assert ended_once(stack, request) == FAILED_BY_LOSS
    stack.serves("acme", f"prefill-0/{decode}")
    stack.baseline()


def all_up(stack: Served) -> bool | None:
    return True if set(stack.client.status()["routes"].values()) == {"up"} else None


def assert_only_the_window_waits(stack: Served, decode: str) -> None:
    """By copy the pool's pages are free at once; directly they are the window, and wait with it."""
    waiting = RESERVED_PAGES if decode == "decode-1" else 0

    def look() -> Json | None:
        figures = stack.status_of(decode)
        idle = (figures["windows"], figures["windows_draining"]) == (1, 1)
        return figures if idle and not figures["requests"] else None

    figures = wait_for("only the window to wait", look)
    free = wait_for("the others' pages", lambda: _free(stack, decode, PAGES - waiting))
    assert free == PAGES - waiting
    assert sum(figures["pages"].values()) == PAGES


def _free(stack: Served, node: str, wanted: int) -> int | None:
    free: int = stack.status_of(node)["pages"]["free"]
    return free if free >= wanted else None


def test_a_stopped_decode_finds_its_requests_cancelled(stack: Served) -> None:
    stack.client.point("decode-0", "arm", "decode.step")
    call = stack.start(stack.canaries.prompt("acme", 200), "prefill-0/decode-0")
    request = stack.records.transfer(stack.client.held("decode-0", "decode.step"))
    pid = stack.pid("decode-0")
    os.kill(pid, signal.SIGSTOP)
    try:
        assert_lost(call, "decode-0")
        stack.serves("bravo", "prefill-1/decode-1")
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_for("all routes to be up", lambda: all_up(stack))
    stack.client.point("decode-0", "release", "decode.step")
    ended = stack.one("request_ended", request=request, role="decode")
    assert (ended["end"], ended["reason"]) == ("cancelled", "cancelled")
    stack.baseline()
    assert stack.pid("decode-0") == pid
    stack.serves("acme", "prefill-0/decode-0")


def test_a_new_gateway_finds_that_the_nodes_cancelled_what_the_old_one_asked(
    stack: Served,
) -> None:
    stack.client.point("decode-0", "arm", "decode.step")
    prompt = stack.canaries.prompt("acme", 200)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(stack.post, prompt, "prefill-0/decode-0")
        request = stack.records.transfer(stack.client.held("decode-0", "decode.step"))
        before = stack.facts
        stack.kill("gateway")
        assert isinstance(asked.exception(), httpx.TransportError)
    assert_cancelled_and_serving(stack, request, before)


def test_a_gateway_that_ends_says_so_to_those_it_serves(stack: Served) -> None:
    """One has nothing of its answer yet, one is in the middle of it: both get a typed error."""
    stack.client.point("decode-0", "arm", "decode.step", after=3)
    stream = stack.start(stack.canaries.prompt("acme", 200), "prefill-0/decode-0")
    request = stack.records.transfer(stack.client.held("decode-0", "decode.step"))
    wait_for("three tokens", lambda: len(stream.reply.text) == 3 or None)
    with ThreadPoolExecutor(1) as pool:
        whole = pool.submit(stack.post, stack.canaries.prompt("bravo", 200), "prefill-1/decode-0")
        wait_for("both to decode", lambda: _decoding(stack) == 2 or None)
        before = stack.facts
        stack.kill("gateway", signal.SIGTERM)
        response = whole.result()
    assert response.status_code == 503, response.text
    assert response.json()["error"]["type"] == "server_error"
    assert int(response.headers["retry-after"]) > 0
    assert stream.result().error.get("type") == "server_error"
    assert_cancelled_and_serving(stack, request, before)


def _decoding(stack: Served) -> int:
    count: int = stack.status_of("decode-0")["requests"].get("confirmed", 0)
    return count


def assert_cancelled_and_serving(stack: Served, request: str, before: Json) -> None:
    ended = stack.one("request_ended", request=request, role="decode")
    assert (ended["end"], ended["reason"]) == ("cancelled", "cancelled")
    reborn(stack, "gateway", before)
    assert stack.facts["url"] == stack.url
    stack.client.point("decode-0", "release", "decode.step")
    stack.baseline()
    assert {**stack.facts["pids"], "gateway": 0} == {**before["pids"], "gateway": 0}
    stack.serves("acme", "prefill-0/decode-0")
    stack.serves("bravo", "prefill-1/decode-1")
    stack.baseline()
