"""What a large body takes is done beside the loop, by few threads."""

from __future__ import annotations

import threading

import anyio
import pytest

from kvairlock.gateway.bodies import INLINE_BYTES_MAX, work_aside
from kvairlock.gateway.errors import Refused, bad_request

WAIT_S = 10


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
            assert await work_aside(INLINE_BYTES_MAX + 1, anyio.CapacityLimiter(1), work)

    anyio.run(main)


def test_small_bodies_do_not_wait_for_large_ones() -> None:
    async def main() -> None:
        threads = anyio.CapacityLimiter(1)
        threads.acquire_on_behalf_of_nowait("a large body")
        here = threading.get_ident()
        assert await work_aside(INLINE_BYTES_MAX, threads, threading.get_ident) == here
        with pytest.raises(TimeoutError), anyio.fail_after(0.01):
            await work_aside(INLINE_BYTES_MAX + 1, threads, threading.get_ident)
        threads.release_on_behalf_of("a large body")
        assert await work_aside(INLINE_BYTES_MAX + 1, threads, threading.get_ident) != here

    anyio.run(main)


def test_a_refusal_comes_through() -> None:
    def refuse() -> None:
        raise bad_request("no", "prompt")

    async def main() -> None:
        with pytest.raises(Refused) as caught:
            await work_aside(INLINE_BYTES_MAX + 1, anyio.CapacityLimiter(1), refuse)
        assert caught.value.error.param == "prompt"

    anyio.run(main)
