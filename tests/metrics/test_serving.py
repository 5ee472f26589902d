"""A node's `/metrics`: whoever asks, the node keeps its descriptors and its time."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kvairlock.metrics import exposition, serving
from kvairlock.metrics.families import Gathering
from kvairlock.metrics.serving import CONNECTIONS_MAX, HEAD_BYTES_MAX
from kvairlock.runtime import heads

HEAD_S = 0.2
ASK = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n"
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], Awaitable[Client]]
ENDED = (ConnectionError, asyncio.IncompleteReadError)
BURST = 20 * CONNECTIONS_MAX
CROWD = f"""
import socket, sys
crowd = [socket.socket() for _ in range({BURST})]
for each in crowd:
    each.setblocking(False)
    each.connect_ex((sys.argv[1], int(sys.argv[2])))
print("all are here", flush=True)
sys.stdin.read()
"""
"""A process that opens many connections at one time, and says nothing on them."""


class Figures:
    """What is shown, and how often it was read."""

    read = 0

    def __call__(self) -> Gathering:
        self.read += 1
        into = Gathering()
        into.add("routes_up", self.read)
        return into


def talk(to: Callable[[Connect], Awaitable[None]], figures: Callable[[], Gathering]) -> None:
    """Let clients talk to a server of metrics."""

    async def run() -> None:
        listener = serving.listen("127.0.0.1", 0)
        where = listener.getsockname()
        server = asyncio.create_task(serving.serve(listener, figures))
        async with asyncio.timeout(20):
            await to(lambda: asyncio.open_connection(*where))
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)

    asyncio.run(run())


async def ask(client: Client, what: bytes = ASK) -> str:
    """Return the answer to one request; empty if the connection was closed instead."""
    reader, writer = client
    try:
        writer.write(what)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split()[0])
        return head + (await reader.readexactly(length)).decode()
    except ENDED:
        return ""


async def closed(client: Client) -> bool:
    """Whether a connection on which nothing was sent ends, waiting no longer than for a head."""
    try:
        async with asyncio.timeout(HEAD_S):
            return await client[0].read() == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_who_is_over_the_few_connections_is_closed_at_once_and_the_others_are_answered() -> None:
    async def clients(connect: Connect) -> None:
        idle = [await connect() for _ in range(CONNECTIONS_MAX - 1)]
        asks = await connect()
        assert "200 ok" in await ask(asks)
        over = [await connect() for _ in range(3 * CONNECTIONS_MAX)]
        assert all(await asyncio.gather(*map(closed, over)))
        assert not any(await asyncio.gather(*map(closed, idle)))
        assert "200 ok" in await ask(asks)

    talk(clients, Figures())


def test_a_crowd_that_comes_at_one_time_takes_no_more_descriptors_than_a_few() -> None:
    async def clients(connect: Connect) -> None:
        client = await connect()
        assert "200 ok" in await ask(client)
        where = map(str, client[1].get_extra_info("peername"))
        crowd = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CROWD, *where, stdin=PIPE, stdout=PIPE
        )
        assert crowd.stdout is not None
        here = asyncio.create_task(crowd.stdout.readline())
        before = most = descriptors()
        while not here.done():
            await asyncio.sleep(0)
            most = max(most, descriptors())
        assert "200 ok" in await ask(client)
        # Each turn of the loop takes a backlog in, and who was aborted goes a few turns later.
        assert most - before <= 8 * CONNECTIONS_MAX < BURST
        await crowd.communicate(b"")

    talk(clients, Figures())


def descriptors() -> int:
    """How many this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_connection_that_says_nothing_gives_its_place_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heads, "HEAD_S", HEAD_S)

    async def clients(connect: Connect) -> None:
        idle = [await connect() for _ in range(CONNECTIONS_MAX)]
        for reader, _ in idle:
            assert await reader.read() == b""
        assert "200 ok" in await ask(await connect())

    talk(clients, Figures())


@pytest.mark.parametrize("over", [False, True])
def test_a_head_has_a_bound_also_when_it_comes_at_once(over: bool) -> None:
    async def clients(connect: Connect) -> None:
        padding = b"x: " + bytes(HEAD_BYTES_MAX if over else 1000).replace(b"\0", b"a")
        said = await ask(await connect(), ASK[:-2] + padding + b"\r\n\r\n")
        assert ("200 ok" in said) is not over

    talk(clients, Figures())


def test_many_who_ask_at_one_time_get_one_answer() -> None:
    figures = Figures()

    async def clients(connect: Connect) -> None:
        said = await asyncio.gather(*[ask(await connect()) for _ in range(8)])
        assert all("kvairlock_routes_up 1.0" in each for each in said)

    talk(clients, figures)
    assert figures.read == 1


def test_an_answer_is_not_kept_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "KEPT_S", 0.0)

    async def clients(connect: Connect) -> None:
        client = await connect()
        for number in (1, 2):
            assert f"kvairlock_routes_up {number}.0" in await ask(client)

    talk(clients, Figures())
