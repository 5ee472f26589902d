"""Connections whose clients say nothing, or read nothing, are closed in time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from starlette.responses import PlainTextResponse

from kvairlock.runtime import heads
from kvairlock.runtime.heads import BoundedHead

HEAD_S = 0.2
UNREAD_S = 0.1
KERNEL_BYTES = 64 * 1024
MUCH = 4 * 1024 * 1024
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "HEAD_S", HEAD_S)
    monkeypatch.setattr(heads, "UNREAD_S", UNREAD_S)


async def answer(scope: object, receive: object, send: object) -> None:
    """Answer later than a head may take."""
    await asyncio.sleep(2 * HEAD_S)
    await PlainTextResponse("done")(scope, receive, send)  # type: ignore[arg-type]


async def send_much_and_give_up(scope: object, receive: object, send: Any) -> None:
    """Send more than the kernel keeps, and return when it is not read for a moment."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HEAD_S):
            while True:
                await send({"type": "http.response.body", "body": bytes(MUCH), "more_body": True})


def talk_to_server(talk: Talk, app: Any = answer) -> None:
    """Let a client talk to a server with one connection, and wait until the server has none."""

    async def run() -> None:
        config = uvicorn.Config(app, http=BoundedHead, lifespan="off", log_config=None)
        state = uvicorn.server.ServerState()
        loop = asyncio.get_running_loop()
        config.load()
        server = await loop.create_server(
            lambda: BoundedHead(config, state, app_state={}), "127.0.0.1", 0
        )
        listener, client = server.sockets[0], socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BYTES)
        client.connect(listener.getsockname())
        reader, writer = await asyncio.open_connection(sock=client)
        async with asyncio.timeout(10):
            await talk(reader, writer)
            while state.connections:
                await asyncio.sleep(0.01)
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


def test_a_closed_connection_does_not_wait_for_a_client_that_reads_nothing() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")

    talk_to_server(talk, send_much_and_give_up)


def test_a_closed_connection_stays_as_long_as_its_client_reads() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(HEAD_S)
        for _ in range(64):  # it takes several times UNREAD_S
            await reader.readexactly(MUCH // 64)
            await asyncio.sleep(UNREAD_S / 10)
        await reader.read()

    talk_to_server(talk, send_much_and_give_up)
