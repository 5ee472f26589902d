from collections.abc import Callable
from pathlib import Path

import pytest

from kvairlock.runtime.machine import memory_free_bytes

MIB = 1024 * 1024
Group = Callable[..., None]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with 1000 MiB available, and no control groups."""
    (tmp_path / "proc/self").mkdir(parents=True)
    available = f"MemTotal:  99999999 kB\nMemAvailable:  {1000 * 1024} kB\nHugePages_Free:  0\n"
    (tmp_path / "proc/meminfo").write_text(available)
    (tmp_path / "proc/self/cgroup").write_text("")
    return tmp_path


def join(root: Path, *lines: str) -> None:
    """Say which control groups the process is in."""
    (root / "proc/self/cgroup").write_text("".join(f"{line}\n" for line in lines))


def v2(root: Path, name: str, limit_mib: int | None, used_mib: int, cached_mib: int = 0) -> None:
    """Make a control group of version 2."""
    group = root / "sys/fs/cgroup" / name
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.max").write_text("max\n" if limit_mib is None else f"{limit_mib * MIB}\n")
    (group / "memory.current").write_text(f"{used_mib * MIB}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {cached_mib * MIB}\n")


def v1(root: Path, name: str, limit_bytes: int, used_mib: int, cached_mib: int) -> None:
    """Make a control group of version 1."""
    group = root / "sys/fs/cgroup/memory" / name
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.limit_in_bytes").write_text(f"{limit_bytes}\n")
    (group / "memory.usage_in_bytes").write_text(f"{used_mib * MIB}\n")
    (group / "memory.stat").write_text(f"cache 1\ntotal_inactive_file {cached_mib * MIB}\n")


def test_without_limits_it_is_what_the_machine_has_available(root: Path) -> None:
    assert memory_free_bytes(root) == 1000 * MIB


def test_a_group_lends_what_it_has_left_and_could_drop(root: Path) -> None:
    join(root, "0::/app")
    v2(root, "app", limit_mib=500, used_mib=300, cached_mib=50)
    assert memory_free_bytes(root) == 250 * MIB


def test_the_group_with_the_least_left_decides(root: Path) -> None:
    join(root, "0::/outer/inner")
    v2(root, "outer/inner", limit_mib=None, used_mib=10)
    v2(root, "outer", limit_mib=400, used_mib=100)
    assert memory_free_bytes(root) == 300 * MIB
    v2(root, "outer/inner", limit_mib=200, used_mib=10)
    assert memory_free_bytes(root) == 190 * MIB
    v2(root, "outer/inner", limit_mib=5000, used_mib=10)
    v2(root, "outer", limit_mib=5000, used_mib=10)
    assert memory_free_bytes(root) == 1000 * MIB


def test_in_a_container_only_the_mounted_group_may_be_there(root: Path) -> None:
    join(root, "0::/docker/0123")
    v2(root, "", limit_mib=300, used_mib=100)
    assert memory_free_bytes(root) == 200 * MIB


def test_version_1_counts_too(root: Path) -> None:
    join(root, "5:cpu,cpuacct:/app", "4:memory:/app", "0::/")
    v1(root, "", limit_bytes=9223372036854771712, used_mib=700, cached_mib=0)
    v1(root, "app", limit_bytes=600 * MIB, used_mib=500, cached_mib=20)
    assert memory_free_bytes(root) == 120 * MIB


def test_a_group_over_its_limit_has_nothing_left(root: Path) -> None:
    join(root, "0::/app")
    v2(root, "app", limit_mib=100, used_mib=150)
    assert memory_free_bytes(root) == 0


def test_this_machine_can_be_measured() -> None:
    assert memory_free_bytes() > MIB
