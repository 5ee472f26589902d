"""`kvairlock metrics`: what is shown to Prometheus, and files for the tools around it."""

from __future__ import annotations

from typing import Annotated

import typer

from kvairlock.cli.output import Json, document, say, table
from kvairlock.metrics.dashboard import dashboard as made
from kvairlock.metrics.shipped import RUNBOOKS, rules
from kvairlock.metrics.table import METRICS, exposed

app = typer.Typer(
    no_args_is_help=True,
    help="What processes show to Prometheus; alert rules and a dashboard for it.",
)


@app.command("list")
def list_(json: Json = False) -> None:
    """Show every metric: its name, kind, labels and meaning, and who shows it."""
    if json:
        document([_document(name) for name in METRICS])
        return
    titles = ("metric", "kind", "labels", "shown by", "says")
    rows = [
        (exposed(name), row.kind.value, ", ".join(row.labels), row.shown.value, row.help)
        for name, row in METRICS.items()
    ]
    table(titles, rows, spare=("kind", "shown by"))


def _document(name: str) -> dict[str, object]:
    row = METRICS[name]
    return {
        "name": exposed(name),
        "kind": row.kind.value,
        "unit": row.unit,
        "labels": list(row.labels),
        "shown_by": row.shown.value,
        "help": row.help,
    }


@app.command("rules")
def rules_(
    runbooks: Annotated[
        str,
        typer.Option(metavar="URL", help="What the address of each runbook begins with."),
    ] = RUNBOOKS,
) -> None:
    """Print alert rules for Prometheus (YAML).

    kvairlock metrics rules > kvairlock.rules.yml
    """
    say(rules(runbooks).rstrip())


@app.command()
def dashboard() -> None:
    """Print a dashboard for Grafana (JSON), to be imported there.

    kvairlock metrics dashboard > kvairlock.json
    """
    document(made())
