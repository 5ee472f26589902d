"""One life of one process of the stack: started, heard, ended, reaped.

A child says one line of JSON on stdout when it is ready; all else that it says is log. Its stdin is
a pipe that nobody writes to: it closes when the supervisor is gone, however that ended, and a child
whose stdin ends must end. It leads a session of its own, so that Ctrl-C at the terminal reaches the
supervisor only, which then stops the processes in order.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from subprocess import PIPE

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, Process

from kvairlock.core.errors import KvairlockError
from kvairlock.core.terms import Role

LINE_BYTES_MAX = 64 * 1024
LAST_WORDS_MS = 1_000
"""How long to wait for the rest of what a process said after it ended."""

Log = Callable[[str, str], None]
"""Takes the name of a process and a line that it logged."""


class StartFailed(KvairlockError):
    """A process of the stack could not be started; the message says which and why.

    Args:
        message: Which process, and how it failed.
        returncode: Its exit status, or None if it had none.
    """

    code = "start_failed"

    def __init__(self, message: str, returncode: int | None = None) -> None:
        super().__init__(message)
        self.returncode = returncode


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to start a process, as often as needed.

    Args:
        name: Its name, unique in the stack.
        argv: The program and its arguments; secrets never go here.
        env: Its whole environment.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]


class Ready(msgspec.Struct, frozen=True):
    """What a process says of itself when it can serve."""

    ready: str
    role: Role
    pid: int
    incarnation: str
    tokens: int | None = None
    url: str | None = None
    metrics: str | None = None


class Child:
    """A running process; made by `Child.spawn`."""

    def __init__(self, spec: ChildSpec, process: Process) -> None:
        self.spec = spec
        self._process = process
        self._ready: Ready | None = None
        self._answered = anyio.Event()
        self._silent = anyio.Event()
        self._last_line = ""

    @classmethod
    async def spawn(cls, spec: ChildSpec) -> Child:
        """Start the process.

        Raises:
            StartFailed: The system would not.
        """
        try:
            with anyio.CancelScope(shield=True):  # a process is never started and then forgotten
                process = await anyio.open_process(
                    spec.argv,
                    stdin=PIPE,
                    stdout=PIPE,
                    stderr=PIPE,
                    env=spec.env,
                    start_new_session=True,
                )
        except OSError as error:
            raise StartFailed(f"{spec.name} cannot be started: {error.strerror}") from None
        return cls(spec, process)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet, as far as is known here."""
        return self._process.returncode is None

    async def listen(self, log: Log) -> None:
        """Take in all that it says until it says no more; runs beside everything else."""
        async with anyio.create_task_group() as readers:
            readers.start_soon(self._hear_stdout, log)
            readers.start_soon(self._hear_stderr, log)
        self._silent.set()

    async def ready(self, start_ms: int) -> Ready:
        """Wait until it is ready.

        Raises:
            StartFailed: It ended first, or took longer than `start_ms`.
        """
        with anyio.move_on_after(start_ms / 1000):
            await self._answered.wait()
        if self._ready is not None:
            return self._ready
        if not self._answered.is_set():
            raise StartFailed(
                f"{self.spec.name} was not ready after {start_ms} ms (limits.start_ms)"
            )
        with anyio.move_on_after(LAST_WORDS_MS / 1000):
            await self._process.wait()
            await self._silent.wait()
        returncode = self._process.returncode
        message = f"{self.spec.name} ended before it was ready ({how_ended(returncode)})"
        said = f": {self._last_line}" if self._last_line else ""
        raise StartFailed(message + said, returncode)

    async def wait(self) -> int:
        """Wait for its end, reap it, and return its exit status (negative: ended by a signal)."""
        returncode = await self._process.wait()
        with anyio.move_on_after(LAST_WORDS_MS / 1000):
            await self._silent.wait()
        await self._process.aclose()
        return returncode

    async def stop(self, grace_ms: int) -> int:
        """Ask it to end, kill it when `grace_ms` are over, reap it; return its exit status."""
        self._signal(signal.SIGTERM)
        with anyio.move_on_after(grace_ms / 1000):
            return await self.wait()
        self.kill()
        return await self.wait()

    def kill(self) -> None:
        """End it without asking; harmless if it has ended."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.running:
            self._process.send_signal(number)

    async def _hear_stdout(self, log: Log) -> None:
        async for line in _lines(self._process.stdout):
            if self._ready is None and (ready := _parse(line, self.spec.name)) is not None:
                self._ready = ready
                self._answered.set()
            else:
                log(self.spec.name, line)
        self._answered.set()

    async def _hear_stderr(self, log: Log) -> None:
        async for line in _lines(self._process.stderr):
            self._last_line = line.strip() or self._last_line
            log(self.spec.name, line)


def how_ended(returncode: int | None) -> str:
    """Return words for an exit status: `exit status 2`, `SIGKILL`."""
    if returncode is None:
        return "it closed its stdout"
    if returncode >= 0:
        return f"exit status {returncode}"
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


def _parse(line: str, name: str) -> Ready | None:
    try:
        ready = msgspec.json.decode(line, type=Ready)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return ready if ready.ready == name else None


async def _lines(stream: ByteReceiveStream | None) -> AsyncIterator[str]:
    """Yield whole lines; one that is too long comes in pieces."""
    rest = b""
    if stream is None:
        return
    try:
        async for data in stream:
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield line.decode(errors="replace")
            if len(rest) > LINE_BYTES_MAX:
                yield rest.decode(errors="replace")
                rest = b""
    except (anyio.ClosedResourceError, anyio.BrokenResourceError):
        pass  # closed on our side, after the process was reaped
    if rest:
        yield rest.decode(errors="replace")
