"""What contract suites assert with: they need no test runner, so that any can run them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def refused(kind: type[Exception], call: Callable[[], object]) -> None:
    """Make a call that has to be refused.

    Args:
        kind: The error that it must raise.
        call: What is tried.

    Raises:
        AssertionError: It was not refused.
    """
    try:
        result = call()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was expected, got {result!r}")


def held() -> tuple[int, int]:
    """Return how many descriptors this process has, and how many mappings of memory files."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    files = sum("memfd:" in line for line in maps)
    return len(list(Path("/proc/self/fd").iterdir())), files
