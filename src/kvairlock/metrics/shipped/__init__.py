"""Files for the tools that are already there: alerts as Prometheus reads them."""

from __future__ import annotations

from pathlib import Path

ALERTS = Path(__file__).parent / "alerts.yml"
"""The alert rules."""

RUNBOOKS = "docs/runbooks/"
"""Where the rules say that their pages are: a path in this repository, until somebody says where
the pages are published."""


def rules(runbooks: str = RUNBOOKS) -> str:
    """Return the alert rules.

    Args:
        runbooks: What the address of each runbook begins with.
    """
    return ALERTS.read_text().replace(f"runbook_url: {RUNBOOKS}", f"runbook_url: {runbooks}")
