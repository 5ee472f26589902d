"""A stack whose processes are of different releases, each started by hand as a supervisor would.

`kvairlock serve` starts processes of its own release only. Here each name has a seat, in which one
process after another can be put; settings are written in the words of the release that reads them.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvairlock.drills.canaries import Canaries
from kvairlock.drills.client import GatewayClient
from kvairlock.drills.records import Records
from kvairlock.drills.stack import DrillFailed, Keys, wait_for
from kvairlock.drills.versions.release import Release
from kvairlock.drills.versions.table import GATEWAY, Build, Seat
from kvairlock.wire.pseudonyms import Pseudonyms

CONTEXT_TOKENS = 640
"""What is published; both pools hold more."""
PREFILL_PAGES, DECODE_PAGES, PAGE_TOKENS = 48, 64, 16
SEED = 2031
START_MS = 4_000
"""How long a gateway of 0.1.0 waits for a route that never comes up, before it says it is ready."""
STOP_S = 20.0


class Started:
    """One process in its seat.

    Args:
        name: Its name in the stack.
        argv: The program and its options.
        environment: Its environment.
        folder: Where it says what it has to say.
    """

    def __init__(
        self, name: str, argv: Collection[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        self._name = name
        self._said, self._log = folder / f"{name}.out", folder / f"{name}.log"
        with self._said.open("wb") as said, self._log.open("ab") as log:
            # Its stdin is a pipe that nobody writes to: it ends with us, however we end.
            self._process = subprocess.Popen(
                [*argv],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=log,
                env=environment,
                cwd=folder,
            )

    def ready(self) -> Mapping[str, Any]:
        """Wait until it is ready, and return what it says of itself.

        Raises:
            DrillFailed: It has ended, or is not ready in time; the message ends with its log.
        """
        return wait_for(f"{self._name} to be ready", self._look)

    def _look(self) -> Mapping[str, Any] | None:
        for line in self._said.read_text().splitlines(keepends=True):
            if line.endswith("\n") and line.startswith("{"):
                facts: Mapping[str, Any] = json.loads(line)
                return facts
        if self._process.poll() is not None:
            log = self._log.read_text()[-1000:]
            raise DrillFailed(f"{self._name} ended before it was ready:\n{log}")
        return None

    def stop(self) -> None:
        """Ask it to end, and see that it does."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


class Mixed:
    """A stack of processes of different releases.

    Args:
        releases: What each build is started from.
        seats: What is started at first, by name.
        keys: The drill's keys.
        folder: Where settings, logs and evidence go.
        run: Where the sockets are; its path is short.
        off: Guards that are off at the gateway.
    """

    def __init__(
        self,
        releases: Mapping[Build, Release],
        seats: Mapping[str, Seat],
        keys: Keys,
        folder: Path,
        run: Path,
        off: Collection[str] = (),
    ) -> None:
        self._releases, self._keys, self._folder = releases, keys, folder
        self._seats, self._off = dict(seats), tuple(off)
        self._open: dict[str, Started] = {}
        self.run = run
        self.lives: dict[str, Release] = {}
        """Of which release each process was, by the name of its evidence."""
        self.evidence = folder / "evidence"
        self.records = Records(self.evidence, Pseudonyms.of_ring(keys.ring))
        self.canaries = Canaries(SEED)

    @property
    def seats(self) -> Mapping[str, Seat]:
        """What is in each seat now."""
        return self._seats

    def start(self) -> None:
        """Start the nodes, then the gateway, and wait until they are ready.

        Raises:
            DrillFailed: One of them does not start.
        """
        for name in self._seats:
            self._launch(name)
        facts = {name: self._ready(name) for name in self._seats}
        operator = next(iter(self._keys.of.values()))
        self.client = GatewayClient(facts[GATEWAY]["url"], self._keys.of, operator)

    def replace(self, name: str, seat: Seat) -> None:
        """Stop a node in order, and put another in its seat.

        Raises:
            DrillFailed: It does not start.
        """
        self._open.pop(name).stop()
        self._seats[name] = seat
        self._launch(name)
        self._ready(name)

    def until_up(self, *routes: str) -> None:
        """Wait until the gateway says that routes are up.

        Raises:
            DrillFailed: They do not come up.
        """

        def look() -> bool | None:
            states = self.client.status()["routes"]
            return True if all(states[route] == "up" for route in routes) else None

        wait_for(f"{', '.join(routes)} to be up", look)

    def stop(self) -> None:
        """Stop all, the gateway first."""
        for name in sorted(self._open, key=lambda name: name != GATEWAY):
            self._open.pop(name).stop()

    def _launch(self, name: str) -> None:
        seat = self._seats[name]
        release = self._releases[seat.build]
        settings = self._folder / f"settings-{name}.toml"
        settings.write_text(self._settings(name, release))
        module = "kvairlock.gateway" if name == GATEWAY else "kvairlock.node"
        argv = [*release.command(module, seat.speaks), "--settings", str(settings)]
        argv += ["--run", str(self.run), "--evidence", str(self.evidence)]
        argv += ["--cluster-key", str(self._keys.cluster)]
        if name == GATEWAY:
            argv += ["--keys", str(self._keys.file), *release.gateway_options(self._folder)]
        else:
            argv += ["--name", name]
        self._open[name] = Started(name, argv, release.environment, self._folder)

    def _ready(self, name: str) -> Mapping[str, Any]:
        facts = self._open[name].ready()
        life = f"{name}-{facts['incarnation']}"
        self.lives[life] = self._releases[self._seats[name].build]
        return facts

    def _settings(self, name: str, release: Release) -> str:
        off = ", ".join(f'"{guard}"' for guard in self._off) if name == GATEWAY else ""
        nodes = "".join(_node(node) for node in self._seats if node != GATEWAY)
        return f"""
{release.front(CONTEXT_TOKENS)}
{nodes}[limits]
beat_ms = 50
start_ms = {START_MS}

[drill]
enabled = true
guards_off = [{off}]
"""


def _node(name: str) -> str:
    if name.startswith("prefill"):
        return f'[[prefill]]\nname = "{name}"\npages = {PREFILL_PAGES}\n\n'
    return f'[[decode]]\nname = "{name}"\npages = {DECODE_PAGES}\ntenant_share = 1.0\n\n'


@contextmanager
def mixed(
    releases: Mapping[Build, Release],
    seats: Mapping[str, Seat],
    keys: Keys,
    folder: Path,
    off: Collection[str] = (),
) -> Iterator[Mixed]:
    """Start a stack, and stop it at the end whatever happened.

    Args:
        releases: What each build is started from.
        seats: What is started, by name.
        keys: The drill's keys.
        folder: Where settings, logs and evidence go.
        off: Guards that are off at the gateway.

    Raises:
        DrillFailed: It does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Paths of unix sockets are short, and those of kept folders may not be.
    with tempfile.TemporaryDirectory(prefix="kvairlock-") as run:
        stack = Mixed(releases, seats, keys, folder, Path(run), off)
        try:
            stack.start()
            yield stack
        finally:
            stack.stop()
