"""The dashboard: what Grafana needs is there, and it asks only for what is shown."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from kvairlock.metrics.dashboard import COLUMNS, SOURCE, dashboard
from kvairlock.metrics.panels import SECTIONS, Look
from kvairlock.metrics.queries import labels_in, names_in
from kvairlock.metrics.table import METRICS, exposed, series
from tests.promtool import Promtool

MADE: dict[str, Any] = json.loads(json.dumps(dashboard()))
PANELS: list[dict[str, Any]] = [p for p in MADE["panels"] if p["type"] != "row"]
QUERIES: list[str] = [target["expr"] for panel in PANELS for target in panel["targets"]]
each_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    numbers = [panel["id"] for panel in MADE["panels"]]
    assert len(set(numbers)) == len(numbers)
    places = [panel["gridPos"] for panel in MADE["panels"]]
    for one, other in combinations(places, 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart or below, (one, other)
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)


def test_the_viewer_chooses_the_source_and_the_nodes() -> None:
    variables = {each["name"]: each for each in MADE["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert names_in(variables["node"]["query"]) <= series().keys()
    sources = [panel["datasource"] for panel in PANELS]
    sources += [target["datasource"] for panel in PANELS for target in panel["targets"]]
    assert all(source == SOURCE for source in sources)


@each_panel
def test_a_panel_asks_for_what_is_shown(panel: dict[str, Any]) -> None:
    assert panel["description"]
    letters = [target["refId"] for target in panel["targets"]]
    assert len(set(letters)) == len(letters)
    for target in panel["targets"]:
        asked = names_in(target["expr"])
        assert asked
        assert asked <= series().keys()
        known = {label for name in asked for label in METRICS[series()[name]].labels}
        assert labels_in(target["expr"]) <= known | {"le"}


def test_every_query_can_be_read(promtool: Promtool, tmp_path: Path) -> None:
    filled = [q.replace("$__rate_interval", "5m").replace("$node", ".*") for q in QUERIES]
    assert not any("$" in query for query in filled)
    rules = [{"record": f"panel:{n}", "expr": query} for n, query in enumerate(filled)]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(QUERIES)} rules found" in done.stdout


def test_what_operators_must_see_on_one_page_is_there() -> None:
    asked = set().union(*map(names_in, QUERIES))
    for name in (
        "pages",
        "refusals",
        "page_reads",
        "relaxed",
        "breaker",
        "commitment_tokens",
        "route_tokens",
        "fences",
        "evidence_lost",
        "node_up",
    ):
        wanted = exposed(name) if name != "fences" else "kvairlock_drain_wait_seconds_count"
        assert wanted in asked


def test_safety_and_its_cost_stand_first_and_on_one_view() -> None:
    first, *_ = SECTIONS.values()
    assert {panel.look for panel in first} == {Look.FIGURE, Look.CURVES}
    asked = set().union(*(names_in(query.text) for panel in first for query in panel.queries))
    assert {"kvairlock_page_reads_total", "kvairlock_pages"} <= asked
    assert "kvairlock_drain_wait_seconds_bucket" in asked
