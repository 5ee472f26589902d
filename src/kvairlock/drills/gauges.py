"""What processes hold, read from outside: descriptors and resident memory, over a soak."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kvairlock.drills.stack import DrillFailed

Figure = TypeVar("Figure", int, float)

PROC = Path("/proc")
GROWTH_MIB_MAX = 16.0
GROWTH_SHARE_MAX = 0.10
KIB_PER_MIB = 1024


def descriptors(pid: int) -> int:
    """Return how many files a process has open. Raises OSError if it has ended."""
    return len(list((PROC / str(pid) / "fd").iterdir()))


def resident_mib(pid: int) -> float:
    """Return how much memory of a process is resident, in MiB. Raises OSError if it has ended."""
    lines = (PROC / str(pid) / "status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    if "VmRSS" not in fields:  # a process that has ended and was not reaped yet
        raise ProcessLookupError(pid)
    return int(fields["VmRSS"].split()[0]) / KIB_PER_MIB


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Open files of one process, both times with no request open.

    Args:
        before: After the warm-up.
        after: After the soak.
    """

    before: int
    after: int


@dataclass(slots=True)
class Memory:
    """Resident memory of one process.

    Args:
        mib: Samples since the warm-up, at equal numbers of requests.
    """

    mib: list[float] = field(default_factory=list)

    @property
    def growth_mib(self) -> float:
        """How much it grew in the second half of the soak, when nothing is new to it any more."""
        return self.mib[-1] - self.mib[len(self.mib) // 2]

    @property
    def is_bounded(self) -> bool:
        """Whether that is within what allocators and caches of fixed size account for."""
        allowed = max(GROWTH_MIB_MAX, GROWTH_SHARE_MAX * self.mib[len(self.mib) // 2])
        return self.growth_mib <= allowed


class Gauges:
    """Watches the processes of one stack.

    Args:
        pids: Processes by name.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self.memory = {name: Memory() for name in pids}

    def sample_memory(self) -> None:
        """Take one sample of each process. Raises DrillFailed if one has ended."""
        for name, mib in self._each(resident_mib).items():
            self.memory[name].mib.append(round(mib, 1))

    def descriptors(self) -> dict[str, int]:
        """Return how many files each process has open. Raises DrillFailed if one has ended."""
        return self._each(descriptors)

    def _each(self, read: Callable[[int], Figure]) -> dict[str, Figure]:
        figures = {}
        for name, pid in self._pids.items():
            try:
                figures[name] = read(pid)
            except OSError:
                raise DrillFailed(f"{name} (pid {pid}) has ended") from None
        return figures
