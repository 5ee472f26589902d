"""The drills that are shipped, and what a file must say to be a drill at all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvairlock.core.guards import Guard
from kvairlock.drills.library.checks import DrillWrong
from kvairlock.drills.library.drill import Drill, Level, Mode, Round
from kvairlock.drills.library.shipped import drill, parse, read, shipped
from kvairlock.drills.library.sights import SIGHTS, Sight
from kvairlock.drills.library.steps import Arm
from kvairlock.runtime.failpoints import Flaw
from kvairlock.runtime.settings import parse as parse_settings
from kvairlock.sim import setup
from kvairlock.sim.mutants import MUTANTS

from .drills_made import TEXT

DRILLS = shipped()
each_drill = pytest.mark.parametrize("known", DRILLS, ids=[known.name for known in DRILLS])

BY_MOVES = {setup.Flaw.NONE, setup.Flaw.HANGS, setup.Flaw.EARLY}
"""Flaws that need no word for processes: `hangs` is a held write, `early` no mutant's."""

SEEN_IN_MEMORY = {Guard.TAIL, Guard.SCRUB}
"""Guards that refuse nothing and record nothing: what the receiver's memory holds shows it."""


# What is shipped


def test_every_guard_has_a_drill_of_its_name_that_is_about_it_alone() -> None:
    about = {known.name: known.about for known in DRILLS if len(known.about) == 1}
    assert about == {str(guard): {guard} for guard in Guard}


def test_every_round_and_every_level_has_drills() -> None:
    assert {known.round for known in DRILLS} == set(Round)
    assert {known.level for known in DRILLS} == set(Level)


@each_drill
def test_without_its_guards_something_else_is_seen_than_with_them(known: Drill) -> None:
    for sighting in known.shows:
        same = [h for h in known.holds if h.request in (sighting.request, "every")]
        assert sighting.sight not in {wanted.sight for wanted in same}
    assert bool(known.shows) is bool(known.about)


@each_drill
def test_a_drill_of_a_guard_asserts_what_the_receiver_recorded(known: Drill) -> None:
    if len(known.about) == 1:
        recorded = any(wanted.recorded for wanted in known.holds)
        assert recorded is not bool(known.about & SEEN_IN_MEMORY)


@each_drill
def test_the_stack_of_a_drill_can_be_served_with_its_guards_off(known: Drill) -> None:
    for run in known.runs():
        settings = parse_settings(known.stack.settings(run.off))
        assert set(settings.drill.guards_off) == run.off
        assert set(settings.nodes) == set(known.stack.nodes)
        assert settings.drill.enabled


def test_drills_have_the_shadows_of_their_mutants_or_say_why_not() -> None:
    mutants = {str(mutant.guard): mutant.shadows for mutant in MUTANTS}
    for known in DRILLS:
        same = known.name not in mutants or set(known.shadows) == mutants[known.name]
        assert same or known.note, known.name


def test_every_flaw_of_the_simulator_can_be_done_by_a_process_and_every_one_is_drilled() -> None:
    assert {flaw.name for flaw in setup.Flaw} - {flaw.name for flaw in Flaw} == {
        flaw.name for flaw in BY_MOVES
    }
    armed = {step.point for known in DRILLS for step in known.steps if isinstance(step, Arm)}
    assert {str(flaw) for flaw in Flaw} <= armed


def test_a_drill_is_carried_out_guarded_alone_and_off() -> None:
    ticket, scrub, nodes, tenants = map(drill, ("ticket", "scrub", "nodes", "tenants"))
    assert [(run.mode, run.off) for run in ticket.runs()] == [
        (Mode.GUARDED, frozenset()),
        (Mode.ALONE, {Guard.STRIP}),
        (Mode.OFF, {Guard.STRIP, Guard.TICKET}),
    ]
    assert [(run.mode, run.off) for run in scrub.runs()] == [
        (Mode.ALONE, frozenset()),
        (Mode.OFF, {Guard.SCRUB}),
    ]
    assert [run.mode for run in nodes.runs()] == [Mode.GUARDED, Mode.ALONE]
    assert tenants.runs()[-1].off == frozenset(Guard)


def test_every_sight_has_words() -> None:
    assert set(SIGHTS) == set(Sight)


# What a file must say


def test_a_drill_of_ones_own_is_called_what_its_file_is_called(tmp_path: Path) -> None:
    file = tmp_path / "made.toml"
    file.write_text(TEXT)
    assert read(file).tenants == ("alice", "bob")
    file.rename(tmp_path / "other.toml")
    with pytest.raises(DrillWrong, match=r"^other: it calls itself made$"):
        read(tmp_path / "other.toml")
    with pytest.raises(DrillWrong, match="No such file"):
        read(file)


def test_a_name_that_is_no_drill_is_told_which_there_are() -> None:
    with pytest.raises(DrillWrong, match=r"^nope: there is no such drill; there are: capacity, "):
        drill("nope")
    with pytest.raises(DrillWrong, match=r"^risk: there is no such drill"):
        drill("risk")


PARTS = {"steps": ("steps = [", "[limits]"), "limits": ("[limits]", "[[holds]]")}
PARTS["holds"] = ("[[holds]]", "[[shows]]")


@pytest.mark.parametrize("field", PARTS)
def test_every_part_is_required(field: str) -> None:
    first, next_ = (TEXT.index(part) for part in PARTS[field])
    with pytest.raises(DrillWrong, match=rf"missing required field `{field}`"):
        parse(TEXT[:first] + TEXT[next_:], "made")


LINES = ["name", "title", "round", "level", "guards", "shadows", "stack"]
LIMITS = ["tenants_max", "requests_max", "prompt_tokens", "seconds_max", "retention_h"]


@pytest.mark.parametrize("field", [*LINES, *LIMITS])
def test_every_line_is_required(field: str) -> None:
    line = re.compile(rf"^{field} = .*\n", re.MULTILINE)
    assert line.search(TEXT)
    with pytest.raises(DrillWrong, match=rf"missing required field `{field}`"):
        parse(line.sub("", TEXT), "made")


WRONG = [
    ('title = "a made-up drill"', "titel = 1", "unknown field `titel`"),
    ('round = "receipt"', 'round = "reciept"', "Invalid enum value 'reciept'"),
    ("level = 2", "level = 4", "Invalid enum value 4"),
    ('guards = ["range"]', 'guards = ["ranges"]', "Invalid enum value 'ranges'"),
    ('guards = ["range"]', 'guards = "every"', r"at `\$.guards`"),
    ('shadows = ["input"]', 'shadows = ["range"]', "range cannot be its own shadow"),
    ('guards = ["range"]', "guards = []", "`shows` says what is seen without its guards"),
    ("[34, 128]", "[128, 34]", "prompt_tokens from 128 to 34"),
    ("[34, 128]", "[34, 100]", "a prompt of 120 tokens is beyond limits.prompt_tokens, 34 to 100"),
    ("tenants_max = 2", "tenants_max = 1", "2 tenants are beyond limits.tenants_max, 1"),
    ("requests_max = 3", "requests_max = 1", "2 requests are beyond limits.requests_max, 1"),
    ("seconds_max = 60", "seconds_max = 0", r"`int` >= 1 - at `\$.limits.seconds_max`"),
    ("prefill_pages = [64, 64]", "pages = 64", "unknown field `pages`"),
    ('do = "arm"', 'do = "disarm"', "Invalid value 'disarm'"),
    ('point = "prefill.short" },\n    { do = "ask"', 'point = "x" },\n    { do = "ask"',
     "step 1: no failpoint is called x"),
    ('node = "prefill-0", point = "prefill.short" },\n    { do = "ask"',
     'node = "prefill-2", point = "prefill.short" },\n    { do = "ask"',
     "step 1: no node is called prefill-2; there are: prefill-0, prefill-1, decode-0"),
    ('route = "prefill-0/decode-0"', 'route = "prefill-0/decode-1"',
     "step 2: no route is called prefill-0/decode-1"),
    ('request = "b"', 'request = "a"', "step 3: a request cannot be called a here"),
    ('request = "b"', 'request = "every"', "step 3: a request cannot be called every here"),
    ('{ do = "answered", request = "a" }', '{ do = "answered", request = "c" }',
     "step 4: no request asked before is called c; there are: a, b"),
    ('tenant = "bob" }', 'tenant = "bob", ticket_of = "c" }',
     "step 3: no request asked before is called c"),
    ('tenant = "bob" }', 'tenant = "bob", same_as = "a", characters = 50 }',
     "step 3: the length of a prompt is said once"),
    ('tenant = "bob" }', 'tenant = "bob", over = 1 }', "step 3: `over` goes with `fills`"),
    ('tenant = "bob" }', 'tenant = "bob", fills = "decode" }', "needs a `route`"),
    ('tenant = "bob" }', 'tenant = "bob", fills = "pool" }', "Invalid enum value 'pool'"),
    ('tenant = "bob" }', 'tenant = "bob", alike = 100 }', "a prompt takes 34 characters"),
    ('{ do = "answered", request = "a" }', '{ do = "recorded", events = ["verdicts"] }',
     "step 4: no event is called verdicts"),
    ('{ do = "answered", request = "a" }', '{ do = "stop", node = "gateway" }',
     "step 4: no node is called gateway"),
    ('{ do = "answered", request = "a" }', '{ do = "stop", node = "decode-0" }',
     "decode-0 is stopped and never goes on"),
    ('    { do = "release", node = "prefill-0", point = "prefill.short" },\n', "",
     "prefill.short of prefill-0 is armed and never released"),
    ('reason = "range"\nstage = "verdict"\n', "", "a: a refusal has a `reason`"),
    ('sight = "refused"', 'sight = "own"', "a: a refusal has a `reason`, and nothing else"),
    ('sight = "wrong"', 'sight = "refused"', "what must be seen without its guards is what"),
    ('sight = "wrong"', 'sight = "gone"', "Invalid enum value 'gone'"),
    ('[[shows]]\nrequest = "a"', '[[shows]]\nrequest = "c"', "no request is called c"),
    ('event = "verdict", request = "a"', 'event = "verdict", request = ""',
     "verdict: it names a request exactly if the event is about one"),
    ('event = "verdict", request = "a"', 'event = "beat", request = "a"', "no field of beat"),
    ("outcome =", "result =", "no field of verdict is called result"),
    ('recorded = { node = "decode-0"', 'recorded = { node = "decode-1"', "called decode-1"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "why"), WRONG, ids=[why for _, _, why in WRONG])
def test_what_makes_no_sense_is_refused_with_its_place(before: str, after: str, why: str) -> None:
    assert before in TEXT
    parse(TEXT, "made")
    with pytest.raises(DrillWrong, match=why) as refused:
        parse(TEXT.replace(before, after, 1), "made")
    assert str(refused.value).startswith("made: ")


def test_what_is_no_toml_is_refused() -> None:
    with pytest.raises(DrillWrong, match=r"^made: not TOML: "):
        parse("name = ", "made")
