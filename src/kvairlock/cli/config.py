"""`kvairlock config`: look at settings before anything starts."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from kvairlock.cli.output import Json, Status, document, fail, say
from kvairlock.cli.settings_text import toml
from kvairlock.engine.model import UnknownModel, load_tokenizer
from kvairlock.engine.store import ModelMissing
from kvairlock.engine.unusable import ModelUnusable
from kvairlock.runtime import settings as settings_file
from kvairlock.runtime.settings import Settings, SettingsWrong

EXAMPLE_HINT = "`kvairlock config example` prints every setting with what it means"

app = typer.Typer(no_args_is_help=True, help="Check, show and write settings files (TOML).")

File = Annotated[Path, typer.Argument(metavar="FILE", help="Settings in TOML.")]
FileOrNone = Annotated[
    Path | None, typer.Argument(metavar="[FILE]", help="Settings in TOML; defaults if left out.")
]


def read(path: Path | None) -> Settings:
    """Read settings, or take the defaults if there is no file.

    Raises:
        typer.Exit: They cannot be used; why is on stderr.
    """
    if path is None:
        return Settings()
    try:
        return settings_file.load(path)
    except SettingsWrong as error:
        fail(located(path, error), EXAMPLE_HINT)


def located(path: Path, error: Exception) -> str:
    """Return the error's message with the file in front, once."""
    message = str(error)
    return message if message.startswith(f"{path}: ") else f"{path}: {message}"


@app.command()
def check(file: File, json: Json = False) -> None:
    """Say whether a settings file can be used: exit status 0, or 2 and the place of the mistake.

    Its model must be known, and a file that is here must be one that can be served.
    """
    try:
        settings = settings_file.load(file)
        with suppress(ModelMissing):  # `serve` fetches it
            load_tokenizer(settings.model)
    except (SettingsWrong, UnknownModel, ModelUnusable) as error:
        if json:
            document({"ok": False, "file": str(file), "error": located(file, error)})
            raise typer.Exit(Status.WRONG) from None
        fail(located(file, error), EXAMPLE_HINT)
    counts = {"prefill": len(settings.prefill), "decode": len(settings.decode)}
    if json:
        document({"ok": True, "file": str(file), "model": settings.model, **counts})
        return
    nodes = f"{counts['prefill']} prefill, {counts['decode']} decode"
    say(f"{file}: ok: model {settings.model}, {nodes}")


@app.command()
def show(file: FileOrNone = None, json: Json = False) -> None:
    """Print all settings as they take effect, the defaults included."""
    settings = read(file)
    if json:
        document(msgspec.to_builtins(settings))
    else:
        say(toml(settings).rstrip())


@app.command()
def example() -> None:
    """Print a settings file to start from: every default, with what it means.

    kvairlock config example > kvairlock.toml
    """
    say("# Settings of a kvairlock stack. Everything left out keeps the value shown here.\n")
    say(toml(Settings(), comments=True).rstrip())


@app.command()
def schema() -> None:
    """Print the JSON Schema of the settings file, for editors and other checkers."""
    document(settings_file.schema())
