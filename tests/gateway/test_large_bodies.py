"""What a large body takes is done beside the loop, by few threads, for one tenant after another."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import anyio
import pytest
from starlette.types import Message

from kvairlock.gateway.endpoints import ENDPOINTS
from kvairlock.gateway.errors import ApiError, Refused, bad_request
from kvairlock.gateway.exchange import Serving
from kvairlock.gateway.keys import ApiKeys
from kvairlock.gateway.parsers import INLINE_BYTES_MAX, Parsers
from kvairlock.gateway.parts import Parts
from kvairlock.gateway.tally import Tally
from kvairlock.runtime.settings import Settings
from kvairlock.runtime.traces.tracer import UNTRACED
from kvairlock.sink.recorder import Recorder

from .asking import OFFER

WAIT_S = 10
LARGE = INLINE_BYTES_MAX + 1


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        with anyio.fail_after(WAIT_S):
            await work()

    anyio.run(within)


@dataclass
class Bodies:
    """Large bodies that are worked on until the test lets them go, one by one."""

    parsers: Parsers
    begun: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    refused: list[ApiError] = field(default_factory=list)
    gates: dict[str, threading.Event] = field(default_factory=dict)

    async def take(self, name: str, body_bytes: int = LARGE) -> None:
        """Work on a body; its tenant is the first letter of its name."""
        gate = self.gates[name] = threading.Event()
        try:
            async with self.parsers.turn(name[0], body_bytes) as aside:
                self.begun.append(name)
                assert await aside(lambda: gate.wait(WAIT_S))
        except Refused as refused:
            self.refused.append(refused.error)
        else:
            self.ended.append(name)

    async def let_go(self, name: str) -> None:
        """Let the work on a body end, and wait until it has."""
        self.gates[name].set()
        while name not in self.ended:
            await anyio.sleep(0.001)
        await anyio.wait_all_tasks_blocked()


def test_the_loop_goes_on_while_a_large_body_is_worked_on() -> None:
    async def main() -> None:
        begun, loop_went_on = threading.Event(), threading.Event()

        def work() -> bool:
            begun.set()
            return loop_went_on.wait(WAIT_S)

        async def other() -> None:
            while not begun.is_set():
                await anyio.sleep(0.001)
            loop_went_on.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            async with Parsers(1, LARGE).turn("acme", LARGE) as aside:
                assert await aside(work)

    run(main)


def test_small_bodies_do_not_wait_for_large_ones() -> None:
    async def main() -> None:
        bodies, here = Bodies(Parsers(1, 2 * LARGE)), threading.get_ident()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bodies.take, "acme")
            await anyio.wait_all_tasks_blocked()
            async with bodies.parsers.turn("acme", INLINE_BYTES_MAX) as aside:
                assert await aside(threading.get_ident) == here
            await bodies.let_go("acme")
        async with bodies.parsers.turn("acme", LARGE) as aside:
            assert await aside(threading.get_ident) != here

    run(main)


def test_large_bodies_of_one_tenant_do_not_delay_those_of_another() -> None:
    async def main() -> None:
        bodies = Bodies(Parsers(2, 9 * LARGE))
        async with anyio.create_task_group() as tasks:
            for name in ("a1", "a2", "a3", "b1", "b2", "c1"):
                tasks.start_soon(bodies.take, name)
                await anyio.wait_all_tasks_blocked()
            assert bodies.begun == ["a1", "b1", "c1"], "one of each, and c1 waits for a thread"
            await bodies.let_go("a1")
            await bodies.let_go("c1")
            assert bodies.begun == ["a1", "b1", "c1", "a2"]
            for name in ("b1", "a2", "b2", "a3"):
                await bodies.let_go(name)
        assert bodies.begun == ["a1", "b1", "c1", "a2", "b2", "a3"], "in order of arrival"
        assert len(bodies.parsers) == 0, "nothing is remembered of tenants that have nothing here"

    run(main)


def test_a_tenant_may_have_so_many_bytes_waiting_and_then_comes_again_later() -> None:
    async def main() -> None:
        bodies = Bodies(Parsers(2, 3 * LARGE))
        async with anyio.create_task_group() as tasks:
            for name in ("a1", "a2", "a3", "a4", "b1"):
                tasks.start_soon(bodies.take, name)
                await anyio.wait_all_tasks_blocked()
            (error,) = bodies.refused
            assert (error.status, error.code) == (429, "tenant_share_exceeded")
            assert error.headers == {"retry-after": "2"}
            assert error.figures["limit_name"] == "tenant_body_bytes"
            assert (error.figures["asked"], error.figures["limit"]) == (4 * LARGE, 3 * LARGE)
            assert bodies.begun == ["a1", "b1"], "the other tenant is not concerned"
            await bodies.let_go("a1")
            tasks.start_soon(bodies.take, "a5")
            await anyio.wait_all_tasks_blocked()
            for name in ("a2", "a3", "a5", "b1"):
                await bodies.let_go(name)
        assert len(bodies.refused) == 1
        assert len(bodies.parsers) == 0

    run(main)


def test_a_refusal_comes_through_and_ends_the_turn() -> None:
    def refuse() -> None:
        raise bad_request("no", "prompt")

    async def main() -> None:
        parsers = Parsers(1, LARGE)
        for _ in range(2):
            with pytest.raises(Refused) as caught:
                async with parsers.turn("acme", LARGE) as aside:
                    await aside(refuse)
            assert caught.value.error.param == "prompt"
        assert len(parsers) == 0

    run(main)


@dataclass
class Client:
    """One request of a tenant whose model nobody has: its body must be understood to say so."""

    parts: Parts
    key: str
    status: int = 0

    async def ask(self) -> None:
        body = json.dumps({"model": "none", "prompt": "x" * LARGE}).encode()
        headers = [(b"authorization", f"Bearer {self.key}".encode())]
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers}

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            self.status = message.get("status", self.status)

        await Serving(self.parts, ENDPOINTS[0])(scope, receive, send)


def test_a_body_waits_in_the_line_of_the_tenant_whose_key_it_came_with(
    tmp_path: Path, evidence: Recorder
) -> None:
    keys = ApiKeys(tmp_path / "keys.toml")
    acme, rival = keys.issue("acme"), keys.issue("rival")
    meter, tally = SimpleNamespace(invalid=lambda: None), Tally(2, evidence)

    async def main() -> None:
        parsers = Parsers(2, 2 * LARGE)
        parts = SimpleNamespace(
            settings=Settings(),
            keys=keys,
            offer=OFFER,
            parsers=parsers,
            meter=meter,
            tally=tally,
            tracer=UNTRACED,
            evidence=evidence,
        )
        clients = [Client(cast(Parts, parts), key) for key in (acme, rival)]
        async with parsers.turn("acme", 2 * LARGE):
            for client in clients:
                await client.ask()
        assert [client.status for client in clients] == [429, 404]
        await clients[0].ask()
        assert clients[0].status == 404
        assert tally.refuses("acme") is None, (
            "to wait in line is no fault; the unknown model is one"
        )

    run(main)
