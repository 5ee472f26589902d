import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvairlock.cli import main
from kvairlock.engine.store import PUBLISHED

from .index import TINY, Index, serving

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Ran]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without any state."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("KVAIRLOCK_CLUSTER_KEY", "KVAIRLOCK_EVIDENCE_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    return tmp_path


@pytest.fixture
def kvairlock(home: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command line in this process."""

    def run(*arguments: str | Path) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        code = ended.value.code
        return Ran(code if isinstance(code, int) else 0, said.out, said.err)

    return run


@pytest.fixture
def index(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """An index that the clients use, and a home in which nothing was fetched."""
    for name in [n for n in os.environ if n.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setitem(PUBLISHED, TINY.name, TINY)
    monkeypatch.setenv("FAKE_PUBLISHED", msgspec.json.encode(TINY).decode())
    with serving() as served:
        monkeypatch.setenv("PIP_INDEX_URL", served.url)
        monkeypatch.setenv("UV_DEFAULT_INDEX", served.url)
        yield served


class Served:
    """`kvairlock serve` as a process, with fake processes behind it."""

    def __init__(self, home: Path, plan: Mapping[str, str], arguments: tuple[str, ...]) -> None:
        self.journal_file = home / "journal"
        self.ready_file = home / "ready.json"
        command = (sys.executable, HERE / "fake_serve.py", "serve")
        self.process = subprocess.Popen(
            [*command, "--ready-file", self.ready_file, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "FAKE_PLAN": json.dumps(plan),
                "FAKE_JOURNAL": str(self.journal_file),
            },
        )
        self.said: list[str] = []

    def until(self, words: str) -> str:
        """Read what it says up to a line with these words."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if words in line:
                return line
        raise AssertionError(f"it ended without saying {words!r}:\n{''.join(self.said)}")

    def ended(self) -> tuple[int, str]:
        """Wait for its end; return its exit status and all that it said."""
        rest, _ = self.process.communicate()
        self.said.append(rest)
        return self.process.returncode, "".join(self.said)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send its process group a signal, as Ctrl-C does, and wait for its end."""
        os.killpg(self.process.pid, number)
        return self.ended()

    @property
    def ready(self) -> Any:
        return json.loads(self.ready_file.read_text())

    @property
    def journal(self) -> list[tuple[str, str]]:
        """What the fake processes did: name and event."""
        return [(words[0], words[1]) for words in self._lines()]

    @property
    def pids(self) -> set[int]:
        """All processes that were ever started."""
        return {int(words[2]) for words in self._lines()}

    def _lines(self) -> list[list[str]]:
        if not self.journal_file.exists():
            return []
        return [line.split() for line in self.journal_file.read_text().splitlines()]


Serve = Callable[..., Served]


@pytest.fixture
def serve(home: Path) -> Iterator[Serve]:
    """Starts `kvairlock serve`; whatever still runs at the end is killed."""
    started: list[Served] = []

    def start(*arguments: str | Path, **plan: str) -> Served:
        faults = {name.replace("_", "-"): fault for name, fault in plan.items()}
        started.append(Served(home, faults, tuple(str(a) for a in arguments)))
        return started[-1]

    yield start
    for served in started:
        if served.process.poll() is None:
            served.process.kill()
            served.process.wait()
        if served.process.stdout is not None:
            served.process.stdout.close()
        if served.ready_file.exists():  # it was killed, and could not clean up
            shutil.rmtree(served.ready["run"], ignore_errors=True)
