"""How runs share stacks, and what becomes of those whose stack fails; the stacks are made up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kvairlock.core.guards import Guard
from kvairlock.drills.canaries import Canaries
from kvairlock.drills.library.drill import Drill, Mode, Run
from kvairlock.drills.library.shipped import drill, parse, shipped
from kvairlock.drills.runs import runner
from kvairlock.drills.runs.judgement import Judged
from kvairlock.drills.runs.once import Once, nothing
from kvairlock.drills.runs.player import Site
from kvairlock.drills.runs.rows import Cleaned, Outcome, Row, row_of
from kvairlock.drills.runs.runner import groups_of, run_drills
from kvairlock.drills.stack import DrillFailed, Keys, Running
from kvairlock.wire.keys import Keyring
from kvairlock.wire.pseudonyms import Pseudonyms

from .drills_made import TEXT

KEY = Pseudonyms(bytes(32), days=90)
RING = Keyring.parse(f"drill {'00' * 32}\n")


def made(name: str, **changes: str) -> Drill:
    text = TEXT.replace('name = "made"', f'name = "{name}"')
    for before, after in changes.items():
        text = text.replace(before, after)
    return parse(text, name)


# Groups


def test_runs_share_a_stack_if_they_need_the_same_nodes_and_guards() -> None:
    one, two = made("one"), made("two")
    groups = groups_of([one, two])
    assert [[(r.drill.name, r.mode) for r in group.runs] for group in groups] == [
        [("one", Mode.GUARDED), ("two", Mode.GUARDED)],
        [("one", Mode.ALONE), ("two", Mode.ALONE)],
        [("one", Mode.OFF)],
        [("two", Mode.OFF)],
    ]
    assert [group.off for group in groups[:2]] == [frozenset(), {Guard.INPUT}]
    assert [group.stays_whole for group in groups] == [True, True, False, False]


def test_runs_on_other_nodes_have_a_stack_of_their_own() -> None:
    one = made("one")
    two = parse(TEXT.replace("[64, 64]", "[64, 32]").replace('"made"', '"two"'), "two")
    assert len(groups_of([one, two])) == 6


def test_no_stack_that_a_drill_breaks_is_used_for_another() -> None:
    for group in groups_of(shipped()):
        if any(run.mode is Mode.OFF for run in group.runs):
            assert len(group.runs) == 1


def test_pages_are_only_counted_where_they_are_zeroed() -> None:
    whole = {
        run.drill.name: group.stays_whole
        for group in groups_of([drill("generation"), drill("drain")])
        for run in group.runs
        if run.mode is Mode.ALONE
    }
    assert whole == {"generation": False, "drain": True}


# Stacks that are made up


@dataclass
class World:
    """Stacks that start or not, and runs that come to their end or not.

    Args:
        fails_to_start: Numbers of the starts that fail.
        breaks: Runs that do not come to their end.
    """

    fails_to_start: set[int] = field(default_factory=set)
    breaks: set[tuple[str, Mode]] = field(default_factory=set)
    started: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    canaries: list[Canaries] = field(default_factory=list)

    @contextmanager
    def running(self, settings: str, keys: Keys, folder: Path) -> Iterator[Running]:
        self.started.append(folder.name)
        if len(self.started) in self.fails_to_start:
            raise DrillFailed("the stack did not start")
        yield Running("http://nowhere", folder / "evidence", {}, folder / "log", folder / "ready")
        self.stopped.append(folder.name)

    def carry_out(self, run: Run, site: Site, canaries: Canaries) -> Once:
        self.canaries.append(canaries)
        canaries.prompt("alice", 60)
        if (run.drill.name, run.mode) in self.breaks:
            return nothing(run, "waited 30 s for something")
        fails = None if run.mode is not Mode.OFF else True
        return Once(row_of(run, Judged(fails is None, fails, ()), Outcome(), 0.1), True)

    def began(self, number: int, of: int, title: str) -> None:
        self.said.append(f"{number}/{of} {title}")

    def ended(self, row: Row) -> None:
        self.said.append(f"{row.drill} {'ok' if row.ok else 'NOT ok'}")


def make_keys(folder: Path, tenants: Mapping[str, None], scope: str) -> Keys:
    return Keys(folder / "keys", folder / "cluster", RING, KEY, dict.fromkeys(tenants, "key"))


def look(place: str, drills: list[str], site: Site) -> Cleaned:
    return Cleaned(place, tuple(drills), "looked at", {}, True)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made_up = World()
    monkeypatch.setattr(runner, "running", made_up.running)
    monkeypatch.setattr(runner, "carry_out", made_up.carry_out)
    monkeypatch.setattr(runner, "make_keys", make_keys)
    monkeypatch.setattr(runner, "look", look)
    return made_up


def test_rows_come_in_the_order_of_the_drills_whatever_shared_a_stack(
    world: World, tmp_path: Path
) -> None:
    run = run_drills([made("two"), made("one")], tmp_path, 5, world)
    assert [(row.drill, row.guards_off) for row in run.rows] == [
        (name, off) for name in ("two", "one") for off in ((), ("input",), ("input", "range"))
    ]
    assert run.ok
    assert world.started == world.stopped == ["stack-01", "stack-02", "stack-03", "stack-04"]
    assert [cleaned.drills for cleaned in run.cleaned] == [
        ("two", "one"), ("two", "one"), ("two",), ("one",),
    ]  # fmt: skip
    assert [evidence.title for evidence in run.evidence] == [
        "two, one: all guards on",
        "two, one: without input",
        "two: without input, range",
        "one: without input, range",
    ]
    assert world.said[:2] == ["1/6 two, all guards on", "two ok"]
    assert world.said[-1] == "one ok"


def test_after_a_run_that_did_not_end_the_rest_gets_a_fresh_stack(
    world: World, tmp_path: Path
) -> None:
    world.breaks.add(("one", Mode.GUARDED))
    run = run_drills([made("one"), made("two")], tmp_path, 5, world)
    assert not run.ok
    assert [(row.drill, row.held, row.ok) for row in run.rows] == [
        ("one", False, False), ("one", True, True), ("one", False, True),
        ("two", True, True), ("two", True, True), ("two", False, True),
    ]  # fmt: skip
    assert run.rows[0].message == "not carried out: waited 30 s for something"
    assert [cleaned.drills for cleaned in run.cleaned][:2] == [("one",), ("two",)]
    assert [cleaned.how for cleaned in run.cleaned][:2] == [
        "it was broken, so all of it goes",
        "looked at",
    ]


def test_a_stack_that_does_not_start_fails_all_that_would_be_done_there(
    world: World, tmp_path: Path
) -> None:
    world.fails_to_start.add(1)
    run = run_drills([made("one"), made("two")], tmp_path, 5, world)
    assert [row.message for row in run.rows if not row.ok] == [
        "not carried out: the stack did not start"
    ] * 2
    assert [row.guards_off for row in run.rows if not row.ok] == [(), ()]
    assert len(world.started) == 4, "it is not tried again for each run"
    off = [row for row in run.rows if row.failed_as_expected is not None]
    assert all(row.ok for row in off)


def test_a_run_without_its_guard_that_was_not_carried_out_has_not_failed_as_expected(
    world: World, tmp_path: Path
) -> None:
    world.breaks.add(("one", Mode.OFF))
    run = run_drills([made("one")], tmp_path, 5, world)
    assert (run.rows[-1].held, run.rows[-1].failed_as_expected, run.ok) == (False, False, False)


def test_canaries_of_the_drills_before_on_a_stack_are_known_and_each_run_has_its_own(
    world: World, tmp_path: Path
) -> None:
    run_drills([made("one"), made("two")], tmp_path, 5, world)
    first, second = world.canaries[:2]
    assert len(first.given) == 1
    assert second.given[0] == first.given[0]
    own = [canaries.given[-1].canary for canaries in world.canaries]
    assert len(set(own)) == len(own)
    world.canaries.clear()
    run_drills([made("two")], tmp_path, 5, world)
    assert world.canaries[0].given[-1].canary == own[1], "whatever else is carried out"
