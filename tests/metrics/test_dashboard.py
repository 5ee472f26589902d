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


def filled(query: str) -> str:
    """A query as Grafana asks it, of all nodes."""
    return query.replace("$__rate_interval", "5m").replace("$node", ".*")


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
    rules = [{"record": f"panel:{n}", "expr": filled(query)} for n, query in enumerate(QUERIES)]
    assert not any("$" in rule["expr"] for rule in rules)
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
        assert exposed(name) in asked


def test_safety_and_its_cost_stand_first_and_on_one_view() -> None:
    first, *_ = SECTIONS.values()
    assert {panel.look for panel in first} == {Look.FIGURE, Look.CURVES}
    asked = set().union(*(names_in(query.text) for panel in first for query in panel.queries))
    assert {"kvairlock_page_reads_total", "kvairlock_pages", "kvairlock_fences_total"} <= asked
    assert "kvairlock_drain_wait_seconds_bucket" in asked


def test_what_a_node_and_the_gateway_both_show_is_taken_once(
    promtool: Promtool, tmp_path: Path
) -> None:
    node = 'node="d",role="decode"'
    build = f'kvairlock_build_info{{{node},version="2",model="m",revision="1"'
    waits = f'kvairlock_handover_seconds_bucket{{{node},length="256",outcome="admitted"'
    fences = f"kvairlock_fences_total{{{node}"
    series = {
        f'kvairlock_pages{{{node},stage="free",instance="n"}}': "60x10",
        f'kvairlock_pages{{{node},stage="draining",instance="n"}}': "40x10",
        f'kvairlock_pages{{{node},stage="free",instance="g"}}': "80x10",
        f'kvairlock_pages{{{node},stage="draining",instance="g"}}': "20x10",
    }
    for instance in ("n", "g"):
        series |= {
            f'{build},instance="{instance}"}}': "1x10",
            f'{waits},le="0.1",instance="{instance}"}}': "0+60x10",
            f'{waits},le="+Inf",instance="{instance}"}}': "0+60x10",
            f'{fences},memory="lease",fence="local",instance="{instance}"}}': "0+10x10",
            f'{fences},memory="window",fence="sealed",instance="{instance}"}}': "0+10x10",
        }
    expected: dict[str, dict[str, float]] = {
        "Pages by stage": {'{stage="free"}': 70, '{stage="draining"}': 30},
        "Share of the pages that wait to be free": {'{node="d"}': 0.3},
        "Share of the releases, by evidence": {'{fence="local"}': 0.5, '{fence="sealed"}': 0.5},
        "Hand-over by release": {'{version="2"}': 0.095},
        "What runs": {'{node="d",role="decode",version="2",model="m",revision="1"}': 1},
    }
    queries = {panel["title"]: panel["targets"][0]["expr"] for panel in PANELS}
    told = {
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": s, "values": v} for s, v in series.items()],
                "promql_expr_test": [
                    {
                        "expr": filled(queries[title]),
                        "eval_time": "9m",
                        "exp_samples": [{"labels": s, "value": v} for s, v in samples.items()],
                    }
                    for title, samples in expected.items()
                ],
            }
        ]
    }
    file = tmp_path / "once.yml"
    file.write_text(yaml.safe_dump(told, sort_keys=False))
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
