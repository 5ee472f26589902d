"""Which drills a change calls for, by the map of paths that is shipped."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

import kvairlock
from kvairlock.drills.library.drill import Level, Round
from kvairlock.drills.library.selection import RiskWrong, Table, called_for, narrowed, risk
from kvairlock.drills.library.shipped import shipped

ROOT = Path(kvairlock.__file__).parents[2]
DRILLS = shipped()
EVERY = {drill.name for drill in DRILLS}
RISK = risk()
FILES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "src").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
)


def names(*paths: str) -> set[str]:
    return {drill.name for drill in called_for(paths, DRILLS).drills}


def tables(*paths: str) -> set[Table]:
    return set(called_for(paths, DRILLS).tables)


def of(*rounds: Round) -> set[str]:
    return {drill.name for drill in DRILLS if drill.round in rounds}


@pytest.mark.parametrize(
    "path", ["README.md", "docs/guards.md", "docs/pages.py", "LICENSE", "tests/core/test_pool.py"]
)
def test_documents_and_tests_call_for_nothing(path: str) -> None:
    assert names(path) == set()


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("src/kvairlock/core/memory/pool.py", of(Round.REUSE) | {"scope", "share"}),
        ("src/kvairlock/core/promise/admission.py", of(Round.CAPACITY)),
        ("src/kvairlock/gateway/routes.py", of(Round.CAPACITY)),
        (
            "src/kvairlock/core/protocol/decode/verdicts.py",
            of(Round.RECEIPT, Round.REUSE) | {"share"},
        ),
        ("src/kvairlock/core/protocol/decode/intake.py", of(Round.ACCESS, Round.CAPACITY)),
        ("src/kvairlock/transport/windows.py", of(Round.REUSE, Round.RECEIPT)),
        ("src/kvairlock/wire/tickets.py", of(Round.ACCESS, Round.RECEIPT)),
        ("src/kvairlock/gateway/keys.py", of(Round.ACCESS)),
        ("src/kvairlock/drills/runs/player.py", EVERY),
        ("src/kvairlock/drills/library/drain.toml", EVERY),
        ("src/kvairlock/drills/soak/load.py", set()),
        ("src/kvairlock/core/guards.py", EVERY),
        ("src/kvairlock/node/host.py", EVERY),
        ("src/kvairlock/some/new/thing.py", EVERY),
        ("pyproject.toml", EVERY),
    ],
)
def test_a_change_calls_for_the_drills_of_what_it_puts_at_risk(path: str, wanted: set[str]) -> None:
    assert names(path) == wanted


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("README.md", set()),
        ("src/kvairlock/gateway/keys.py", set()),
        ("src/kvairlock/wire/frames.py", {Table.VERSIONS}),
        ("src/kvairlock/transport/fences.py", {Table.FAULTS}),
        ("src/kvairlock/drills/faults/table.py", {Table.FAULTS}),
        ("src/kvairlock/drills/faults/faults.toml", {Table.FAULTS}),
        ("src/kvairlock/drills/versions/table.py", {Table.VERSIONS}),
        ("src/kvairlock/node/links.py", set(Table)),
        ("src/kvairlock/core/messages.py", set(Table)),
        ("some/new/thing", set(Table)),
    ],
)
def test_a_change_calls_for_the_tables_beside_the_drills_too(path: str, wanted: set[Table]) -> None:
    assert tables(path) == wanted


def test_several_paths_call_for_the_drills_of_each() -> None:
    wanted = of(Round.CAPACITY, Round.ACCESS)
    assert names(
        "src/kvairlock/gateway/routes.py", "README.md", "src/kvairlock/gateway/keys.py"
    ) == (wanted)
    assert names() == set()


def test_drills_keep_their_order() -> None:
    chosen = called_for(["src/kvairlock/core/guards.py"], DRILLS)
    assert chosen.drills == DRILLS


def test_every_file_of_the_package_calls_for_drills_unless_a_line_says_why_not() -> None:
    for path in FILES:
        line = RISK.line_for(path)
        if line is None:
            assert (names(path), tables(path)) == (EVERY, set(Table)), path
        elif not names(path) and not tables(path):
            assert (line.drills, line.rounds, line.levels) == ("none", (), ()), path
            assert line.why, path


def test_what_keeps_tenants_apart_is_never_under_a_line_that_calls_for_nothing() -> None:
    kept = ("core", "wire", "runtime", "transport", "node", "gateway", "sink")
    silent = {path for path in FILES if not names(path) and path.split("/")[2] in kept}
    assert silent == {"src/kvairlock/runtime/logs.py", "src/kvairlock/runtime/asking.py"}


def test_every_pattern_of_the_map_matches_something() -> None:
    found = [str(path.relative_to(ROOT)) for path in ROOT.glob("*")] + FILES
    found += [f"{folder}/x" for folder in ("docs", "tests", "benchmarks")]
    patterns = [pattern for line in RISK.line for pattern in line.paths]
    assert [p for p in patterns if not any(fnmatchcase(path, p) for path in found)] == []


def test_every_drill_that_the_map_names_exists() -> None:
    named = {name for line in RISK.line if not isinstance(line.drills, str) for name in line.drills}
    assert named <= EVERY


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[[line]]\npaths = ["a"]\ndrills = "all"', "missing required field `why`"),
        ('[[line]]\npaths = ["a"]\nwhy = "x"', "missing required field `drills`"),
        ('[[line]]\npaths = []\nwhy = "x"\ndrills = "all"', "length >= 1"),
        ('[[line]]\npaths = ["a"]\nwhy = "x"\ndrills = "some"', "Invalid"),
        (
            '[[line]]\npaths = ["a"]\nwhy = "x"\ndrills = "none"\nrounds = ["x"]',
            "Invalid enum value",
        ),
        (
            '[[line]]\npaths = ["a"]\nwhy = "x"\ndrills = "none"\ntables = ["x"]',
            "Invalid enum value",
        ),
        ('[[line]]\npath = ["a"]\nwhy = "x"\ndrills = "none"', "unknown field `path`"),
        ("[[line]", "the map of paths to drills"),
    ],
)
def test_a_map_that_is_not_understood_is_refused(text: str, why: str) -> None:
    with pytest.raises(RiskWrong, match=why):
        risk(text)


def test_the_first_line_that_matches_counts() -> None:
    text = """
[[line]]
paths = ["src/special.py"]
why = "it is special"
drills = ["drain"]

[[line]]
paths = ["src/*"]
why = "all else"
drills = "none"
rounds = ["access"]
"""
    found = {
        path: {drill.name for drill in called_for([path], DRILLS, risk(text)).drills}
        for path in ("src/special.py", "src/other.py", "elsewhere")
    }
    assert found == {
        "src/special.py": {"drain"},
        "src/other.py": of(Round.ACCESS),
        "elsewhere": EVERY,
    }


def test_rounds_and_levels_narrow_what_was_chosen() -> None:
    assert narrowed(DRILLS, (), ()) == DRILLS
    assert {d.name for d in narrowed(DRILLS, (Round.REUSE,), ())} == of(Round.REUSE)
    chosen = narrowed(DRILLS, (Round.CAPACITY, Round.REUSE), (Level.TENANTS,))
    assert {d.name for d in chosen} == {"tenants", "share", "leavers"}
