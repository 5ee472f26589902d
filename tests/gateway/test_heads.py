"""Connections that do not say what they want are closed in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvicorn
from starlette.responses import PlainTextResponse

from kvairlock.gateway import heads
from kvairlock.gateway.heads import BoundedHead

HEAD_S = 0.2
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "HEAD_S", HEAD_S)


async def answer(scope: object, receive: object, send: object) -> None:
    """Answer later than a head may take."""
    await asyncio.sleep(2 * HEAD_S)
    await PlainTextResponse("done")(scope, receive, send)  # type: ignore[arg-type]


def talk_to_server(talk: Talk) -> None:
    """Let a client talk to a server with one connection."""

    async def run() -> None:
        config = uvicorn.Config(answer, http=BoundedHead, lifespan="off", log_config=None)
        state = uvicorn.server.ServerState()
        loop = asyncio.get_running_loop()
        config.load()
        server = await loop.create_server(
            lambda: BoundedHead(config, state, app_state={}), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        async with asyncio.timeout(10):
            await talk(reader, writer)
        writer.close()
        server.close()

    asyncio.run(run())


def test_a_connection_that_says_nothing_is_closed() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""

    talk_to_server(talk)


def test_a_head_that_comes_byte_by_byte_gets_no_more_time() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended = asyncio.create_task(reader.read())
        began = asyncio.get_running_loop().time()
        while not ended.done():
            writer.write(b"G")
            await asyncio.wait([ended], timeout=HEAD_S / 10)
        assert HEAD_S <= asyncio.get_running_loop().time() - began < 10 * HEAD_S

    talk_to_server(talk)


def test_a_whole_head_may_wait_for_its_answer_and_ask_again() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert await reader.readexactly(4) == b"done"
        writer.write(b"GET / HT")
        assert await reader.read() == b""

    talk_to_server(talk)
