"""A file's head is read as its own package reads it, and a torn or foreign file is refused."""

import os
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter

from kvairlock.engine.llama.file import GgufFile
from kvairlock.engine.llama.model import Llama
from kvairlock.engine.unusable import ModelUnusable
from tests.engine.tiny_llama import Q8, Tiny

TINY = Tiny(kind=Q8, tied=False, layers=1)


def say_more(writer: GGUFWriter) -> None:
    """One value of each kind."""
    writer.add_uint8("test.u8", 255)
    writer.add_int8("test.i8", -128)
    writer.add_uint16("test.u16", 65535)
    writer.add_int16("test.i16", -32768)
    writer.add_int32("test.i32", -5)
    writer.add_uint64("test.u64", 2**63)
    writer.add_int64("test.i64", -(2**62))
    writer.add_float32("test.f32", 0.5)
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "größer")
    writer.add_array("test.floats", [0.5, 0.25])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TINY.write(tmp_path_factory.mktemp("tiny") / "tiny.gguf", say_more)


def test_metadata_and_tensors_are_those_that_the_package_reads(path: Path) -> None:
    file, reader = GgufFile(path), GGUFReader(path)
    expected = {name: field.contents() for name, field in reader.fields.items()}
    for counted in ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count"):
        expected.pop(counted)
    assert file.metadata == expected
    assert file.metadata["test.u64"] == 2**63
    assert list(file.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        entry = file.tensors[tensor.name]
        assert entry.shape == tuple(tensor.shape.tolist()[::-1])
        assert entry.kind == tensor.tensor_type
        assert bytes(file.data(entry, tensor.n_bytes)) == tensor.data.tobytes()


def test_a_file_that_ends_early_is_refused_wherever_it_ends(path: Path, tmp_path: Path) -> None:
    content, torn = path.read_bytes(), tmp_path / "torn.gguf"
    last = GGUFReader(path).tensors[-1]
    end = last.data_offset + last.n_bytes
    for length in (*range(0, 400, 3), *range(400, end, 499), end - 1):
        torn.write_bytes(content[:length])
        with pytest.raises(ModelUnusable, match=r"it is empty|not a GGUF|ends within|torn"):
            Llama(torn, "torn")


def test_whatever_byte_of_the_head_is_wrong_nothing_but_a_refusal_comes(
    path: Path, tmp_path: Path
) -> None:
    content, damaged = path.read_bytes(), tmp_path / "damaged.gguf"
    rng = np.random.default_rng(20261102)
    refused = 0
    for _ in range(300):
        changed = bytearray(content)
        changed[rng.integers(0, 1600)] = rng.integers(256)
        damaged.write_bytes(changed)
        try:
            Llama(damaged, "damaged")
        except ModelUnusable:
            refused += 1
    assert refused > 100


def test_the_digest_is_of_every_byte(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    content = path.read_bytes()
    other.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert GgufFile(other).digest() != GgufFile(path).digest()
    assert len(GgufFile(path).digest()) == 16


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"PK\x03\x04" + bytes(60), "it is not a GGUF file"),
        (b"GGUF" + (1).to_bytes(4, "little") + bytes(60), "version 1 of GGUF; versions 2 and 3"),
        (b"GGUF" + (3 << 24).to_bytes(4, "little") + bytes(60), "versions 2 and 3 are understood"),
    ],
)
def test_other_files_are_refused_with_the_reason(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelUnusable, match=f"other.gguf can't be served: .*{reason}"):
        GgufFile(path)


def packed(*parts: tuple[str, int]) -> bytes:
    return b"".join(struct.pack(f"<{spelled}", number) for spelled, number in parts)


def head(tensors: int, values: int, *rest: bytes) -> bytes:
    """The head of a file as far as a test needs it."""
    return b"GGUF" + packed(("I", 3), ("Q", tensors), ("Q", values)) + b"".join(rest)


A = packed(("Q", 1)) + b"a"
LIST_OF_BYTES, LIST_OF_STRINGS = packed(("I", 9), ("I", 0)), packed(("I", 9), ("I", 8))
MILLION = 1_000_000


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (head(0, 1, A, LIST_OF_BYTES, packed(("Q", 100 * MILLION))), "lists have over 2097152"),
        (head(0, 1, A, LIST_OF_STRINGS, packed(("Q", 2**63))), "lists have over 2097152"),
        (
            head(0, 3, *(A, LIST_OF_BYTES, packed(("Q", MILLION)), bytes(MILLION)) * 3),
            "lists have over 2097152",
        ),
        (head(0, 1, A, packed(("I", 8), ("Q", 90 * MILLION))), "head takes more than 64 MiB"),
        (head(2**40, 0), "it has 1099511627776 tensors; at most 65536 are understood"),
        (head(0, 2**40), "it has 1099511627776 values; at most 65536 are understood"),
    ],
    ids=["bytes", "strings", "three lists", "text", "tensors", "values"],
)
def test_a_head_that_says_it_is_huge_is_refused_before_it_is_read(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    """The file is as large as it says, and takes no space on the disk."""
    path = tmp_path / "huge.gguf"
    path.write_bytes(content)
    os.truncate(path, len(content) + 100 * MILLION)
    tracemalloc.start()
    try:
        with pytest.raises(ModelUnusable, match=reason):
            GgufFile(path)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 40 * MILLION


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnusable, match=r"no\.gguf can't be served: No such file"):
        GgufFile(tmp_path / "no.gguf")
    with pytest.raises(ModelUnusable, match="Is a directory"):
        GgufFile(tmp_path)
