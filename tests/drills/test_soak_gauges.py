from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvairlock.drills.gauges import Gauges, Memory
from kvairlock.drills.stack import DrillFailed


def test_an_open_file_shows(tmp_path: Path) -> None:
    gauges = Gauges({"me": os.getpid()})
    before = gauges.descriptors()
    with (tmp_path / "file").open("w"):
        assert gauges.descriptors() == {"me": before["me"] + 1}
    assert gauges.descriptors() == before


def test_memory_that_is_touched_shows() -> None:
    gauges = Gauges({"me": os.getpid()})
    gauges.sample_memory()
    held = b"x" * (64 << 20)
    gauges.sample_memory()
    first, last = gauges.memory["me"].mib
    assert last - first == pytest.approx(64, abs=8)
    assert len(held) == 64 << 20


@pytest.mark.parametrize("is_reaped", [True, False])
def test_a_process_that_has_ended_is_named(is_reaped: bool) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    if is_reaped:
        child.wait()
    with pytest.raises(DrillFailed, match="decode-0"):
        Gauges({"decode-0": child.pid}).sample_memory()
    child.wait()


@pytest.mark.parametrize(
    ("mib", "growth", "bounded"),
    [
        ([50.0, 60.0, 76.0], 16.0, True),
        ([50.0, 60.0, 76.5], 16.5, False),
        ([10.0, 90.0, 90.0, 91.0], 1.0, True),
        ([10.0, 400.0, 440.0], 40.0, True),
        ([10.0, 400.0, 441.0], 41.0, False),
        ([10.0, 400.0, 300.0], -100.0, True),
    ],
)
def test_memory_may_grow_by_16_mib_or_a_tenth_in_the_second_half(
    mib: list[float], growth: float, bounded: bool
) -> None:
    assert Memory(mib).growth_mib == growth
    assert Memory(mib).is_bounded is bounded
