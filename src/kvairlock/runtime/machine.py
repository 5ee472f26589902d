"""How much memory this process may still take: of the machine, and of its control groups.

A container's limit is not in /proc/meminfo: each control group from the process's own up to the
root has a limit and a use of its own. Cached files that nobody used lately count as free, as in
MemAvailable. Versions 1 and 2 of control groups say the same under other names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KIB = 1024
ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class _Files:
    """Where one version of control groups is mounted, and what its files are called."""

    mounted: str
    limit: str
    use: str
    cached: str


_V1 = _Files(
    "sys/fs/cgroup/memory",
    limit="memory.limit_in_bytes",
    use="memory.usage_in_bytes",
    cached="total_inactive_file",
)
_V2 = _Files("sys/fs/cgroup", limit="memory.max", use="memory.current", cached="inactive_file")


def memory_free_bytes(root: Path = ROOT) -> int:
    """Return how many bytes can be taken before the system swaps, or kills.

    Args:
        root: Where /proc and /sys are found.
    """
    machine = _numbers(root / "proc/meminfo")["MemAvailable:"] * KIB
    return max(0, min([machine, *_left_in_groups(root)]))


def _left_in_groups(root: Path) -> Iterator[int]:
    """Yield what each control group with a limit has left, in bytes."""
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, name = line.split(":", 2)
        if not controllers:
            yield from _left(root, _V2, name)
        elif "memory" in controllers.split(","):
            yield from _left(root, _V1, name)


def _left(root: Path, files: _Files, name: str) -> Iterator[int]:
    mounted = root / files.mounted
    own = mounted / name.strip("/")
    for group in (own, *own.parents):
        # Inside a container the group's own name may not be there, only the root that is mounted.
        if not group.is_relative_to(mounted) or not (group / files.limit).exists():
            continue
        limit = (group / files.limit).read_text().strip()
        if limit != "max":
            cached = _numbers(group / "memory.stat")[files.cached]
            yield int(limit) - int((group / files.use).read_text()) + cached


def _numbers(path: Path) -> dict[str, int]:
    """Return the lines `NAME NUMBER ...` of a file."""
    words = (line.split() for line in path.read_text().splitlines())
    return {line[0]: int(line[1]) for line in words if len(line) > 1}
