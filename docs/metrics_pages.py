"""What docs/metrics.md shows of metrics, alerts and panels: printed from what they are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml  # type: ignore[import-untyped]
from pages import code, table

from kvairlock.metrics.panels import SECTIONS
from kvairlock.metrics.shipped import ALERTS
from kvairlock.metrics.table import LABELS, METRICS, Shown, exposed


def metrics() -> str:
    """Return the table of all metrics."""
    return table(("metric", "kind", "labels", "what it says"), map(_metric, METRICS))


def _metric(name: str) -> tuple[object, ...]:
    row = METRICS[name]
    alone = " (gateway only)" if row.shown is Shown.GATEWAY else ""
    labels = ", ".join(code(label) for label in row.labels)
    return (code(exposed(name)), row.kind.value, labels, f"{row.help}{alone}")


def labels() -> str:
    """Return the closed list of labels."""
    return table(("label", "what its values are"), ((code(n), says) for n, says in LABELS.items()))


def alerts() -> str:
    """Return the table of all alerts, each with its page."""
    return table(("alert", "severity", "after", "when"), map(_alert, _rules()))


def _rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        yield from group["rules"]


def _alert(rule: dict[str, Any]) -> tuple[object, ...]:
    page = rule["annotations"]["runbook_url"].removeprefix("docs/")
    lead = (ALERTS.parents[4] / "docs" / page).read_text().split("\n\n")[1]
    after = rule.get("for", "at once")
    return (f"[{rule['alert']}]({page})", rule["labels"]["severity"], after, " ".join(lead.split()))


def panels() -> str:
    """Return the sections of the dashboard with their panels."""
    rows = ((title, "; ".join(panel.title for panel in held)) for title, held in SECTIONS.items())
    return table(("section", "panels"), rows)
