import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import pytest

from kvairlock.cli.child import ChildSpec, Ready, StartFailed, how_ended
from kvairlock.cli.supervisor import Outcome, Plan, Stage, Times, supervise

pytestmark = pytest.mark.timeout(60)

FAKE = Path(__file__).with_name("fake_process.py")
LONG_MS = 600_000  # longer than any test may take
HELLO = """
import json, os, sys
hello = {"ready": "a", "role": "decode", "pid": os.getpid(), "incarnation": "i"}
print(json.dumps(hello), flush=True)
"""


class Watcher:
    """A view that keeps what it is told, and does something on the way."""

    def __init__(self, react: Callable[[str, Stage], None] = lambda name, stage: None) -> None:
        self.moves: list[tuple[str, Stage, str]] = []
        self.lines: list[str] = []
        self._react = react

    def moved(self, name: str, stage: Stage, detail: str) -> None:
        self.moves.append((name, stage, detail))
        self._react(name, stage)

    def logged(self, name: str, line: str) -> None:
        self.lines.append(line)

    def details(self, stage: Stage) -> list[str]:
        return [detail for _, moved, detail in self.moves if moved is stage]


def script(name: str, code: str) -> ChildSpec:
    return ChildSpec(name, (sys.executable, "-S", "-c", code), dict(os.environ))


def term() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_the_back_off_doubles_up_to_its_bound() -> None:
    watcher = Watcher(
        lambda _, stage: term() if len(watcher.details(Stage.WAITING)) == 5 else None,
    )
    times = Times(LONG_MS, backoff_ms_min=1, backoff_ms_max=6, steady_ms=LONG_MS)
    dies = script("a", HELLO + "sys.exit(3)")
    outcome = anyio.run(supervise, Plan([[dies]], times, True, watcher, lambda ready: None))
    assert outcome is Outcome.STOPPED
    assert watcher.details(Stage.WAITING) == [f"starts again in {n} ms" for n in (1, 2, 4, 6, 6)]
    assert all(detail.startswith("exit status 3") for detail in watcher.details(Stage.ENDED))


def test_a_long_life_starts_the_back_off_afresh() -> None:
    watcher = Watcher(
        lambda _, stage: term() if len(watcher.details(Stage.WAITING)) == 3 else None,
    )
    times = Times(LONG_MS, backoff_ms_min=1, backoff_ms_max=6, steady_ms=0)
    dies = script("a", HELLO + "sys.exit(3)")
    anyio.run(supervise, Plan([[dies]], times, True, watcher, lambda ready: None))
    assert watcher.details(Stage.WAITING) == ["starts again in 1 ms"] * 3


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace() -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + HELLO
    watcher = Watcher(lambda _, stage: None)
    plan = Plan(
        [[script("a", deaf + "sys.stdin.read()")]],
        Times(LONG_MS, grace_ms=50),
        True,
        watcher,
        lambda ready: term(),
    )
    anyio.run(supervise, plan)
    assert watcher.details(Stage.STOPPED) == ["SIGKILL"]


def test_a_second_signal_kills_at_once() -> None:
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + HELLO
    watcher = Watcher(lambda _, stage: term() if stage is Stage.STOPPING else None)
    plan = Plan(
        [[script("a", deaf + "sys.stdin.read()")]],
        Times(LONG_MS, grace_ms=LONG_MS),
        True,
        watcher,
        lambda ready: term(),
    )
    anyio.run(supervise, plan)
    assert watcher.details(Stage.STOPPED) == ["SIGKILL"]


def test_a_stopped_process_is_still_ended_and_reaped() -> None:
    watcher = Watcher()

    pids: list[int] = []

    def freeze(ready: Mapping[str, Ready]) -> None:
        pids.append(ready["a"].pid)
        os.kill(pids[0], signal.SIGSTOP)
        # It stops some time after that; a SIGTERM that is quicker would still end it.
        os.waitid(os.P_PID, pids[0], os.WSTOPPED | os.WNOWAIT)
        term()

    plan = Plan(
        [[script("a", HELLO + "sys.stdin.read()")]],
        Times(LONG_MS, grace_ms=50),
        True,
        watcher,
        freeze,
    )
    anyio.run(supervise, plan)
    assert watcher.details(Stage.STOPPED) == ["SIGKILL"]
    assert not Path(f"/proc/{pids[0]}").exists()


def test_a_signal_during_the_start_stops_what_was_started() -> None:
    mute = script("b", "import sys; sys.stdin.read()")
    watcher = Watcher(lambda name, stage: term() if stage is Stage.READY else None)
    plan = Plan(
        [[script("a", HELLO + "sys.stdin.read()"), mute]],
        Times(LONG_MS),
        True,
        watcher,
        lambda ready: pytest.fail("it was never up"),
    )
    assert anyio.run(supervise, plan) is Outcome.STOPPED
    assert len(watcher.details(Stage.STOPPED)) == 2


def test_up_is_said_again_only_once_all_are_ready_again() -> None:
    told: list[set[int]] = []

    def up(ready: Mapping[str, Ready]) -> None:
        told.append({said.pid for said in ready.values()})
        if len(told) == 2:
            term()
            return
        for pid in told[0]:
            os.kill(pid, signal.SIGKILL)

    pair = [script(name, HELLO.replace('"a"', f'"{name}"') + "sys.stdin.read()") for name in "ab"]
    times = Times(LONG_MS, backoff_ms_min=300)
    anyio.run(supervise, Plan([pair], times, True, Watcher(), up))
    assert len(told[1]) == 2
    assert told[0] & told[1] == set()


def test_a_program_that_does_not_exist_is_a_failed_start() -> None:
    spec = ChildSpec("a", ("/nowhere/python",), {})
    plan = Plan([[spec]], Times(LONG_MS), True, Watcher(), lambda ready: None)
    with pytest.raises(StartFailed, match="a cannot be started: No such file or directory"):
        anyio.run(supervise, plan)


def test_only_the_ready_line_of_this_process_counts() -> None:
    noise = """
import json, os, sys
print("hello")
print(json.dumps({"ready": "b", "role": "decode", "pid": 1, "incarnation": "i"}))
print(json.dumps({"ready": "a", "role": "butcher", "pid": 1, "incarnation": "i"}))
print("x" * 200_000)
"""
    watcher = Watcher()
    plan = Plan(
        [[script("a", noise + HELLO + "sys.stdin.read()")]],
        Times(LONG_MS),
        True,
        watcher,
        lambda ready: term(),
    )
    anyio.run(supervise, plan)
    assert watcher.lines[0] == "hello"
    assert len(watcher.lines) >= 4
    assert sum(len(line) for line in watcher.lines if set(line) == {"x"}) == 200_000
    assert len(watcher.details(Stage.READY)) == 1


@pytest.mark.parametrize(
    ("returncode", "words"),
    [(0, "exit status 0"), (2, "exit status 2"), (-9, "SIGKILL"), (-40, "signal 40")],
)
def test_exit_statuses_have_words(returncode: int, words: str) -> None:
    assert how_ended(returncode) == words
