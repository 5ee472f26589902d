"""The fault matrix on real processes: every row holds, and rows can fail.

All rows are carried out once, on as few stacks as they need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from kvairlock.core.guards import Guard
from kvairlock.drills.faults.bench import TENANTS, Kind
from kvairlock.drills.faults.outcomes import Disconnected, RecordedEnd, When
from kvairlock.drills.faults.run import PROOF, PROVES, names, run_faults, run_rows
from kvairlock.drills.faults.table import Row, shipped
from kvairlock.drills.stack import Keys, make_keys
from kvairlock.drills.table_row import TableRow

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # whichever is first carries them all out


@pytest.fixture(scope="module")
def report() -> dict[str, TableRow]:
    """All rows by their names, and the one with a guard off by that guard's."""
    told: list[str] = []
    rows = run_faults(told.append)
    assert len(told) == len(rows) == len(names()) + 1
    return {row.guards_off[0] if row.guards_off else row.drill: row for row in rows}


@pytest.mark.parametrize("name", names())
def test_the_row_holds(name: str, report: dict[str, TableRow]) -> None:
    row = report[f"fault:{name}"]
    assert (row.held, row.guards_off, row.failed_as_expected) == (True, (), None), row


def test_without_the_drain_a_stopped_writer_stores_into_what_is_anothers(
    report: dict[str, TableRow],
) -> None:
    row = report[Guard.DRAIN]
    assert row.drill == f"fault:{PROVES}"
    assert (row.held, row.failed_as_expected) == (False, True), row
    assert "pages of decode-0 were another request's before their writer was done" in row.saw


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"), TENANTS)


def carried_out(rows: list[Row], keys: Keys, folder: Path, kind: Kind = Kind()) -> list[TableRow]:  # noqa: B008
    return run_rows(shipped(), rows, kind, keys, folder, lambda _: None)


Wrong = Callable[[Row], Row]


def expecting(**change: object) -> Wrong:
    """Return what changes the rule of a row."""
    return lambda row: replace(row, rule=msgspec.structs.replace(row.rule, **change))


def test_a_row_that_expects_something_else_does_not_hold(keys: Keys, tmp_path: Path) -> None:
    """Each fails for its own reason, and what comes after it has a fresh stack."""
    (row,) = shipped().chosen({"decode-stop-written"})
    wrong: dict[str, Row] = {
        "the client got something else": expecting(client=Disconnected(When.AFTERWARDS))(row),
        "prefill recorded another end": expecting(prefill=(RecordedEnd.CANCELLED,))(row),
    }
    seen = carried_out([*wrong.values(), row], keys, tmp_path)
    assert [one.held for one in seen] == [False, False, True]
    for complaint, one in zip(wrong, seen, strict=False):
        assert one.saw.endswith(f"BUT {complaint}"), one
    assert len(list(tmp_path.iterdir())) == len(wrong) + 1


def test_the_row_that_fails_without_the_drain_holds_with_it(keys: Keys, tmp_path: Path) -> None:
    """So it is the guard that makes the difference, not the landing policy."""
    rows = shipped().chosen({PROVES})
    (row,) = carried_out(list(rows), keys, tmp_path, replace(PROOF, off=frozenset()))
    assert row.held, row
