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
from dataclasses import dataclass, fields
from itertools import pairwise
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
    """Where a record of one run does not follow the one before as it should, in order.

    Args:
        before: Number of the record before.
        sequence: Number of the record.
        waited_ns: Time between the two, by the boot-time clock.
        apart_ns: By how much the two clocks moved apart between them.
    """

    before: NDArray[np.int64]
    sequence: NDArray[np.int64]
    waited_ns: NDArray[np.int64]
    apart_ns: NDArray[np.int64]


_COMPARED = tuple(field.name for field in fields(Detail))


def detail_of(records: Table, runs: Iterable[Row]) -> dict[tuple[str, str, int], Detail]:
    """Look at runs one record at a time; of what is as it should be nothing leaves the engine."""
    keys = sorted({(run["node"], run["incarnation"], run["run"]) for run in runs})
    if not keys:
        return {}
    names = ("node", "incarnation", "run")
    wanted = ibis.memtable([dict(zip(names, key, strict=True)) for key in keys])
    t = records.mutate(run=records.sequence // RUN_RECORDS).semi_join(wanted, names)
    found = _odd(t).order_by("node", "incarnation", "sequence").to_pyarrow()
    place = {name: found[name].combine_chunks().dictionary_encode() for name in names}
    codes = [place[name].indices.to_numpy() for name in names]
    changes = np.any([np.diff(code, prepend=-1) != 0 for code in codes], axis=0)
    starts = np.flatnonzero(changes).tolist()
    columns = [found[name].to_numpy() for name in _COMPARED]
    return {
        tuple(found[name][start].as_py() for name in names): Detail(
            *(column[start:end] for column in columns)
        )
        for start, end in pairwise([*starts, len(found)])
    }


def _odd(t: Table) -> Table:
    """Compare each record with the one before it of its run; keep what is odd."""
    own = ibis.window(group_by=("node", "incarnation", "run"), order_by=("sequence", "at_boot_ns"))
    offset_ns = t.at_unix_ns - t.at_boot_ns
    t = t.select(
        "node",
        "incarnation",
        "run",
        "sequence",
        before=t.sequence.lag().over(own),
        waited_ns=t.at_boot_ns - t.at_boot_ns.lag().over(own),
        apart_ns=(offset_ns - offset_ns.lag().over(own)).abs(),
    )
    late = (t.waited_ns > SILENCE_NS_MAX) | (t.waited_ns < 0)
    return t.filter((t.sequence != t.before + 1) | late | (t.apart_ns > CLOCK_STEP_NS_MAX))


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
    """Say what it means that records of a run do not follow each other as they should."""
    steps = detail.sequence - detail.before
    allowed_ns = CLOCK_STEP_NS_MAX + np.maximum(detail.waited_ns, 0) * SLEW_PPM_MAX // 10**6
    gaps = np.flatnonzero(steps > 1)
    if len(gaps):
        # One loss from the first to the last: what is between two of one run is too little.
        missing = int((steps[gaps] - 1).sum())
        yield _lost(int(detail.before[gaps[0]]) + 1, int(detail.sequence[gaps[-1]]) - 1, missing)
    for i in np.flatnonzero(steps < 1)[:1]:
        yield a_span(int(detail.sequence[i]), TO_THE_END, Gap.NUMBERS_REPEATED)
    for i in np.flatnonzero(detail.waited_ns > SILENCE_NS_MAX):
        yield a_span(*_pair(detail, i), Gap.SILENT, f"{int(detail.waited_ns[i]) // 10**9} s")
    for i in np.flatnonzero((detail.apart_ns > allowed_ns) | (detail.waited_ns < 0)):
        apart_ms = int(detail.apart_ns[i]) // 10**6
        yield a_span(*_pair(detail, i), Gap.CLOCK_STEPPED, f"{apart_ms} ms")


def _pair(detail: Detail, i: np.signedinteger[Any]) -> tuple[int, int]:
    return int(detail.before[i]), int(detail.sequence[i])
