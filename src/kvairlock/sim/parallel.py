"""Work on all cores: each task is a process's own, and is named by something small."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def spread(work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
    """Do tasks on all cores, and yield results as they come.

    Args:
        work: A function of a module.
        tasks: What it is called with, one after the other.
    """
    if len(tasks) == 1:
        yield work(tasks[0])
        return
    with ProcessPoolExecutor(min(cores(), len(tasks)), get_context("spawn")) as pool:
        for done in as_completed([pool.submit(work, task) for task in tasks]):
            yield done.result()
