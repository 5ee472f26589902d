"""`kvairlock soak`: many tenants, more load than memory, clients that leave; nothing may remain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvairlock.cli.models import provide
from kvairlock.cli.output import Json, fail
from kvairlock.cli.stopping import stopped_in_order
from kvairlock.core.guards import Guard
from kvairlock.core.terms import LandingPolicy
from kvairlock.drills.soak.run import Setting, run
from kvairlock.engine.model import RECALL, UnknownModel, load_tokenizer
from kvairlock.engine.store import PUBLISHED
from kvairlock.runtime.settings import located_model

SEED = 2026
ALL = "all"


def soak(
    requests: Annotated[
        int | None,
        typer.Option(min=1, help="Requests to make; 1000 if left out, 60 of a trained model."),
    ] = None,
    tenants: Annotated[int, typer.Option(min=2, max=64, help="Tenants that ask.")] = 8,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Requests at one time.")] = 32,
    model: Annotated[
        str, typer.Option(metavar="NAME|FILE.gguf", help="The model to serve.")
    ] = RECALL,
    seed: Annotated[int, typer.Option(help="What the requests are drawn from.")] = SEED,
    landing: Annotated[
        LandingPolicy | None,
        typer.Option(
            help="How remote writes become pages; if left out copy, or direct with a guard off."
        ),
    ] = None,
    guards_off: Annotated[
        str, typer.Option(metavar="A,B", help="Guards that do not enforce, or `all`.")
    ] = "",
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep evidence, settings and log here; must be empty."),
    ] = None,
    json: Json = False,
) -> None:
    """Load a stack of its own and judge every answer; exit status 0 if nothing leaked or remained.

    Each prompt holds a canary. A third of the clients leave early. Afterwards no page, window,
    request or file may be left, and the evidence must be whole.
    """
    off = _guards(guards_off)
    if keep is not None and keep.exists() and any(keep.iterdir()):
        fail(f"{keep}: is not empty", "name a folder that is empty, or that does not exist")
    usual = LandingPolicy.DIRECT if off else LandingPolicy.COPY
    setting = Setting(_model(model), requests, tenants, concurrency, seed, off, landing or usual)
    with stopped_in_order():
        raise typer.Exit(run(setting, json=json, keep=keep))


def _model(choice: str) -> str:
    """Return a model that can be served, fetched first if need be; end the command otherwise."""
    located = located_model(choice, Path.cwd())
    if located in PUBLISHED:
        provide(PUBLISHED[located])
    try:
        load_tokenizer(located)
    except UnknownModel as error:
        fail(str(error), "`kvairlock models list` shows names")
    return located


def _guards(names: str) -> tuple[Guard, ...]:
    if names == ALL:
        return tuple(Guard)
    words = [word.strip() for word in names.split(",") if word.strip()]
    unknown = [word for word in words if word not in list(Guard)]
    if unknown:
        fail(f"no guard {', '.join(unknown)}", "`kvairlock guards` lists them")
    return tuple(Guard(word) for word in words)
