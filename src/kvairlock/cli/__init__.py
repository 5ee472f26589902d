"""The `kvairlock` command. Each module below is one command or one group of them."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated

import typer

from kvairlock import __version__
from kvairlock.cli import (
    audit,
    capacity,
    cases,
    check,
    config,
    cost,
    coverage,
    demo,
    drill,
    evidence,
    explain,
    explore,
    guards,
    keys,
    metrics,
    models,
    recover,
    serve,
    soak,
    swarm,
)
from kvairlock.cli.output import Status, trouble
from kvairlock.core.errors import KvairlockError

app = typer.Typer(
    name="kvairlock",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",  # fills paragraphs; else lines break where the source does
    pretty_exceptions_enable=False,
    help="Serve LLMs with prefill and decode apart; no tenant's cache gets into another's answer.",
    epilog="Exit status: 0 fine, 1 what was reported on is not, 2 wrong options or settings, "
    "3 nothing is known to be wrong, and evidence is missing, 70 kvairlock itself failed.",
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"kvairlock {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options before any command."""


app.command()(demo.demo)
app.command()(drill.drill)
app.command()(soak.soak)
app.command()(cost.cost)
app.command()(serve.serve)
app.command()(check.check)
app.command()(capacity.capacity)
app.command()(guards.guards)
app.command()(coverage.coverage)
app.command()(explore.explore)
app.command()(swarm.swarm)
app.command()(cases.cases)
app.command()(recover.recover)
app.command()(explain.explain)
app.add_typer(recover.app, name="breaker")
app.add_typer(config.app, name="config")
app.add_typer(models.app, name="models")
app.add_typer(keys.app, name="keys")
app.add_typer(evidence.app, name="evidence")
app.add_typer(metrics.app, name="metrics")
app.add_typer(audit.app, name="audit")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; errors that users can do something about are one line.

    Args:
        arguments: What follows the program's name; those of this process if None.
    """
    try:
        app(arguments, prog_name="kvairlock")
    except KvairlockError as error:
        trouble(str(error))
        sys.exit(Status.WRONG)
    except OSError as error:
        trouble(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        sys.exit(Status.WRONG)
    except Exception:
        # Python would end with 1, and 1 says something of what was to be reported on.
        traceback.print_exc()
        sys.exit(Status.FAILED)
