"""A stack of real processes for a drill: started by the command line, watched through its files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from kvairlock.core.errors import KvairlockError
from kvairlock.runtime.evidence_settings import EvidenceSettings
from kvairlock.runtime.secrets import EVIDENCE_VARIABLE, VARIABLE, new_key, write_private
from kvairlock.wire.keys import Keyring
from kvairlock.wire.pseudonyms import Pseudonyms

WAIT_S = 30.0
LOOK_S = 0.01
ENDS = (signal.SIGINT, signal.SIGTERM)
"""What tells a command to end."""

Found = TypeVar("Found")


class DrillFailed(KvairlockError):
    """A drill could not be carried out; that is not the same as a leak."""

    code = "drill_failed"


def wait_for(what: str, look: Callable[[], Found | None], within_s: float = WAIT_S) -> Found:
    """Look until something is there.

    Args:
        what: For the error message.
        look: Returns what it found, or None.
        within_s: How long to look.

    Raises:
        DrillFailed: It did not appear.
    """
    until = time.monotonic() + within_s
    while True:
        found = look()
        if found is not None:
            return found
        if time.monotonic() > until:
            raise DrillFailed(f"waited {within_s:.0f} s for {what}")
        time.sleep(LOOK_S)


@dataclass(frozen=True, slots=True)
class Keys:
    """The API keys of a drill's tenants, the cluster's keys, and the evidence key.

    Args:
        file: The gateway's key file.
        cluster: The cluster key file.
        ring: The cluster's keys.
        pseudonyms: The evidence key.
        of: Key of each tenant.
    """

    file: Path
    cluster: Path
    ring: Keyring
    pseudonyms: Pseudonyms
    of: Mapping[str, str]


def make_keys(folder: Path, tenants: Iterable[str], scope: str = "none") -> Keys:
    """Make keys for a drill; its tenants are operators too, since they steer the drill.

    Args:
        folder: Where the files go.
        tenants: Names of the tenants; the first one's key opens the operator's endpoints.
        scope: With whom they share prefixes.
    """
    cluster, line = folder / "cluster.key", new_key("drill")
    write_private(cluster, line)
    pseudonyms = Pseudonyms.fresh(int(time.time()), EvidenceSettings().retention_days)
    keys = Keys(folder / "keys.toml", cluster, Keyring.parse(line), pseudonyms, {})
    return _with_tenants(keys, tenants, "--operator", "--scope", scope)


def with_clients(keys: Keys, tenants: Iterable[str]) -> Keys:
    """Return a drill's keys with those of tenants who steer nothing, and share with themselves."""
    return _with_tenants(keys, tenants, "--scope", "private")


def _with_tenants(keys: Keys, tenants: Iterable[str], *options: str) -> Keys:
    file = ("--keys", str(keys.file))
    made = {name: _command("keys", "add", name, *options, *file).strip() for name in tenants}
    return replace(keys, of={**keys.of, **made})


def _command(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kvairlock", *words],
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
    )
    if done.returncode:
        raise DrillFailed(f"kvairlock {words[0]} {words[1]}: {done.stderr.strip()}")
    return done.stdout


@contextmanager
def workplace(keep: Path | None) -> Iterator[Path]:
    """The folder of a drill: `keep`, which is made, or one that is gone in the end."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    path = Path(tempfile.mkdtemp(prefix="kvairlock-drill-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _environment() -> dict[str, str]:
    """A drill has keys of its own, whatever the user's are."""
    own = (VARIABLE, EVIDENCE_VARIABLE)
    return {name: value for name, value in os.environ.items() if name not in own}


@dataclass(frozen=True, slots=True)
class Running:
    """A stack that serves.

    Args:
        url: The gateway.
        evidence: Folder of the evidence.
        pids: Process of each node, in its first life.
        log: What the processes said.
        ready: What the stack says of itself, anew whenever all processes are ready again.
    """

    url: str
    evidence: Path
    pids: Mapping[str, int]
    log: Path
    ready: Path

    def lives(self) -> Mapping[str, str]:
        """Return the incarnation of each process, as it was when all were last ready."""
        lives: Mapping[str, str] = self._facts()["incarnations"]
        return lives

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the present life of a process."""
        os.kill(self._facts()["pids"][name], number)

    def _facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self.ready.read_text())
        return facts

    def pause(self, name: str) -> None:
        """Stop a process where it is (SIGSTOP)."""
        os.kill(self.pids[name], signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a stopped process go on (SIGCONT)."""
        os.kill(self.pids[name], signal.SIGCONT)


@contextmanager
def running(settings: str, keys: Keys, folder: Path) -> Iterator[Running]:
    """Start a stack, and stop it at the end whatever happened.

    Args:
        settings: TOML of the stack.
        keys: The drill's keys.
        folder: Where settings, log and evidence go.

    Raises:
        DrillFailed: It did not start; the message ends with what it said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config, ready, log = folder / "stack.toml", folder / "ready.json", folder / "stack.log"
    config.write_text(settings)
    write_private(folder / "evidence.key", keys.pseudonyms.text())
    ready.unlink(missing_ok=True)
    words = ["serve", "--config", str(config), "--port", "0", "--keys", str(keys.file)]
    words += ["--cluster-key", str(keys.cluster), "--state", str(folder)]
    words += ["--evidence", str(folder / "evidence"), "--ready-file", str(ready)]
    process: subprocess.Popen[bytes] | None = None
    try:
        with log.open("w") as said, _undisturbed():
            process = subprocess.Popen(
                [sys.executable, "-m", "kvairlock", *words],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                env=_environment(),
            )
        serving = process
        wait_for("the stack to start", lambda: _is_up(serving, ready, log))
        facts = json.loads(ready.read_text())
        yield Running(facts["url"], Path(facts["evidence"]), facts["pids"], log, ready)
    finally:
        if process is not None:
            _stop(process)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Who tells this process to end meanwhile is heard afterwards.

    A signal in the middle of a start would leave a process that nobody knows and nobody stops. The
    child is not affected: what is handled here has its default there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled in the main thread only
        return
    heard: list[int] = []
    before = {end: signal.signal(end, lambda number, _: heard.append(number)) for end in ENDS}
    try:
        yield
    finally:
        for end, handler in before.items():
            signal.signal(end, handler)
        for number in heard:
            signal.raise_signal(number)


def _is_up(process: subprocess.Popen[bytes], ready: Path, log: Path) -> bool | None:
    if process.poll() is not None:
        raise DrillFailed(f"the stack did not start:\n{log.read_text()[-2000:]}")
    return True if ready.exists() else None


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
