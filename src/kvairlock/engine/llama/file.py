"""What a GGUF file says: its metadata, and where its tensors lie.

    | magic, version, counts | metadata: key, kind, value | tensors: name, shape, kind, offset |
    | data of the tensors, each at its offset                                                  |

The head is read here rather than by the package `gguf`, whose reader makes an array of each of the
100 thousand strings of a vocabulary: that takes seconds, here it takes a tenth of one, and that is
all that a gateway needs of the file. Each length is checked against the file, so a torn one is
refused, and against what a head can have, so that one that lies takes neither time nor memory. Data
stays in the file until somebody asks for it.
"""

from __future__ import annotations

import hashlib
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kvairlock.engine.unusable import ModelUnusable

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
DIMENSIONS_MAX = 4
# What a head can have. The largest that are known have 20 MiB, 1.4 million words and merges, and
# 1,200 tensors.
HEAD_BYTES_MAX = 64 << 20
ELEMENTS_MAX = 1 << 21
ENTRIES_MAX = 1 << 16

STRING, ARRAY = 8, 9
# Kinds of metadata values, as `struct` spells them.
SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip

Scalar = bool | int | float | str
Value = Scalar | list[Scalar]
Kind = TypeVar("Kind", bool, int, float, str)


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where one tensor lies in the file.

    Args:
        shape: Rows first, as numpy has it; the file has it the other way round.
        kind: The number of its number format, see `gguf.GGMLQuantizationType`.
        offset: Its first byte in the file.
    """

    shape: tuple[int, ...]
    kind: int
    offset: int


class GgufFile:
    """A GGUF file whose head has been read.

    Args:
        path: The file.

    Raises:
        ModelUnusable: When it can't be opened, is no GGUF file, or ends too early.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._content = _map(path)
        try:
            self.metadata, self.tensors = _read_head(_Cursor(self._content))
        except EOFError:
            raise self.unusable("it ends within its head; fetch it again") from None
        except ValueError as error:
            raise self.unusable(str(error)) from None

    def unusable(self, reason: str) -> ModelUnusable:
        """The error that refuses this file, to be raised by whoever found the reason."""
        return ModelUnusable(self.path, reason)

    def data(self, entry: TensorEntry, size_bytes: int) -> memoryview:
        """The bytes of one tensor, in place.

        Raises:
            ModelUnusable: When the file ends before they do.
        """
        end = entry.offset + size_bytes
        if end > len(self._content):
            raise self.unusable(
                f"it is torn: a tensor ends at byte {end} and the file at {len(self._content)}; "
                "fetch it again"
            )
        return memoryview(self._content)[entry.offset : end]

    def digest(self) -> str:
        """16 hex digits of the SHA-256 of the whole file."""
        return hashlib.sha256(self._content).hexdigest()[:16]

    def value(self, key: str, kind: type[Kind], default: Kind | None = None) -> Kind:
        """One value of the metadata.

        Args:
            key: Its name.
            kind: What it must be; numbers are not converted into one another.
            default: What holds if the file doesn't say.

        Raises:
            ModelUnusable: When it is missing and has no default, or is of another kind.
        """
        value = self.metadata.get(key, default)
        if value is None:
            raise self.unusable(f"it lacks {key}")
        if type(value) is not kind:
            raise self.unusable(f"its {key} is {_shown(value)}, which should be {kind.__name__}")
        return value

    def values(self, key: str, kind: type[Kind]) -> list[Kind]:
        """One array of the metadata.

        Raises:
            ModelUnusable: When it is missing, or holds something else.
        """
        values = self.metadata.get(key)
        if not isinstance(values, list):
            raise self.unusable(f"it lacks the list {key}")
        found = [value for value in values if type(value) is kind]
        if len(found) < len(values):
            raise self.unusable(f"its {key} should hold nothing but {kind.__name__}")
        return found


class _Cursor:
    """Reads one thing after another, within the largest head that there may be."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = memoryview(content)[:HEAD_BYTES_MAX]
        self._is_cut = len(content) > HEAD_BYTES_MAX
        self._elements_left = ELEMENTS_MAX
        self.position = 0

    def number(self, spelled: str) -> Scalar:
        (number,) = struct.unpack_from(spelled, self._content, self._step(struct.calcsize(spelled)))
        found: Scalar = number
        return found

    def integer(self, spelled: str) -> int:
        return int(self.number(spelled))

    def count(self, what: str) -> int:
        """How many entries of a kind follow."""
        count = self.integer("<Q")
        if count > ENTRIES_MAX:
            raise ValueError(f"it has {count} {what}; at most {ENTRIES_MAX} are understood")
        return count

    def string(self) -> str:
        size = self.integer("<Q")
        start = self._step(size)
        return str(self._content[start : start + size], "utf-8")

    def value(self) -> Value:
        kind = self.integer("<I")
        return self._list() if kind == ARRAY else self._scalar(kind)

    def _list(self) -> list[Scalar]:
        kind, count = self.integer("<I"), self.integer("<Q")
        if count > self._elements_left:
            message = f"its lists have over {ELEMENTS_MAX} elements, more than are understood"
            raise ValueError(message)
        self._elements_left -= count
        return [self._scalar(kind) for _ in range(count)]

    def _scalar(self, kind: int) -> Scalar:
        if kind == STRING:
            return self.string()
        if kind not in SCALARS:
            raise ValueError(f"its metadata holds a value of unknown kind {kind}")
        return self.number(SCALARS[kind])

    def _step(self, size_bytes: int) -> int:
        """Pass over some bytes; return where they begin."""
        start, self.position = self.position, self.position + size_bytes
        if self.position > len(self._content):
            if self._is_cut:
                raise ValueError(f"its head takes more than {HEAD_BYTES_MAX >> 20} MiB")
            raise EOFError
        return start


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # an empty file can't be mapped: ValueError
        reason = error.strerror if isinstance(error, OSError) else "it is empty"
        raise ModelUnusable(path, str(reason)) from None


def _read_head(cursor: _Cursor) -> tuple[dict[str, Value], dict[str, TensorEntry]]:
    """The metadata and the tensors, both by name.

    Raises:
        ValueError: When it is not the head of a GGUF file; the message says why.
        EOFError: When the file ends first.
    """
    magic, version = cursor.integer("<I"), cursor.integer("<I")
    if magic.to_bytes(4, "little") != MAGIC:
        raise ValueError("it is not a GGUF file")
    if version not in VERSIONS:
        raise ValueError(f"it has version {version} of GGUF; versions 2 and 3 are understood")
    tensors, values = cursor.count("tensors"), cursor.count("values")
    metadata = {cursor.string(): cursor.value() for _ in range(values)}
    entries = {cursor.string(): _entry(cursor) for _ in range(tensors)}
    if len(metadata) < values or len(entries) < tensors:
        raise ValueError("it says something twice")
    return metadata, _with_offsets(entries, _data_start(cursor.position, metadata))


def _entry(cursor: _Cursor) -> TensorEntry:
    """One tensor; its offset counts from where the data starts."""
    dimensions = cursor.integer("<I")
    if not 1 <= dimensions <= DIMENSIONS_MAX:
        raise ValueError(f"it holds a tensor of {dimensions} dimensions")
    shape = tuple(cursor.integer("<Q") for _ in range(dimensions))[::-1]
    return TensorEntry(shape, cursor.integer("<I"), cursor.integer("<Q"))


def _data_start(head_end: int, metadata: dict[str, Value]) -> int:
    alignment = metadata.get("general.alignment", ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"its data can't be aligned to {_shown(alignment)}")
    return -(-head_end // alignment) * alignment


def _with_offsets(entries: dict[str, TensorEntry], start: int) -> dict[str, TensorEntry]:
    return {
        name: TensorEntry(entry.shape, entry.kind, start + entry.offset)
        for name, entry in entries.items()
    }


def _shown(value: Value) -> str:
    return f"a list of {len(value)}" if isinstance(value, list) else repr(value)
