"""A stack that is started while its command is told to end."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kvairlock.drills.stack import Keys, running
from kvairlock.wire.keys import Keyring
from kvairlock.wire.pseudonyms import Pseudonyms


class ToldToEnd(Exception):
    """What a command that is told to end raises."""


def test_a_signal_in_the_middle_of_a_start_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))
        signal.raise_signal(signal.SIGTERM)  # before anybody else knows of the process
        return started[-1]

    def end(number: int, _: FrameType | None) -> None:
        raise ToldToEnd

    monkeypatch.setattr(subprocess, "Popen", start)
    before = signal.signal(signal.SIGTERM, end)
    pseudonyms = Pseudonyms(bytes(32), days=90)
    keys = Keys(tmp_path / "keys.toml", tmp_path / "cluster.key", Keyring({}), pseudonyms, {})
    try:
        with pytest.raises(ToldToEnd), running("", keys, tmp_path / "stack"):
            raise AssertionError("it was told to end before it served")
        assert signal.getsignal(signal.SIGTERM) is end
    finally:
        signal.signal(signal.SIGTERM, before)
    (process,) = started
    assert process.returncode is not None, "it was stopped and waited for"
