"""`kvairlock metrics`: the table, and files as the tools read them."""

from __future__ import annotations

import json

import yaml  # type: ignore[import-untyped]
from typer.testing import CliRunner

from kvairlock.cli import app
from kvairlock.metrics.dashboard import dashboard
from kvairlock.metrics.shipped import ALERTS
from kvairlock.metrics.table import METRICS, exposed


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["metrics", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_list_has_every_metric() -> None:
    told = json.loads(printed("list", "--json"))
    assert [row["name"] for row in told] == [exposed(name) for name in METRICS]
    assert all(row["help"] and row["shown_by"] in ("gateway", "everybody") for row in told)
    text = printed("list")
    assert all(exposed(name) in text for name in METRICS)


def test_rules_are_the_file_with_runbooks_where_they_are_published() -> None:
    assert printed("rules").strip() == ALERTS.read_text().strip()
    moved = yaml.safe_load(printed("rules", "--runbooks", "https://wiki.example/kvairlock/"))
    urls = [r["annotations"]["runbook_url"] for g in moved["groups"] for r in g["rules"]]
    assert all(url.startswith("https://wiki.example/kvairlock/") for url in urls)
    assert "https://wiki.example/kvairlock/node-down.md" in urls


def test_the_dashboard_is_what_the_table_makes() -> None:
    assert json.loads(printed("dashboard")) == dashboard()
