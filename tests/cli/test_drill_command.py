"""`kvairlock drill` without a stack: what is chosen, refused, listed, kept and deleted."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest

from kvairlock.drills.library.shipped import shipped, text_of
from kvairlock.drills.runs.retention import Retention

from .conftest import Command

EMPTY = {"ok": True, "seed": 2026, "rows": [], "skipped": []}


def test_all_drills_are_listed(kvairlock: Command) -> None:
    ran = kvairlock("drill", "--list", "--json")
    assert ran.status == 0
    assert [row["drill"] for row in ran.json["rows"]] == [drill.name for drill in shipped()]
    (ticket,) = [row for row in ran.json["rows"] if row["drill"] == "ticket"]
    assert ticket == {
        "drill": "ticket",
        "round": "access",
        "level": 2,
        "guards": ["ticket"],
        "shadows": ["strip"],
        "title": "a router presents a tenant's ticket for another tenant's prompt",
    }
    assert {name.partition(":")[0] for name in ran.json["beside"]} == {"fault", "versions"}
    shown = kvairlock("drill", "--list").out
    assert "level 3: tenants at the same time never read each other" in shown
    assert "rows fault:NAME" in shown


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "no drill is chosen"),
        (["nope"], "nope: there is no such drill; there are: capacity, claimant, "),
        (["missing.toml"], "missing.toml: No such file or directory"),
        (["promise", "--level", "3"], "no drill is chosen"),
        (["--round", "sideways"], "'sideways' is not one of"),
        (["--level", "4"], "less than or equal to 3"),
        (["promise", "--deployment", "nowhere.toml"], "nowhere.toml: No such file"),
        (["versions:rollback-decode"], "rows of the table of versions need an earlier release"),
        (["--versions", "nowhere"], "does not exist."),
        (["promise", "--report", "/no/such/folder/x.html"], "cannot be written"),
        (["promise", "--report", "."], "cannot be written"),
        (["--changed", ""], "`--changed` names no file"),
        (["--all", "drain"], "all drills or some by name, not both"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(
    words: list[str], why: str, kvairlock: Command
) -> None:
    ran = kvairlock("drill", *words)
    assert (ran.status, ran.out) == (2, "")
    assert why in ran.err


def listed(kvairlock: Command, *words: str) -> tuple[list[str], list[str]]:
    ran = kvairlock("drill", *words, "--list", "--json")
    assert ran.status == 0
    return [row["drill"] for row in ran.json["rows"]], ran.json["beside"]


def test_what_is_named_is_listed_as_it_would_be_carried_out(kvairlock: Command) -> None:
    assert listed(kvairlock, "drain", "ticket") == (["drain", "ticket"], [])
    assert listed(kvairlock, "--round", "reuse", "--level", "3") == (["leavers"], [])
    assert listed(kvairlock, "--changed", "docs/api.md") == ([], [])
    drills, beside = listed(kvairlock, "--changed", "src/kvairlock/transport/fences.py")
    assert {"drain", "integrity"} <= set(drills)
    assert len(beside) == 80
    _, beside = listed(kvairlock, "fault:prefill-crash-*")
    assert {name.rpartition("-")[0] for name in beside} == {"fault:prefill-crash"}


def test_rounds_and_levels_leave_out_what_is_beside_the_drills(kvairlock: Command) -> None:
    words = ("--changed", "src/kvairlock/transport/fences.py", "--round", "receipt")
    drills, beside = listed(kvairlock, *words)
    assert ("integrity" in drills, "drain" in drills, beside) == (True, False, [])


def test_a_table_that_a_change_calls_for_and_that_cannot_be_carried_out_is_skipped(
    kvairlock: Command,
) -> None:
    ran = kvairlock("drill", "--changed", "src/kvairlock/drills/versions/table.py", "--json")
    assert (ran.status, ran.json["rows"]) == (1, []), "what was called for was not shown"
    assert ran.json["skipped"] == [
        {"drill": "versions", "why": "`--versions OLD` names the earlier release"}
    ]


def test_a_drill_of_ones_own_that_is_wrong_is_refused(kvairlock: Command, tmp_path: Path) -> None:
    mine = tmp_path / "drain.toml"
    mine.write_text(text_of("drain").replace('sight = "foreign"', 'sight = "own"'))
    ran = kvairlock("drill", mine)
    assert ran.status == 2
    assert "drain: what must be seen without its guards is what must be seen with them" in ran.err


def test_a_change_to_documents_calls_for_no_drill(kvairlock: Command) -> None:
    ran = kvairlock("drill", "--changed", "README.md", "--changed", "docs/api.md", "--json")
    assert (ran.status, ran.err) == (0, "")
    assert {name: ran.json[name] for name in EMPTY} == EMPTY


def test_changed_paths_can_come_from_another_command(
    kvairlock: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("docs/api.md\n\n./README.md\n"))
    ran = kvairlock("drill", "--changed", "-", "--json")
    assert (ran.status, ran.json["rows"]) == (0, [])


def test_data_that_is_due_is_deleted_and_what_is_kept_is_shown(
    kvairlock: Command, home: Path
) -> None:
    retention = Retention(home / ".local" / "state" / "kvairlock")
    old, new = home / "old", home / "new"
    retention.keep(old, 1, time.time() - 7200)
    retention.keep(new, 24, time.time())
    ran = kvairlock("drill", "--prune", "--json")
    assert ran.status == 0
    assert [(row["folder"], row["data"]) for row in ran.json["rows"]] == [
        (str(old), "deleted"),
        (str(new), "kept"),
    ]
    assert not old.exists()
    assert new.is_dir()


def test_every_run_deletes_what_is_due(kvairlock: Command, home: Path) -> None:
    old = home / "old"
    Retention(home / ".local" / "state" / "kvairlock").keep(old, 1, time.time() - 7200)
    kvairlock("drill", "--changed", "README.md")
    assert not old.exists()


def test_kept_data_says_until_when(kvairlock: Command, home: Path) -> None:
    ran = kvairlock("drill", "--changed", "README.md", "--keep", home / "kept", "--json")
    assert ran.json["cleanup"]["data"].startswith(f"kept in {home / 'kept'} until 20")
    assert json.loads((home / "kept" / "drills.json").read_text()) == ran.json
    note = json.loads((home / "kept" / "retention.json").read_text())
    assert note["expires_unix_s"] == pytest.approx(time.time() + 24 * 3600, abs=60)
    again = kvairlock("drill", "--changed", "README.md", "--keep", home / "kept")
    assert again.status == 2
    assert "is not an empty folder" in again.err


def test_a_report_is_written_even_if_nothing_was_called_for(kvairlock: Command, home: Path) -> None:
    ran = kvairlock("drill", "--changed", "README.md", "--report", home / "report.html")
    assert ran.status == 0
    assert "<h1>" in (home / "report.html").read_text()
