"""The page's files: what they may ask for, and that they know what the code knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvairlock.core.memory.page import PageStage
from kvairlock.core.promise.breaker import BreakerState
from kvairlock.core.protocol.handoff import HandoffStage
from kvairlock.gateway.console import shell

FILES = shell.assets()
TEXTS = {name: asset.body.decode() for name, asset in FILES.items()}
SCRIPTS = {name: text for name, text in TEXTS.items() if name.endswith(".js")}
STAGES = {stage.name.lower() for stage in PageStage}


def test_every_file_in_the_folder_is_served() -> None:
    folder = Path(shell.__file__).parent / "static"
    assert {path.name for path in folder.iterdir()} == set(FILES)


def test_every_file_that_is_named_exists_and_every_one_is_named() -> None:
    named = set(re.findall(r'"/console/([\w.-]+)"', TEXTS["index.html"]))
    for text in SCRIPTS.values():
        named |= set(re.findall(r'from "\./([\w.-]+)"', text))
    assert named | {"index.html"} == set(FILES)


def test_nothing_is_asked_of_another_host() -> None:
    for name, text in TEXTS.items():
        found = re.findall(r"https?://[\w./-]+", text)
        assert not set(found) - {"http://www.w3.org/2000/svg"}, name


def test_no_code_and_no_style_stands_in_the_page() -> None:
    page = TEXTS["index.html"]
    assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:", page)
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL) == [""]
    assert "'unsafe" not in shell.POLICY


@pytest.mark.parametrize("way", ["innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "write("])
def test_text_never_becomes_markup_or_code(way: str) -> None:
    assert not [name for name, text in SCRIPTS.items() if way in text]


def test_every_stage_of_a_page_has_a_look_of_its_own() -> None:
    table = TEXTS["stages.js"].split("export const UNKNOWN")[0]
    rows = re.findall(
        r'^  (\w+): \{ letter: "(.?)", mark: "(\w+)", meaning: "(.+)" \}', table, re.M
    )
    assert {name for name, *_ in rows} == STAGES
    letters = [letter for _, letter, *_ in rows]
    assert len(set(letters)) == len(letters)
    for theme in (0, 1):
        colours = [colours_of(name)[theme] for name in STAGES]
        assert len(set(colours)) == len(STAGES)
    assert set(re.findall(r"^\.stage-(\w+) \{", TEXTS["style.css"], re.M)) == STAGES


def colours_of(stage: str) -> tuple[str, str]:
    pattern = rf"--stage-{stage}: light-dark\((#\w+), (#\w+)\)"
    ((light, dark),) = re.findall(pattern, TEXTS["style.css"])
    return light, dark


def test_the_stages_of_the_hand_over_and_of_breakers_are_known() -> None:
    flow = re.search(r"const FLOW = \[(.*?)\]", TEXTS["sections.js"])
    assert flow is not None
    assert re.findall(r'"(\w+)"', flow[1]) == [stage.value for stage in HandoffStage]
    moods = re.search(r"const YES_NO = \{(.*?)\}", TEXTS["sections.js"])
    assert moods is not None
    assert set(re.findall(r"(\w+):", moods[1])) == {state.value for state in BreakerState}


def test_every_table_that_is_filled_is_in_the_page() -> None:
    filled = set(re.findall(r'table: "([\w-]+)"', TEXTS["sections.js"]))
    tables = set(re.findall(r'<table id="([\w-]+)"', TEXTS["index.html"]))
    assert len(filled) > 8
    assert filled <= tables
