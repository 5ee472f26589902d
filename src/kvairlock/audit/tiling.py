"""Histories of any size: a block of requests is played once and repeated, shifted, as columns.

    start | block | block + 1 shift | block + 2 shifts | ... | close

Between blocks nobody holds a page, so a block can follow itself: numbers, times, leases and
generations go on where it ended, requests and windows get names of their own.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kvairlock.audit.conversations import Conversation
from kvairlock.audit.stories import answered, left, recomputed, too_long
from kvairlock.audit.synthetic import BOOTED_UNIX_NS, Process, Row, Stack, Story
from kvairlock.runtime.evidence_settings import Format
from kvairlock.sink.columns import WIDE
from kvairlock.sink.naming import Segment
from kvairlock.sink.seal_lines import Act, Content, sha256_of
from kvairlock.sink.seals import Seals
from kvairlock.wire.keys import KEY_BYTES, Keyring

SEGMENT_RECORDS = 1_000_000
GROUP_RECORDS = 100_000
BLOCK_REQUESTS = 400

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Block:
    """What one process records of a block, and how far it moves on by it.

    Args:
        process: Who.
        before: What it recorded before the block.
        table: The block.
        names: All requests of the block, on every process.
        windows: All windows of the block.
        elapsed_ns: How long the block takes.
        leases: How many leases the process gave in it.
        turned: How often the generation of each page turned, shape (pages,).
    """

    process: Process
    before: list[Row]
    table: pa.Table
    names: pa.Array
    windows: pa.Array
    elapsed_ns: int
    leases: int
    turned: Integers


def write_history(folder: Path, records: int, seed: int = 0, slower: int = 1) -> int:
    """Write a history without incidents as Parquet, sealed, about as large as wanted.

    Args:
        folder: Where the files go: one for each process and million records.
        records: How many records there should be, at least.
        seed: What names are drawn from.
        slower: How often as long everything takes.

    Returns:
        How many records there are.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stack = Stack(seed, pages=1024)
    blocks = play_block(stack, seed)
    copies = -(-records // sum(block.table.num_rows for block in blocks))
    stack.close()
    return sum(_write_process(folder, block, copies, slower) for block in blocks)


def play_block(stack: Stack, seed: int) -> list[Block]:
    """Start a stack and play one block of requests on it."""
    stack.start()
    since_ns = stack.now
    marks = {
        process.node: (len(process.rows), process.leases, list(process.generation))
        for process in stack.processes
    }
    stack.play(_requests(stack, seed), at_once=16)
    stack.beat()
    return [
        _block(process, *marks[process.node], stack.now - since_ns) for process in stack.processes
    ]


def _requests(stack: Stack, seed: int) -> list[Story]:
    """Mostly answers; some clients leave, some ask for too much, some receipts do not come."""
    draw = np.random.Generator(np.random.Philox(key=seed))
    kinds = draw.choice(4, BLOCK_REQUESTS, p=(0.92, 0.04, 0.02, 0.02))
    tokens = draw.integers(17, 300, BLOCK_REQUESTS).tolist()
    stories = (answered, left, too_long, recomputed)
    return [
        stories[kind](Conversation(stack, tokens[i], prefill=i % 2))
        for i, kind in enumerate(kinds.tolist())
    ]


def _block(
    process: Process, rows: int, leases: int, generation: list[int], elapsed_ns: int
) -> Block:
    table = pa.Table.from_pylist(process.rows[rows:], schema=WIDE)
    turned = np.array(process.generation, np.int64) - np.array(generation, np.int64)
    names = pc.drop_null(pc.unique(table["request"]))
    windows = pc.drop_null(pc.unique(table["window"]))
    before = process.rows[:rows]
    return Block(
        process, before, table, names, windows, elapsed_ns, process.leases - leases, turned
    )


def _write_process(folder: Path, block: Block, copies: int, slower: int) -> int:
    closing = block.process.rows[len(block.before) + block.table.num_rows :]
    shift = (copies - 1) * block.table.num_rows
    ends_ns = (copies - 1) * block.elapsed_ns
    ended = [_later(row, shift, ends_ns) for row in closing]
    segments, total = 0, 0
    writer: pq.ParquetWriter | None = None
    for table in _tables(block, copies, ended):
        if writer is None or total >= segments * SEGMENT_RECORDS:
            if writer is not None:
                writer.close()
            segments += 1
            path = folder / _segment(block.process, segments).name(Format.PARQUET)
            writer = pq.ParquetWriter(path, WIDE, compression="zstd")
        writer.write_table(_slower(table, slower))
        total += table.num_rows
    if writer is not None:
        writer.close()
    _seal(folder, block.process, segments)
    return total


def _segment(process: Process, number: int) -> Segment:
    return Segment(process.node, process.incarnation, number)


def _slower(table: pa.Table, times: int) -> pa.Table:
    """Return records as far apart by both clocks as they are, several times."""
    for name, zero in (("at_unix_ns", BOOTED_UNIX_NS), ("at_boot_ns", 0)):
        since = pc.multiply(pc.subtract(table[name], zero), times)
        table = _put(table, name, pc.add(since, zero))
    return table


def _seal(folder: Path, process: Process, segments: int) -> None:
    """Seal what a process wrote, with a key that is then forgotten: hashes can be compared."""
    seals = Seals(folder, process.node, Keyring({"made": secrets.token_bytes(KEY_BYTES)}))
    life = Content(incarnation=process.incarnation)
    seals.add(Act.BEGUN, life)
    for number in range(1, segments + 1):
        path = folder / _segment(process, number).name(Format.PARQUET)
        sequence = pq.read_table(path, columns=["sequence"])["sequence"]
        content = msgspec.structs.replace(
            life,
            file=path.name,
            sha256=sha256_of(path),
            bytes=path.stat().st_size,
            segment=number,
            first=pc.min(sequence).as_py(),
            last=pc.max(sequence).as_py(),
            records=len(sequence),
        )
        seals.add(Act.SEALED, content)
    seals.add(Act.ENDED, life)


def _later(row: Row, records: int, elapsed_ns: int) -> Row:
    moved = {"sequence": records, "at_unix_ns": elapsed_ns, "at_boot_ns": elapsed_ns}
    return (
        row
        | {name: row[name] + by for name, by in moved.items()}
        | {"records": row["records"] + records}
    )


def _tables(block: Block, copies: int, ended: list[Row]) -> Iterator[pa.Table]:
    yield pa.Table.from_pylist(block.before, schema=WIDE)
    at_once = max(1, GROUP_RECORDS // max(1, block.table.num_rows))
    for first in range(0, copies, at_once):
        yield _repeat(block, np.arange(first, min(copies, first + at_once), dtype=np.int64))
    yield pa.Table.from_pylist(ended, schema=WIDE)


def _repeat(block: Block, copies: Integers) -> pa.Table:
    """Return the block once for each number of a copy, shifted so often."""
    size = block.table.num_rows
    table = pa.concat_tables([block.table] * len(copies)).combine_chunks()
    shift = np.repeat(copies, size)
    for name, step in (
        ("sequence", size),
        ("at_unix_ns", block.elapsed_ns),
        ("at_boot_ns", block.elapsed_ns),
        ("lease", block.leases),
        ("records", size),
    ):
        table = _put(table, name, pc.add(table[name], pa.array(shift * step)))
    table = _put(table, "leases", _later_leases(table, block.leases, shift))
    table = _put(table, "request", _renamed(table["request"], block.names, shift, 24))
    table = _put(table, "window", _renamed(table["window"], block.windows, shift, 16))
    return _put(table, "generations", _turned(table, block.turned, shift))


def _put(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), WIDE.field(name), column)


def _later_leases(table: pa.Table, leases: int, shift: Integers) -> pa.Array:
    """Return the leases that beats name, after as many blocks as they are shifted by."""
    named = table["leases"].combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(named), 0).to_numpy()
    flat = named.flatten().to_numpy() + leases * np.repeat(shift, lengths)
    return _listed(named, lengths, flat)


def _listed(like: pa.Array, lengths: Integers, flat: Integers) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat), mask=like.is_null())


def _turned(table: pa.Table, turned: Integers, shift: Integers) -> pa.Array:
    """Return the generations of each record, after as many blocks as it is shifted by."""
    pages, generations = (table[name].combine_chunks() for name in ("pages", "generations"))
    held = pages.filter(generations.is_valid()).flatten().to_numpy()
    lengths = pc.fill_null(pc.list_value_length(generations), 0).to_numpy()
    flat = generations.flatten().to_numpy() + turned[held] * np.repeat(shift, lengths)
    return _listed(generations, lengths, flat)


def _renamed(column: Any, names: pa.Array, shift: Integers, digits: int) -> pa.Array:
    """Return names of the same length, one for each name and shift."""
    place = pc.index_in(column, names).combine_chunks()
    known = place.is_valid().to_numpy(zero_copy_only=False)
    base = np.array([int(name, 16) % 2**62 for name in names.to_pylist()] or [0], np.uint64)
    drawn = _mixed(base[pc.fill_null(place, 0).to_numpy()] + shift.astype(np.uint64))
    halves = np.stack([drawn, _mixed(drawn)], axis=1).astype(">u8").view(np.uint8)
    letters = np.frombuffer(b"0123456789abcdef", np.uint8)
    text = np.stack([letters[halves >> 4], letters[halves & 15]], axis=2).reshape(len(drawn), -1)
    flat = np.ascontiguousarray(text[:, :digits])
    offsets = np.arange(len(drawn) + 1, dtype=np.int32) * digits
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(flat)]
    made = pa.Array.from_buffers(pa.string(), len(drawn), buffers)
    return pc.if_else(pa.array(known), made, pa.scalar(None, pa.string()))


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread numbers over 64 bits, each to another (the finaliser of SplitMix64)."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
