"""The same promises against a writer that is another process: suspended, continued, killed."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kvairlock.core.terms import Fence, LandingPolicy
from kvairlock.runtime.ports import Busy, Landed, Opened
from kvairlock.transport.fences import ProcessMissing, ProcessWatch
from kvairlock.transport.memory import PoolMemory
from kvairlock.transport.windows import Landing

PAGE_BYTES = 8192
POOL_PAGES = 16
PAGES = np.array([4, 5, 6, 7, 1, 2, 12, 13], dtype=np.int32)
HOLD_AFTER = 3
FORMER = 0xA7
NEXT = 0x55
TIMEOUT_S = 30.0
SCRIPT = Path(__file__).with_name("writer_process.py")


class WriterProcess:
    """The test's end of a writer process that stops after HOLD_AFTER pieces."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(TIMEOUT_S)
        figures = (theirs.fileno(), len(PAGES), PAGE_BYTES, FORMER, HOLD_AFTER)
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *map(str, figures)],
            pass_fds=(theirs.fileno(),),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        theirs.close()
        self.pid = self._process.pid
        self.expect("ready")

    def grant(self, opened: Opened) -> None:
        socket.send_fds(self._channel, [json.dumps(opened.offsets).encode()], [opened.fd])

    def release(self) -> None:
        self._channel.send(b"release")

    def expect(self, event: str) -> dict[str, object]:
        message: dict[str, object] = json.loads(self._channel.recv(65536))
        assert message["event"] == event
        return message

    def suspend(self) -> None:
        """Stop it, and return when the kernel says that it is stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._channel.close()


@pytest.fixture
def writer() -> Iterator[WriterProcess]:
    process = WriterProcess()
    yield process
    process.close()


def landing(policy: LandingPolicy) -> tuple[PoolMemory, Landing]:
    pool = PoolMemory(POOL_PAGES, PAGE_BYTES, shared=policy is LandingPolicy.DIRECT)
    return pool, Landing(pool, policy)


def reuse(pool: PoolMemory) -> None:
    pool.scrub(PAGES)
    pool.array[PAGES] = NEXT


def foreign_bytes(pool: PoolMemory) -> int:
    return int(np.count_nonzero(pool.array[PAGES] != NEXT))


@pytest.mark.parametrize("policy", LandingPolicy)
def test_a_suspended_writer_continues_into_reused_pages_only_under_direct(
    writer: WriterProcess, policy: LandingPolicy
) -> None:
    pool, receiver = landing(policy)
    writer.grant(receiver.open("w", PAGES))
    assert writer.expect("reached")["detail"] == f"w {HOLD_AFTER}/{len(PAGES)}"
    writer.suspend()
    landed = receiver.land("w", PAGES)
    assert landed == Busy("w") if policy is LandingPolicy.SEAL else isinstance(landed, Landed)
    assert receiver.try_fence("w") is None
    receiver.close("w")
    reuse(pool)
    writer.release()
    writer.resume()
    end = writer.expect("end")
    assert (end["status"], end["bytes"]) == ("done", len(PAGES) * PAGE_BYTES)
    late_bytes = (len(PAGES) - HOLD_AFTER) * PAGE_BYTES
    assert foreign_bytes(pool) == (late_bytes if policy is LandingPolicy.DIRECT else 0)


@pytest.mark.parametrize("policy", [LandingPolicy.COPY, LandingPolicy.SEAL])
def test_late_bytes_are_counted_in_the_quarantined_window(
    writer: WriterProcess, policy: LandingPolicy
) -> None:
    pool, receiver = landing(policy)
    writer.grant(receiver.open("w", PAGES))
    writer.expect("reached")
    writer.suspend()
    assert receiver.landed_pages("w") == HOLD_AFTER
    reuse(pool)
    writer.release()
    writer.resume()
    writer.expect("end")
    assert receiver.landed_pages("w") == len(PAGES)
    assert foreign_bytes(pool) == 0
    assert receiver.try_fence("w") is Fence.SEALED


def test_a_writer_that_continues_after_the_fence_is_refused_by_the_kernel(
    writer: WriterProcess,
) -> None:
    _, receiver = landing(LandingPolicy.COPY)
    opened = receiver.open("w", PAGES)
    writer.suspend()
    writer.grant(opened)
    assert receiver.try_fence("w") is Fence.SEALED
    writer.resume()
    end = writer.expect("end")
    assert (end["status"], end["bytes"]) == ("failed", 0)
    assert receiver.landed_pages("w") == 0


@pytest.mark.parametrize("policy", [LandingPolicy.COPY, LandingPolicy.SEAL])
def test_a_killed_writer_is_gone_and_its_window_can_be_sealed(
    writer: WriterProcess, policy: LandingPolicy
) -> None:
    _, receiver = landing(policy)
    watch = ProcessWatch(writer.pid)
    writer.grant(receiver.open("w", PAGES))
    writer.expect("reached")
    assert not watch.gone()
    assert watch.try_fence() is None
    assert receiver.try_fence("w") is None
    writer.kill()
    ready, _, _ = select.select([watch], [], [], TIMEOUT_S)
    assert ready == [watch]
    assert watch.gone()
    assert watch.try_fence() is Fence.PROCESS_GONE
    assert receiver.try_fence("w") is Fence.SEALED
    assert receiver.landed_pages("w") == HOLD_AFTER
    watch.close()
    watch.close()


def test_a_suspended_process_is_not_gone(writer: WriterProcess) -> None:
    watch = ProcessWatch(writer.pid)
    writer.suspend()
    assert not watch.gone()
    writer.resume()
    watch.close()


def test_a_process_that_does_not_exist_cannot_be_watched() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    for pid in (child.pid, 0, -1):
        with pytest.raises(ProcessMissing):
            ProcessWatch(pid)
