"""How many threads the linear algebra of a process uses.

Every process would take all cores if nobody told it: the nodes of a stack would then wait for each
other's threads instead of computing.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]

BLAS = "blas"


def share(asked: int, processes: int) -> int:
    """Return how many threads one of several computing processes of this machine should use.

    Args:
        asked: What the settings say; 0 divides the cores that this process may run on.
        processes: How many processes compute.
    """
    cores = len(os.sched_getaffinity(0))
    return asked or max(1, cores // processes)


def limit_blas(asked: int, processes: int) -> AbstractContextManager[object]:
    """Limit the threads of the BLAS that numpy has loaded, from now to the end of the context.

    Where nothing was asked for, the number that the library started with stays a bound, so that
    OPENBLAS_NUM_THREADS and its like lower the share. A number that was asked for wins.

    Args:
        asked: As in `share`.
        processes: As in `share`.
    """
    threads = share(asked, processes)
    if not asked:
        threads = min([threads, *(pool["num_threads"] for pool in _pools())])
    limited: AbstractContextManager[object] = threadpool_limits(limits=threads, user_api=BLAS)
    return limited


def blas_threads() -> int:
    """Return how many threads the linear algebra of this process may use now; 1 without a BLAS."""
    return max((pool["num_threads"] for pool in _pools()), default=1)


def _pools() -> list[dict[str, Any]]:
    pools: list[dict[str, Any]] = threadpool_info()
    return [pool for pool in pools if pool["user_api"] == BLAS]
