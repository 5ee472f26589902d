"""Numbers and clocks of one life: which records are missing, and when nobody recorded anything.

Records are numbered by their writer, so a life is complete if its numbers are. Looking for gaps one
record at a time costs a sort of everything; instead numbers are counted in runs, and only runs that
do not add up, or took longer than beats may be apart, are looked at record by record:

    run 0          run 1          run 2
    1 ... 4095     4096 ... 8191  8192 ...       count, sum and sum of squares of each must be right

How far what is lost reaches is found out in `kvairlock.audit.losses`. The sums find loss, not
forgery; that is what chains of files are for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import ibis
import numpy as np
from ibis import Table
from numpy.typing import NDArray

from kvairlock.audit.spans import TO_THE_END, Gap, Span

RUN_RECORDS = 4096
BEAT_NS = 5_000_000_000
BEATS_MISSED_MAX = 3
SILENCE_NS_MAX = BEAT_NS * BEATS_MISSED_MAX
CLOCK_STEP_NS_MAX = 100_000_000
SLEW_PPM_MAX = 500
"""How far a clock that is only slewed can drift from the boot-time clock (adjtimex(2))."""

Key = tuple[str, str]
Row = dict[str, Any]


def runs_of(records: Table) -> dict[Key, list[Row]]:
    """Count the numbers of each life in runs of `RUN_RECORDS`, in order."""
    t = records.mutate(
        run=records.sequence // RUN_RECORDS,
        place=records.sequence % RUN_RECORDS,
        offset_ns=records.at_unix_ns - records.at_boot_ns,
    )
    found = t.group_by("node", "role", "incarnation", "run").aggregate(
        records=t.count(),
        places=t.place.sum(),
        squares=(t.place * t.place).sum(),
        first=t.sequence.min(),
        last=t.sequence.max(),
        from_unix_ns=t.at_unix_ns.min(),
        to_unix_ns=t.at_unix_ns.max(),
        from_boot_ns=t.at_boot_ns.min(),
        to_boot_ns=t.at_boot_ns.max(),
        offset_low_ns=t.offset_ns.min(),
        offset_high_ns=t.offset_ns.max(),
    )
    runs: dict[Key, list[Row]] = {}
    for row in found.order_by("node", "incarnation", "run", "role").to_pyarrow().to_pylist():
        runs.setdefault((row["node"], row["incarnation"]), []).append(row)
    return runs


def is_plain(run: Row) -> bool:
    """Whether the numbers of a run add up, and nothing in it was late."""
    low, high = run["first"] % RUN_RECORDS, run["last"] % RUN_RECORDS
    expected = np.arange(low, high + 1, dtype=np.int64)
    return bool(
        run["records"] == len(expected)
        and run["places"] == int(expected.sum())
        and run["squares"] == int((expected * expected).sum())
        and run["to_boot_ns"] - run["from_boot_ns"] <= SILENCE_NS_MAX
        and run["offset_high_ns"] - run["offset_low_ns"] <= CLOCK_STEP_NS_MAX
    )


@dataclass(frozen=True, slots=True)
class Detail:
    """The records of one run, in order of their numbers; clocks in nanoseconds."""

    sequence: NDArray[np.int64]
    boot_ns: NDArray[np.int64]
    offset_ns: NDArray[np.int64]


def detail_of(records: Table, runs: Iterable[Row]) -> dict[tuple[str, str, int], Detail]:
    """Fetch the numbers and clocks of runs that have to be looked at one record at a time."""
    keys = sorted({(run["node"], run["incarnation"], run["run"]) for run in runs})
    if not keys:
        return {}
    wanted = ibis.memtable(
        [dict(zip(("node", "incarnation", "run"), key, strict=True)) for key in keys]
    )
    t = records.mutate(run=records.sequence // RUN_RECORDS)
    t = t.semi_join(wanted, ["node", "incarnation", "run"])
    fields = t.select("node", "incarnation", "run", "sequence", "at_unix_ns", "at_boot_ns")
    found = fields.order_by("node", "incarnation", "sequence").to_pyarrow()
    sequence, unix_ns, boot_ns = (
        found[name].to_numpy() for name in ("sequence", "at_unix_ns", "at_boot_ns")
    )
    names = list(
        zip(*(found[name].to_pylist() for name in ("node", "incarnation", "run")), strict=True)
    )
    starts = [i for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
    ends = [*starts[1:], len(names)]
    return {
        names[start]: Detail(
            sequence[start:end], boot_ns[start:end], unix_ns[start:end] - boot_ns[start:end]
        )
        for start, end in zip(starts, ends, strict=True)
    }


def a_span(since: int, until: int, gap: Gap, detail: str = "", route: str = "") -> Span:
    """Return a span whose life is not known yet."""
    return Span(-1, since, until, gap, route, detail)


def _lost(since: int, until: int, missing: int) -> Span:
    return a_span(since, until, Gap.EVENTS_LOST, f"{missing} missing of {since} to {until}")


def between(before: Row | None, run: Row) -> Iterator[Span]:
    """Compare the end of one run with the beginning of the next."""
    if before is None:
        return
    first, last = before["last"], run["first"]
    if last != first + 1:
        yield _lost(first + 1, max(first, last - 1), last - first - 1)
    elapsed_ns = run["from_boot_ns"] - before["to_boot_ns"]
    if elapsed_ns > SILENCE_NS_MAX:
        yield a_span(first, last, Gap.SILENT, f"{elapsed_ns // 10**9} s")
    apart_ns = max(
        run["offset_low_ns"] - before["offset_high_ns"],
        before["offset_low_ns"] - run["offset_high_ns"],
    )
    if apart_ns > _drift_ns_max(max(0, elapsed_ns)):
        yield a_span(first, last, Gap.CLOCK_STEPPED, f"{apart_ns // 10**6} ms")


def _drift_ns_max(elapsed_ns: int) -> int:
    return CLOCK_STEP_NS_MAX + elapsed_ns * SLEW_PPM_MAX // 10**6


def within(detail: Detail) -> Iterator[Span]:
    """Compare each record of a run with the one before it."""
    steps, waits_ns = np.diff(detail.sequence), np.diff(detail.boot_ns)
    apart_ns = np.abs(np.diff(detail.offset_ns))
    allowed_ns = CLOCK_STEP_NS_MAX + np.maximum(waits_ns, 0) * SLEW_PPM_MAX // 10**6
    gaps = np.flatnonzero(steps > 1)
    if len(gaps):
        # One loss from the first to the last: what is between two of one run is too little.
        missing = int((steps[gaps] - 1).sum())
        yield _lost(_pair(detail, gaps[0])[0] + 1, _pair(detail, gaps[-1])[1] - 1, missing)
    for i in np.flatnonzero(steps < 1)[:1]:
        yield a_span(int(detail.sequence[i]), TO_THE_END, Gap.NUMBERS_REPEATED)
    for i in np.flatnonzero(waits_ns > SILENCE_NS_MAX):
        yield a_span(*_pair(detail, i), Gap.SILENT, f"{int(waits_ns[i]) // 10**9} s")
    for i in np.flatnonzero((apart_ns > allowed_ns) | (waits_ns < 0)):
        yield a_span(*_pair(detail, i), Gap.CLOCK_STEPPED, f"{int(apart_ns[i]) // 10**6} ms")


def _pair(detail: Detail, i: np.signedinteger[Any]) -> tuple[int, int]:
    return int(detail.sequence[i]), int(detail.sequence[i + 1])
