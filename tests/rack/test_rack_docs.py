"""The example in docs/rack.md runs as it is written, and fails where it is broken."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvairlock.transport.contract_pool import PoolContract
from tests.rack.broken import promises

PAGE = Path(__file__).parents[2] / "docs" / "rack.md"
EXAMPLE = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def outcome(folder: Path, text: str) -> tuple[int, int]:
    """Run the example in a process of its own; return how many tests passed and failed."""
    path = folder / "test_array_pool.py"
    path.write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path.name]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed)", ran.stdout)}
    assert counts, ran.stdout + ran.stderr
    return counts.get("passed", 0), counts.get("failed", 0)


def test_the_example_passes(tmp_path: Path) -> None:
    assert len(EXAMPLE) == 1
    assert outcome(tmp_path, EXAMPLE[0]) == (len(promises(PoolContract)), 0)
    assert f"{len(promises(PoolContract))} passed" in PAGE.read_text()


@pytest.mark.parametrize(
    ("line", "failed"),
    [
        ("        self.array[pages] = 0\n", 4),
        ('            raise PagesInvalid(f"no pages of this pool: {pages}")\n', 1),
    ],
)
def test_the_example_without_a_line_fails(tmp_path: Path, line: str, failed: int) -> None:
    assert line in EXAMPLE[0]
    broken = EXAMPLE[0].replace(line, line[: len(line) - len(line.lstrip())] + "pass\n")
    assert outcome(tmp_path, broken) == (len(promises(PoolContract)) - failed, failed)
