"""A group of commands one of which needs no name: `kvairlock audit PATH` is `audit run PATH`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

UNNAMED = "run"


class WithUnnamed(TyperGroup):
    """Takes what is no name of a command for the arguments of `run`.

    Evidence that is named like a command is written as a path: `./confirm`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the command in front, unless one is there or help is wanted."""
        if not args or args[0] not in (*self.commands, *ctx.help_option_names):
            args = [UNNAMED, *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help of the group, then that of the command that needs no name."""
        super().format_help(ctx, formatter)
        unnamed = self.commands[UNNAMED]
        with unnamed.make_context(ctx.info_name, [], parent=ctx.parent) as named:
            unnamed.format_help(named, formatter)
