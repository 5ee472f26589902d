"""Alerts: each fires when it should, and only then, and says where its page is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml  # type: ignore[import-untyped]

from kvairlock.cli import app
from kvairlock.core.errors import Reason
from kvairlock.core.protocol.ledger import VIOLATIONS
from kvairlock.metrics.queries import labels_in, names_in
from kvairlock.metrics.shipped import ALERTS
from kvairlock.metrics.table import LABELS, METRICS, exposed, series
from tests.promtool import Promtool

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RUNBOOKS = ROOT / "docs" / "runbooks"
RULES: dict[str, Any] = {
    rule["alert"]: rule
    for group in yaml.safe_load(ALERTS.read_text())["groups"]
    for rule in group["rules"]
}
STORIES: list[dict[str, Any]] = yaml.safe_load((HERE / "alert_stories.yml").read_text())
each_rule = pytest.mark.parametrize("name", RULES)


def filled(text: str, labels: dict[str, str]) -> str:
    return re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels.get(found[1], ""), text)


def expected(rule: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    """What promtool has to see of an alert: its labels with its severity, and its words."""
    words = {name: filled(text, labels) for name, text in rule["annotations"].items()}
    return {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": words}


def test_of(story: dict[str, Any]) -> dict[str, Any]:
    rule = RULES[story["alert"]]
    return {
        "name": f"{story['alert']}: {story['says']}",
        "interval": "1m",
        "input_series": [{"series": s, "values": v} for s, v in story["series"].items()],
        "alert_rule_test": [
            {
                "eval_time": story["at"],
                "alertname": story["alert"],
                "exp_alerts": [expected(rule, labels) for labels in story["fires"]],
            }
        ],
    }


test_of.__test__ = False  # type: ignore[attr-defined]


def test_the_rules_are_valid(promtool: Promtool) -> None:
    done = promtool("check", "rules", str(ALERTS))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


def test_every_alert_fires_in_its_story_and_not_in_the_other(
    promtool: Promtool, tmp_path: Path
) -> None:
    told = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": "1m",
        "tests": [test_of(story) for story in STORIES],
    }
    file = tmp_path / "stories.yml"
    file.write_text(yaml.safe_dump(told, sort_keys=False))
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_story_that_is_not_true_fails(promtool: Promtool, tmp_path: Path) -> None:
    story = next(s for s in STORIES if s["fires"])
    told = {"rule_files": [str(ALERTS)], "tests": [test_of({**story, "fires": []})]}
    file = tmp_path / "wrong.yml"
    file.write_text(yaml.safe_dump(told))
    assert promtool("test", "rules", str(file)).returncode != 0


@each_rule
def test_every_alert_has_a_story_in_which_it_fires_and_one_in_which_it_does_not(name: str) -> None:
    fires = [bool(story["fires"]) for story in STORIES if story["alert"] == name]
    assert True in fires
    assert False in fires


@each_rule
def test_an_alert_asks_for_what_is_shown_and_says_how_bad_it_is(name: str) -> None:
    rule = RULES[name]
    asked = names_in(rule["expr"])
    assert asked
    assert asked <= series().keys()
    known = {label for asked_for in asked for label in METRICS[series()[asked_for]].labels}
    assert labels_in(rule["expr"]) <= known | {"instance", "le"}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert named <= LABELS.keys()


@each_rule
def test_every_alert_has_a_runbook_with_its_name(name: str) -> None:
    page = ROOT / RULES[name]["annotations"]["runbook_url"]
    assert page.parent == RUNBOOKS
    text = page.read_text()
    assert text.startswith(f"# {name}\n")
    for part in ("What it means", "How to look", "What to do", "What never to do"):
        assert f"\n## {part}\n" in text


def test_every_runbook_belongs_to_an_alert() -> None:
    pages = {RUNBOOKS / Path(rule["annotations"]["runbook_url"]).name for rule in RULES.values()}
    assert set(RUNBOOKS.glob("*.md")) - {RUNBOOKS / "README.md"} == pages


def test_all_violations_of_a_hand_over_raise_the_alarm() -> None:
    (asked,) = re.findall(r'outcome=~"([^"]+)"', RULES["KvairlockHandoverRefused"]["expr"])
    assert set(asked.split("|")) == {str(r) for r in VIOLATIONS - {Reason.INVARIANT}}


def quoted(page: Path) -> list[str]:
    """What a page names between backticks, each in one line."""
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", page.read_text())]


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda page: page.stem)
def test_a_runbook_names_commands_options_and_metrics_that_exist(page: Path) -> None:
    for code in quoted(page):
        if code.startswith("kvairlock "):
            command: Any = typer.main.get_command(app)
            words = code.split()[1:]
            while words and hasattr(command, "commands"):
                assert words[0] in command.commands, code
                command = command.commands[words.pop(0)]
            options = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= options, code
        for name in names_in(code):
            assert name in {*series(), *map(exposed, METRICS)}, code
