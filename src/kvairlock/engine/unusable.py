"""Why a model file can't be served: one error for everything that is found in one.

A file is refused rather than served differently from what it means: what a module of
`kvairlock.engine.llama` doesn't know, it raises this for, and never passes over.
"""

from __future__ import annotations

from pathlib import Path

from kvairlock.core.errors import KvairlockError


class ModelUnusable(KvairlockError):
    """A model file can't be served here.

    Args:
        path: The file.
        reason: What is wrong with it and, where there is one, the way out; it continues the
            sentence "FILE can't be served: ".
    """

    code = "model_unusable"

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} can't be served: {reason}")
