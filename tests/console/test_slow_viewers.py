"""A viewer that does not read is dropped, and costs no more than one event meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from starlette.requests import Request
from starlette.types import Message

from kvairlock.gateway.console import live
from kvairlock.gateway.console.page_maps import PageMaps
from kvairlock.gateway.console.viewers import Viewers
from kvairlock.gateway.errors import Refused
from kvairlock.gateway.parts import Parts


class Nobody:
    """No nodes at all."""

    def can_say(self, name: str, kind: object) -> bool:
        return False

    def post(self, name: str, message: object) -> None:
        raise AssertionError("nobody is asked")


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
        assert caught.value.error.status == 503

    anyio.run(check)
