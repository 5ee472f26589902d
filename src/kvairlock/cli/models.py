"""`kvairlock models`: which models have a name, and which of them are on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kvairlock.cli.fetching import FetchFailed, by_hand, obtain
from kvairlock.cli.output import Json, Status, document, fail, say, table
from kvairlock.engine import store
from kvairlock.engine.model import RECALL
from kvairlock.engine.recall import CONTEXT_TOKENS_MAX
from kvairlock.engine.store import MB, PUBLISHED, ModelMissing, Published

app = typer.Typer(no_args_is_help=True, help="Models with a name: list them, fetch them.")

COLUMNS = ("name", "what it is", "licence", "size", "context", "state")
BUILT_IN = (RECALL, "made for tests: recalls the tokens before", "Apache-2.0", "-")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name that `models list` shows.")]


@app.command("list")
def list_(json: Json = False) -> None:
    """Print the models that can be served by name; any other GGUF file is served by its path."""
    if json:
        models = [_described(model) for model in PUBLISHED.values()]
        document({"directory": str(store.directory()), "models": models})
        return
    recall = (*BUILT_IN, _tokens(CONTEXT_TOKENS_MAX), "part of kvairlock")
    table(COLUMNS, [recall, *(_row(model) for model in PUBLISHED.values())])
    say(f"\nFetched models are kept in {store.directory()}")


@app.command()
def fetch(name: Name) -> None:
    """Get a model from PyPI, unless it is here, and print where it is kept."""
    say(str(provide(_published(name))))


@app.command()
def path(name: Name) -> None:
    """Print where a model is kept; exit status 1 if it is not here."""
    model = _published(name)
    try:
        say(str(store.require(model.name)))
    except ModelMissing as error:
        fail(str(error), status=Status.NOT_OK)


def provide(model: Published) -> Path:
    """Return the model's file; fetch it first if it is not here.

    Raises:
        typer.Exit: It could not be had; why is on stderr, and what to do.
    """
    try:
        return obtain(model)
    except FetchFailed as error:
        fail(str(error), by_hand(model), Status.NOT_OK)


def _published(name: str) -> Published:
    if name not in PUBLISHED:
        known = ", ".join(PUBLISHED)
        fail(f"no model to fetch is named {name}; there is {known}", "kvairlock models list")
    return PUBLISHED[name]


def _row(model: Published) -> tuple[str, ...]:
    return (
        model.name,
        model.description,
        model.licence,
        f"{model.size_bytes / MB:.0f} MB",
        _tokens(model.context_tokens),
        "fetched" if model.present else "not fetched",
    )


def _tokens(count: int) -> str:
    return f"{count:,} tokens"


def _described(model: Published) -> dict[str, Any]:
    return {
        "name": model.name,
        "description": model.description,
        "licence": model.licence,
        "package": f"{model.package}=={model.version}",
        "sha256": model.sha256,
        "size_bytes": model.size_bytes,
        "context_tokens": model.context_tokens,
        "path": str(model.path) if model.present else None,
    }
