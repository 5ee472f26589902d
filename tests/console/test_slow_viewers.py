"""Viewers that come, leave, or do not read: what nodes are asked, and what a stalled one costs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from starlette.requests import Request
from starlette.types import Message

from kvairlock.core.messages import Watch
from kvairlock.core.terms import NodeName
from kvairlock.gateway.console import live
from kvairlock.gateway.console import viewers as viewing
from kvairlock.gateway.console.page_maps import LEASE_MS, PageMaps
from kvairlock.gateway.console.viewers import Viewers
from kvairlock.gateway.errors import Refused
from kvairlock.gateway.parts import Parts


class Nobody:
    """No nodes at all."""

    def can_say(self, name: str, kind: object) -> bool:
        return False

    def post(self, name: str, message: object) -> None:
        raise AssertionError("nobody is asked")


@dataclass
class Asked:
    """Nodes that take note of what they are asked."""

    leases_ms: dict[str, list[int]] = field(default_factory=dict)

    def can_say(self, name: str, kind: object) -> bool:
        return True

    def post(self, name: str, message: Watch) -> None:
        self.leases_ms.setdefault(name, []).append(message.lease_ms)


def viewers() -> Viewers:
    return Viewers(cast(Any, Nobody()), PageMaps([]), ())


async def waits_for_ever() -> Message:
    await anyio.sleep_forever()
    raise AssertionError


def test_who_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STALLED_S", 0.01)
    anyio.run(stall)


async def stall() -> None:
    looks, made, sent = viewers(), 0, []

    class Endless(live.Live):
        async def _chunks(self) -> AsyncIterator[bytes]:
            nonlocal made
            while True:
                made += 1
                yield b"x"

    async def send(message: Message) -> None:
        sent.append(message["type"])
        if message["type"] == "http.response.body":
            assert len(looks) == 1
            await anyio.sleep_forever()

    parts = cast(Parts, SimpleNamespace(console=SimpleNamespace(viewers=looks)))
    response = Endless(parts, Request({"type": "http", "headers": []}))
    with anyio.fail_after(10):
        await response({"type": "http"}, waits_for_ever, send)
    assert sent == ["http.response.start", "http.response.body"]
    assert made == 1, "nothing is made for who has not read what came before"
    assert len(looks) == 0, "and its place is free"


def test_nobody_begins_to_look_at_a_gateway_that_stops() -> None:
    async def check() -> None:
        looks = viewers()
        with looks.one_more():
            looks.close()
            with pytest.raises(Refused) as caught:
                looks.check()
        assert (caught.value.error.status, caught.value.error.code) == (503, "gateway_stopping")

    anyio.run(check)


def test_two_short_looks_in_a_row_are_ended_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes and leaves between two renewals has left nothing that goes on."""
    asked, names = Asked(), (NodeName("prefill-0"), NodeName("decode-0"))
    looks = Viewers(cast(Any, asked), PageMaps(names), names)
    renewals = 0

    async def renew(delay_s: float) -> None:
        nonlocal renewals
        renewals += 1
        await anyio.lowlevel.checkpoint()

    async def look() -> None:
        with looks.one_more():
            while renewals == 0:
                await anyio.lowlevel.checkpoint()
        with looks.one_more():
            pass

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(looks.run)
            await look()
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()

    monkeypatch.setattr(viewing, "anyio", SimpleNamespace(Event=anyio.Event, sleep=renew))
    anyio.run(run)
    assert asked.leases_ms == {name: [LEASE_MS, 0] for name in names}
