import os
import subprocess
import sys

import numpy as np
import pytest

from kvairlock.runtime import threads

MEASURE = """
import numpy
from kvairlock.runtime import threads
with threads.limit_blas({asked}, {processes}):
    print(threads.blas_threads())
"""


def cores(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)))


@pytest.mark.parametrize(
    ("asked", "processes", "expected"),
    [(0, 2, 4), (0, 3, 2), (0, 8, 1), (0, 9, 1), (5, 2, 5), (12, 1, 12)],
)
def test_cores_are_divided_unless_a_number_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: int, processes: int, expected: int
) -> None:
    cores(monkeypatch, 8)
    assert threads.share(asked, processes) == expected


def test_a_limit_holds_until_its_context_ends() -> None:
    np.ones((2, 2)) @ np.ones((2, 2))  # the library is loaded
    before = threads.blas_threads()
    with threads.limit_blas(3, 1):
        assert threads.blas_threads() == 3
        with threads.limit_blas(1, 1):
            assert threads.blas_threads() == 1
        assert threads.blas_threads() == 3
    assert threads.blas_threads() == before


@pytest.mark.parametrize(
    ("environment", "asked", "expected"), [("1", 0, 1), ("1", 2, 2), ("64", 0, None)]
)
def test_the_environment_bounds_a_share_but_not_what_was_asked_for(
    environment: str, asked: int, expected: int | None
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(asked=asked, processes=1)],
        env={**os.environ, "OPENBLAS_NUM_THREADS": environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == (expected or len(os.sched_getaffinity(0)))
