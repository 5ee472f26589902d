"""Counters of engines, in scraped expositions: that something happened, and in which window.

A counter names no request. What it can tell is that between two scrapes something happened as often
as it grew. An exposition follows another where a series comes again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from prometheus_client.parser import text_string_to_metric_families

from kvairlock.audit.foreign.signs import Engine

LABELS_MAX_CHARS = 4096


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter that is read.

    Args:
        engine: Whose it is.
        name: Its name, without the suffix `_total`.
        means: What has happened each time.
        unproven: What it does not show.
        label: A label that must have a value, as a pair; empty if none must.
    """

    engine: Engine
    name: str
    means: str
    unproven: str
    label: tuple[str, str] | tuple[()] = ()


COUNTERS: tuple[Counter, ...] = (
    Counter(
        Engine.VLLM,
        "vllm:nixl_num_notifications_after_expiry",
        "decode reported to have read blocks that prefill no longer kept",
        "for which request, and what the blocks held; it counts notes, one for each rank",
    ),
    Counter(
        Engine.VLLM,
        "vllm:nixl_num_kv_expired_reqs",
        "prefill gave blocks back that it had kept for decode",
        "whether decode read them afterwards",
    ),
    Counter(
        Engine.VLLM,
        "vllm:nixl_num_failed_transfers",
        "a transfer, its handshake or its note failed",
        "what the request did then",
    ),
    Counter(
        Engine.SGLANG,
        "sglang:decode_deferred_kv_release",
        "decode gave pages back without knowing that nobody writes into them",
        "that a write came afterwards",
        ("outcome", "timeout"),
    ),
    Counter(
        Engine.SGLANG,
        "sglang:num_transfer_failed_reqs",
        "a transfer failed",
        "what the request did then",
    ),
    Counter(
        Engine.SGLANG,
        "sglang:num_bootstrap_failed_reqs",
        "a request was given up before its transfer began",
        "whether the other half went on",
    ),
)
_BY_NAME = {f"{c.name}{suffix}": c for c in COUNTERS for suffix in ("", "_total")}


@dataclass(frozen=True, slots=True)
class Reading:
    """What one series said once.

    Args:
        counter: Which counter.
        series: Its labels, as they were written: they tell series of one file apart.
        value: How often it had happened since its process began.
        at_s: When it was scraped, if that is said.
    """

    counter: Counter
    series: str
    value: float
    at_s: float | None


@dataclass(frozen=True, slots=True)
class Growth:
    """How much one counter grew between two readings, or since its process began.

    Args:
        counter: Which counter.
        file: In which file.
        events: How often it happened.
        from_s: When it was read before; None if that is not said.
        to_s: When it was read then; None if that is not said.
        since_start: Whether there was no reading before: it may have happened at any time.
    """

    counter: Counter
    file: str
    events: int
    from_s: float | None
    to_s: float | None
    since_start: bool


def reading_of(line: str) -> Reading | None:
    """Return what a line of an exposition says, if it is of a counter that is read."""
    if not line.startswith(("vllm:", "sglang:")) or len(line) > LABELS_MAX_CHARS:
        return None
    counter = _BY_NAME.get(line.partition("{")[0].split(" ", 1)[0])
    if counter is None:
        return None
    try:
        family = next(iter(text_string_to_metric_families(line)))
        sample = family.samples[0]
    except Exception:  # somebody else's parser on somebody else's text
        return None
    if counter.label and sample.labels.get(counter.label[0]) != counter.label[1]:
        return None
    at = float(sample.timestamp) if sample.timestamp is not None else None
    return Reading(counter, repr(sorted(sample.labels.items())), float(sample.value), at)


def growths(file: str, readings: Iterable[Reading]) -> Iterator[Growth]:
    """Yield where counters of one file grew.

    A first reading that is not zero is growth since the process began. A smaller value than before
    is a new process, which began at zero.
    """

    def series_of(reading: Reading) -> tuple[str, str]:
        return reading.counter.name, reading.series

    for _, group in groupby(sorted(readings, key=series_of), series_of):
        before: Reading | None = None
        for now in group:
            started = before is None or now.value < before.value
            grown = now.value - (0 if before is None or started else before.value)
            if grown > 0:
                from_s = before.at_s if before is not None else None
                yield Growth(now.counter, file, int(grown), from_s, now.at_s, before is None)
            before = now
