"""What lies in the slots of a running node: its pool is a shared file under policy direct.

No answer shows what is behind a prompt, since nothing reads there before it is written. So a drill
looks at the bytes themselves, through the node's open files, which belong to the same user.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kvairlock.drills.stack import DrillFailed
from kvairlock.engine.cache import PagedCache
from kvairlock.engine.layout import Layout
from kvairlock.engine.model import load

MODEL, PAGE_TOKENS, POOL = "recall", 16, "kvairlock-pool"


def tail_is_foreign(pid: int, mine: Sequence[int], other: Sequence[int], tokens: int) -> bool:
    """Return whether another request's slots lie behind a prompt, in its last page.

    Args:
        pid: A decode node that serves the canary model under policy direct.
        mine: The request's pages, in token order.
        other: The other request's pages; its first is compared.
        tokens: Length of the prompt; its last page is not full.

    Raises:
        DrillFailed: The process has no pool that others can map.
    """
    layout = load(MODEL).layout(PAGE_TOKENS)
    cache = PagedCache(_pool(pid, layout), layout)
    page, used = mine[tokens // PAGE_TOKENS], tokens % PAGE_TOKENS
    behind = [cache.values(n)[page, used:] for n in range(len(layout.layers))]
    theirs = [cache.values(n)[other[0], used:] for n in range(len(layout.layers))]
    return all(np.array_equal(a, b) and a.any() for a, b in zip(behind, theirs, strict=True))


def _pool(pid: int, layout: Layout) -> NDArray[np.uint8]:
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            if POOL in str(file.readlink()):
                return np.memmap(file, dtype=np.uint8, mode="r").reshape(-1, layout.page_bytes)
    raise DrillFailed(f"process {pid} has no shared pool")
