"""The dashboard as the JSON that Grafana imports, made from the table of panels.

Which Prometheus it asks is chosen when it is opened, so that it fits every installation.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from string import ascii_uppercase
from typing import Any

from kvairlock.metrics.panels import SECTIONS, Look, Panel

COLUMNS = 24
HEIGHTS = {Look.FIGURE: 4, Look.CURVES: 8, Look.STATES: 8, Look.TABLE: 8}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA = 39
"""Version of Grafana's format, of Grafana 11."""

Json = dict[str, Any]


def dashboard() -> Json:
    """Return the dashboard."""
    return {
        "uid": "kvairlock",
        "title": "kvairlock: isolation and what it costs",
        "description": "Made by `kvairlock metrics dashboard`; docs/metrics.md says what each is.",
        "tags": ["kvairlock"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_datasource(), _node()]},
        "panels": list(_panels()),
    }


def _datasource() -> Json:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _node() -> Json:
    return {
        "name": "node",
        "label": "Node",
        "type": "query",
        "datasource": SOURCE,
        "query": "label_values(kvairlock_pages, node)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> Iterator[Json]:
    """Put panels side by side, from the left, as long as they fit."""
    numbers, top = count(1), 0
    for section, panels in SECTIONS.items():
        yield {
            "id": next(numbers),
            "type": "row",
            "title": section,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
            "panels": [],
        }
        top, left, tallest = top + 1, 0, 0
        for panel in panels:
            if left + panel.width > COLUMNS:
                top, left, tallest = top + tallest, 0, 0
            yield _panel(panel, next(numbers), left, top)
            left, tallest = left + panel.width, max(tallest, HEIGHTS[panel.look])
        top += tallest


def _panel(panel: Panel, number: int, left: int, top: int) -> Json:
    return {
        "id": number,
        "type": panel.look.value,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": {"x": left, "y": top, "w": panel.width, "h": HEIGHTS[panel.look]},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "thresholds": _thresholds(panel)},
            "overrides": [],
        },
        "targets": [
            {
                "refId": letter,
                "datasource": SOURCE,
                "expr": query.text,
                "legendFormat": query.legend,
                **({"format": "table", "instant": True} if panel.look is Look.TABLE else {}),
            }
            for letter, query in zip(ascii_uppercase, panel.queries, strict=False)
        ],
    }


def _thresholds(panel: Panel) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    if panel.bad is not None:
        steps.append({"color": "red", "value": panel.bad})
    return {"mode": "absolute", "steps": steps}
