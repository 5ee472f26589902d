"""How a process of the stack says that it is ready, and learns that it must end."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import secrets
import signal
import stat
import sys
from collections.abc import Mapping
from typing import Any

import anyio

from kvairlock.core.terms import Incarnation


def fresh_incarnation() -> Incarnation:
    """Return the name of one life of a process."""
    return Incarnation(secrets.token_hex(8))


def protect_memory() -> None:
    """Leave no core files: prompts and pages are in the memory of this process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def raise_descriptors() -> None:
    """Take as many file descriptors as the system allows: each window and client needs one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def say_ready(facts: Mapping[str, object]) -> None:
    """Print the one line that tells the parent process that this one serves."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


async def stop_requested() -> None:
    """Return on SIGTERM or SIGINT, or when the parent has died: the pipe on stdin has ended."""
    asyncio.get_running_loop().set_exception_handler(_pass_over_cancelled)
    ended = anyio.Event()

    async def on_signal() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                ended.set()

    async def on_orphaned() -> None:
        if stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
            await _end_of_input()
            ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(on_signal)
        tasks.start_soon(on_orphaned)
        await ended.wait()
        tasks.cancel_scope.cancel()


def _pass_over_cancelled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Links that close cancel their reads; one that was ready then sets a future that has ended.

    It is anyio's own future, nobody waits for it any more, and there is nothing to tell.
    """
    told = isinstance(context.get("exception"), asyncio.InvalidStateError)
    if not (told and "set_result" in context.get("message", "")):
        loop.default_exception_handler(context)


async def _end_of_input() -> None:
    """Wait until the pipe on stdin ends."""
    loop, pipe, ended = asyncio.get_running_loop(), sys.stdin.fileno(), anyio.Event()

    def readable() -> None:
        if not os.read(pipe, 4096):
            loop.remove_reader(pipe)
            ended.set()

    loop.add_reader(pipe, readable)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pipe)
