"""The soak's clients against a server that answers as it is told, byte by byte."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import SocketAttribute, SocketStream

from kvairlock.drills.canaries import Canaries
from kvairlock.drills.soak.load import Advice, Ending, Load, Manners, Outcome
from kvairlock.drills.soak.plan import AfterChunks, AfterEnds, Ask, Endpoint

CANARIES = Canaries(4)
PLAIN = Ask(CANARIES.prompt("acme", 120), 0, Endpoint.COMPLETIONS, False, {"n": 1}, None)
STREAM = replace(PLAIN, parameters={"n": 1, "stream": True})
KEYS = {"acme": "kva-secret"}


@dataclass(frozen=True)
class Reply:
    """What the server says, and whether it then waits for the client to leave."""

    data: bytes
    waits: bool = False


def whole(body: object, status: int = 200) -> Reply:
    data = json.dumps(body).encode()
    return Reply(f"HTTP/1.1 {status} X\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)


def stream(*events: object, waits: bool = False) -> Reply:
    lines = [f"data: {e if isinstance(e, str) else json.dumps(e)}\n\n" for e in events]
    return Reply(b"HTTP/1.1 200 X\r\n\r\n" + "".join(lines).encode(), waits)


def choice(text: str, finish: str | None = None, index: int = 0) -> dict[str, Any]:
    return {"choices": [{"index": index, "text": text, "finish_reason": finish}]}


async def serve(replies: Mapping[str, Reply], left: list[str], client: SocketStream) -> None:
    """Answer one request, found by the canary in it; `left` gets those whose client went away."""
    async with client:
        request = b""
        while not request.endswith(b"}"):
            request += await client.receive()
        assert b"Bearer kva-secret" in request
        canary = next(canary for canary in replies if canary.encode() in request)
        await client.send(replies[canary].data)
        if replies[canary].waits:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                await client.receive()
            left.append(canary)


async def _outcomes(
    asked: Sequence[tuple[Ask, Reply]], left: list[str], concurrency: int
) -> list[Outcome]:
    replies = {ask.prompt.canary: reply for ask, reply in asked}
    outcomes: list[Outcome] = []
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django
    url = f"http://127.0.0.1:{port}"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, partial(serve, replies, left))
        load = Load(url, KEYS, "recall", concurrency, outcomes.append)
        await load.run([ask for ask, _ in asked])
        while len(left) < sum(reply.waits for _, reply in asked):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    await listener.aclose()
    return outcomes


def outcomes_of(
    *asked: tuple[Ask, Reply], left: list[str] | None = None, concurrency: int = 4
) -> list[Outcome]:
    return anyio.run(_outcomes, asked, [] if left is None else left, concurrency)


def outcome_of(ask: Ask, reply: Reply) -> Outcome:
    (outcome,) = outcomes_of((ask, reply))
    return outcome


def test_a_whole_answer_is_taken_by_choice() -> None:
    both = {"choices": [choice("b", "length", 1)["choices"][0], choice("a", "stop")["choices"][0]]}
    details = {"completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 16}}
    ask = replace(PLAIN, parameters={"n": 2})
    outcome = outcome_of(ask, whole({**both, "usage": details}))
    assert (outcome.ending, outcome.status, outcome.texts) == (Ending.COMPLETED, 200, ["a", "b"])
    assert (outcome.generated_tokens, outcome.reused_tokens) == (7, 16)


def test_a_chat_is_read_whole_and_streamed() -> None:
    chat = replace(PLAIN, endpoint=Endpoint.CHAT)
    message = {"index": 0, "message": {"content": "hello"}, "finish_reason": "stop"}
    assert outcome_of(chat, whole({"choices": [message]})).texts == ["hello"]
    deltas = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in (
            ({"role": "assistant"}, None),
            ({"content": "hi"}, None),
            ({}, "stop"),
        )
    ]
    streamed = replace(STREAM, endpoint=Endpoint.CHAT)
    outcome = outcome_of(streamed, stream(*deltas, "[DONE]"))
    assert (outcome.ending, outcome.texts) == (Ending.COMPLETED, ["hi"])


def test_a_stream_is_whole_if_it_says_so_and_every_choice_has_finished() -> None:
    usage = {"choices": [], "usage": {"completion_tokens": 2}}
    good = outcome_of(STREAM, stream(choice("a"), choice("b", "stop"), usage, "[DONE]"))
    assert (good.ending, good.texts, good.generated_tokens) == (Ending.COMPLETED, ["ab"], 2)
    for reply, code in (
        (stream(choice("a"), choice("b", "stop")), "cut_short"),
        (stream(choice("a"), "[DONE]"), "unfinished"),
        (stream(choice("a", "stop"), choice("b", "stop"), "[DONE]"), "unfinished"),
        (stream(choice("a"), "{"), "JSONDecodeError"),
        (stream(choice("a", "stop", index=1), "[DONE]"), "IndexError"),
        (Reply(b""), "RemoteProtocolError"),
    ):
        outcome = outcome_of(STREAM, reply)
        assert (outcome.ending, outcome.code) == (Ending.BROKEN, code)


def test_refusals_have_a_code_also_in_mid_stream() -> None:
    error = {"error": {"code": "route_full", "message": "m"}}
    refused = outcome_of(PLAIN, whole(error, 503))
    assert (refused.ending, refused.status, refused.code) == (Ending.REFUSED, 503, "route_full")
    late = outcome_of(STREAM, stream(choice("a"), error))
    assert (late.ending, late.code, late.texts) == (Ending.REFUSED, "route_full", ["a"])


def test_a_client_leaves_after_so_many_pieces() -> None:
    left: list[str] = []
    ask = replace(STREAM, leave=AfterChunks(2))
    (outcome,) = outcomes_of((ask, stream(choice("a"), choice("b"), waits=True)), left=left)
    assert (outcome.ending, outcome.texts) == (Ending.LEFT, ["ab"])
    assert left == [ask.prompt.canary]


def test_a_client_leaves_after_so_many_ends_of_others() -> None:
    left: list[str] = []
    leaver = replace(PLAIN, leave=AfterEnds(2))
    others = [replace(PLAIN, prompt=CANARIES.prompt("acme", 120)) for _ in range(3)]
    done = whole(choice("a", "stop"))
    asked = [(leaver, Reply(b"", waits=True)), *((other, done) for other in others)]
    outcomes = outcomes_of(*asked, left=left, concurrency=2)
    endings = [(outcome.ask is leaver, outcome.ending) for outcome in outcomes]
    assert endings.count((True, Ending.LEFT)) == 1
    assert endings.count((False, Ending.COMPLETED)) == 3
    assert endings[:2] == [(False, Ending.COMPLETED)] * 2
    assert left == [leaver.prompt.canary]


def test_an_answer_that_comes_before_its_client_would_leave_counts_as_whole() -> None:
    ask = replace(PLAIN, leave=AfterEnds(1))
    assert outcome_of(ask, whole(choice("a", "stop"))).ending is Ending.COMPLETED


# Clients that try again


def refusal(status: int, code: str, *headers: str) -> bytes:
    """A refusal on a connection of its own, so that the next try has a fresh one."""
    data = json.dumps({"error": {"code": code, "message": "m"}}).encode()
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(data)}", "connection: close", *headers]
    return "\r\n".join([*lines, "\r\n"]).encode() + data


ANSWER = whole(choice("a", "stop")).data
FULL = refusal(503, "route_full")
STOP = refusal(429, "tenant_share_exceeded", "x-should-retry: false")


async def _in_turn(replies: Iterator[bytes], counts: list[str], client: SocketStream) -> None:
    async with client:
        request = b""
        while not request.endswith(b"}"):
            request += await client.receive()
        head = request.decode().lower().split("\r\n")
        said = [line.split(": ")[1] for line in head if line.startswith("x-stainless-retry-count")]
        counts += said or ["-"]
        await client.send(next(replies))


async def _persistent(
    manners: Manners, asks: int, *replies: bytes
) -> tuple[list[Outcome], list[str]]:
    counts: list[str] = []
    outcomes: list[Outcome] = []
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, partial(_in_turn, iter(replies), counts))
        load = Load(f"http://127.0.0.1:{port}", KEYS, "recall", 1, outcomes.append, manners)
        await load.run([PLAIN] * asks)
        tasks.cancel_scope.cancel()
    await listener.aclose()
    return outcomes, counts


def persistent(retries_max: int, *replies: bytes) -> tuple[Outcome, list[str]]:
    """Ask once; return what came of it, and what each request said of those before it."""
    (outcome,), counts = anyio.run(_persistent, Manners(retries_max), 1, *replies)
    return outcome, counts


def test_a_client_that_is_refused_tries_again_and_says_how_often_it_has() -> None:
    outcome, counts = persistent(2, FULL, FULL, ANSWER)
    assert (outcome.ending, outcome.texts) == (Ending.COMPLETED, ["a"])
    assert (outcome.sent, counts) == (3, ["-", "1", "2"])
    assert outcome.refusals == ["route_full", "route_full"]


def test_a_client_tries_no_more_often_than_it_may() -> None:
    outcome, counts = persistent(1, FULL, FULL, ANSWER)
    assert (outcome.ending, outcome.code, counts) == (Ending.REFUSED, "route_full", ["-", "1"])
    assert persistent(0, FULL)[1] == ["-"]


def test_a_client_that_is_told_not_to_does_not_try_again() -> None:
    outcome, counts = persistent(2, FULL, STOP, ANSWER)
    assert (outcome.ending, outcome.advice, counts) == (Ending.REFUSED, Advice.STOP, ["-", "1"])
    assert outcome.refusals == ["route_full", "tenant_share_exceeded"]


def test_what_can_not_pass_by_itself_is_not_tried_again() -> None:
    outcome, counts = persistent(2, refusal(400, "context_length_exceeded"), ANSWER)
    assert (outcome.ending, outcome.sent, counts) == (Ending.REFUSED, 1, ["-"])


def test_a_refused_client_pauses_before_its_next_request_and_an_answered_one_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(anyio, "sleep", pause)
    close = ANSWER.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)
    manners = Manners(pause_ms=200)
    outcomes, _ = anyio.run(_persistent, manners, 3, FULL, close, close)
    completed, refused = Ending.COMPLETED, Ending.REFUSED
    assert [outcome.ending for outcome in outcomes] == [refused, completed, completed]
    assert pauses == [0.2]
    pauses.clear()
    anyio.run(_persistent, manners, 2, close, FULL)
    assert pauses == [0.2], "after the one that is refused, wherever it stands"


def test_times_are_told_of_answers_and_of_ends() -> None:
    answered = outcome_of(STREAM, stream(choice("a"), choice("b", "stop"), "[DONE]"))
    assert answered.first_ms is not None
    assert answered.total_ms is not None
    assert 0 < answered.first_ms <= answered.total_ms
    refused, _ = persistent(0, FULL)
    assert refused.first_ms is None
    assert refused.total_ms is not None
