"""The table of versions and its runner, without an earlier release."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kvairlock
from kvairlock.drills.stack import DrillFailed, Keys
from kvairlock.drills.table_row import TableRow
from kvairlock.drills.versions import NoSuchRow, names, run, run_versions
from kvairlock.drills.versions.release import release_at, this_release
from kvairlock.drills.versions.sights import Sight
from kvairlock.drills.versions.stack import Mixed
from kvairlock.drills.versions.stories import Story
from kvairlock.drills.versions.table import (
    COMBINATIONS,
    INCOMPATIBLE,
    Build,
    Combination,
    Incompatible,
)
from kvairlock.wire.keys import Keyring
from kvairlock.wire.pseudonyms import Pseudonyms
from kvairlock.wire.versions import common, in_words

RELEASES = {Build.OLD: this_release(), Build.NEW: this_release()}
SEATS = Combination(Build.NEW, Build.NEW, Build.NEW).seats


def keys(folder: Path) -> Keys:
    ring = Keyring.parse("one " + "ab" * 32)
    pseudonyms = Pseudonyms(bytes(32), days=90)
    return Keys(folder / "keys.toml", folder / "cluster.key", ring, pseudonyms, {"acme": "sk-1"})


def test_every_combination_of_the_two_releases_is_there_once() -> None:
    assert len(COMBINATIONS) == 8
    assert len(set(COMBINATIONS)) == 8
    assert COMBINATIONS[0].name == "gateway-new,prefill-new,decode-new"
    assert len(set(names())) == len(names()) == 2 * 8 + 2 + len(INCOMPATIBLE)


@pytest.mark.parametrize("row", INCOMPATIBLE, ids=lambda row: row.name)
def test_what_must_be_refused_has_no_version_in_common_and_what_serves_has(
    row: Incompatible,
) -> None:
    spoken = {name: seat.speaks or seat.build.speaks for name, seat in row.seats.items()}

    def are_apart(route: str) -> bool:
        prefill, decode = route.split("/")
        pairs = ((prefill, decode), ("gateway", prefill), ("gateway", decode))
        return any(common(spoken[one], spoken[other]) is None for one, other in pairs)

    assert are_apart(row.closed)
    assert not are_apart(row.serves)
    assert set(row.says) <= {in_words(versions) for versions in (*spoken.values(), (1,))}


def played(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *seen: Sight, trouble: str = ""
) -> TableRow:
    """A row of these sights, on a stack that is not started."""

    @contextmanager
    def mixed(*given: object) -> Iterator[Mixed]:
        yield Mixed(RELEASES, SEATS, keys(folder), folder, folder)

    def play(stack: Mixed) -> Iterator[Sight]:
        yield from seen
        if trouble:
            raise DrillFailed(trouble)

    monkeypatch.setattr(run, "mixed", mixed)
    monkeypatch.setattr(run, "leaves_evidence", lambda stack: Sight("evidence", "evidence", True))
    return run.carry_out(Story("a-row", SEATS, play), RELEASES, keys(folder), folder)


def test_a_row_holds_if_everything_was_as_it_must_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = played(tmp_path, monkeypatch, Sight("this", "this", True))
    assert row.held
    assert (row.drill, row.round, row.guards_off) == ("versions:a-row", "versions", ())
    assert (row.expected, row.saw) == ("this; evidence", "this; evidence")


def test_a_row_with_one_sight_that_is_wrong_does_not_hold_and_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = played(tmp_path, monkeypatch, Sight("a", "a", True), Sight("b", "c", False))
    assert not row.held
    assert row.saw == "a; BUT c; evidence"


def test_a_row_that_could_not_be_carried_out_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = played(tmp_path, monkeypatch, Sight("a", "a", True), trouble="it did not start")
    assert not row.held
    assert row.saw == "a; BUT it could not be carried out: it did not start"


def test_a_row_that_there_is_not_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(NoSuchRow, match="no row is called rollback-gateway; there are: gateway-"):
        run_versions(tmp_path, lambda told: None, only=["rollback-*", "rollback-gateway"])


def test_a_source_tree_is_a_release_and_so_is_an_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = Path(kvairlock.__file__).resolve().parents[2]
    monkeypatch.chdir(tree)
    assert release_at(Path()) == release_at(tree)
    found = release_at(tree)
    assert (found.version, found.source) == (kvairlock.__version__, tree / "src")
    assert found.environment["PYTHONPATH"] == str(tree / "src")
    assert release_at(Path(sys.executable)).version == kvairlock.__version__


def test_what_is_no_release_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(DrillFailed, match="neither a source tree"):
            release_at(path)
    (tmp_path / "src" / "kvairlock").mkdir(parents=True)
    with pytest.raises(DrillFailed, match="has no kvairlock: what is imported is"):
        release_at(tmp_path)


def test_settings_are_written_in_the_words_of_the_release() -> None:
    new = this_release()
    assert "[commitment]\ncontext_tokens = 640" in new.front(640)
    assert new.gateway_options(Path("state")) == ("--state", "state")
