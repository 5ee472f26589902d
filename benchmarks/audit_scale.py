"""How long an audit takes, how much memory it needs, and how that compares to a plain scan.

A history is written as Parquet (or one that is there already is used), scanned plainly (one count,
and one aggregate over every column), and audited, each in a process of its own, so that the memory
of one does not show in the other. Then the same with records `SLOWER` times as far apart: every run
of numbers takes longer than beats may be apart, and is looked at record by record. Wall time is
what a quiet machine gives. On a busy one the time on processors tells more, so that is a row too,
divided by the threads that share it.

    python benchmarks/audit_scale.py --records 10000000 --folder /var/tmp/history
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from kvairlock.audit.auditing import audit
from kvairlock.audit.tables import THREADS, embedded, open_evidence
from kvairlock.audit.tiling import write_history
from kvairlock.sink.columns import WIDE

SEED = 2026
KIB = 1024
RECORDS = 10_000_000
SECONDS_MAX = 20.0
MIB_MAX = 3072
"""What an audit of `RECORDS` records may take, with `THREADS` threads."""


def scan(folder: Path) -> dict[str, Any]:
    """Read every column of every file once."""
    table = embedded().read_parquet(sorted(folder.glob("*.parquet")))
    columns = {name: _touched(table[name], WIDE.field(name).type) for name in WIDE.names}
    row = table.aggregate(rows=table.count(), **columns).to_pyarrow().to_pylist()[0]
    return {"records": row["rows"]}


def _touched(column: Any, kind: pa.DataType) -> Any:
    """An aggregate that no engine can answer without reading the column."""
    if pa.types.is_integer(kind):
        return column.cast("float64").sum()
    return column.length().sum()


def judge(folder: Path) -> dict[str, Any]:
    """Audit everything."""
    with tempfile.TemporaryDirectory() as working:
        report = audit(open_evidence([folder], Path(working), embedded()))
    counts = {str(name): count for name, count in report.counts().items()}
    return {"records": report.coverage.records, **counts}


SLOWER = 40
PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {"scan": scan, "audit": judge}


def measured(part: str, folder: Path) -> dict[str, Any]:
    """Run one part in a process of its own, and return what it found and what it took."""
    command = [sys.executable, __file__, "--part", part, "--folder", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def run_part(part: str, folder: Path) -> dict[str, Any]:
    """Run one part here."""
    started_s = time.monotonic()
    found = PARTS[part](folder)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return found | {
        "wall_s": round(time.monotonic() - started_s, 2),
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "peak_mib": used.ru_maxrss // KIB,
    }


def rows(parts: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what was measured as rows, each beside the plain scan of the same files."""
    made, plain, slow = parts["audit"], parts["scan"], parts["audit_slow"]
    share = SECONDS_MAX * max(1.0, made["records"] / RECORDS)
    return [
        row("audit_wall", made["wall_s"], "s", plain["wall_s"], share),
        row("audit_cpu_per_thread", made["cpu_s"] / THREADS, "s", plain["cpu_s"] / THREADS, share),
        row("audit_peak", made["peak_mib"], "MiB", plain["peak_mib"], MIB_MAX),
        row("audit_slow_wall", slow["wall_s"], "s", made["wall_s"], 2 * share),
        row("audit_slow_peak", slow["peak_mib"], "MiB", made["peak_mib"], MIB_MAX),
    ]


def row(name: str, value: float, unit: str, against: float, target: float) -> dict[str, Any]:
    """Return one figure, what it is compared with, and whether it is what was aimed at."""
    return {
        "name": name,
        "value": round(value, 2),
        "unit": unit,
        "against": round(against, 2),
        "ratio": round(value / against, 2),
        "target": round(target, 2),
        "met": value <= target,
    }


def main() -> None:
    """Measure, and print one JSON document."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=RECORDS)
    options.add_argument("--folder", type=Path)
    options.add_argument("--part", choices=sorted(PARTS))
    asked = options.parse_args()
    if asked.part:
        print(json.dumps(run_part(asked.part, asked.folder)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder, slow = asked.folder or Path(scratch) / "plain", Path(scratch) / "slow"
        if not any(folder.glob("*.parquet")):
            write_history(folder, asked.records, SEED)
        parts = {part: measured(part, folder) for part in PARTS}
        write_history(slow, asked.records, SEED, SLOWER)
        parts["audit_slow"] = measured("audit", slow)
    print(json.dumps({"parts": parts, "rows": rows(parts)}, indent=2))


if __name__ == "__main__":
    main()
