"""Shows a stack coming up: a line per process that moves on a terminal, plain lines elsewhere.

What processes log comes out beneath, on stderr, with the name of the process in front.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn
from rich.text import Text

from kvairlock.cli.output import plain
from kvairlock.cli.supervisor import Stage

_STYLES = {Stage.READY: "green", Stage.ENDED: "red", Stage.WAITING: "yellow"}


class StackView:
    """A `View` on stderr; the moving part ends with `settle`, or when the context does.

    Args:
        names: The processes, in the order in which they are shown.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._width = max(len(name) for name in names)
        self._console = Console(file=sys.stderr, soft_wrap=True, highlight=False)
        self._moving = Progress(
            SpinnerColumn("line", finished_text="+"),
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[detail]}", markup=False),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {
            name: self._moving.add_task(name.ljust(self._width), total=1, detail="waits")
            for name in names
        }

    def __enter__(self) -> StackView:
        """Start the moving part, on a terminal."""
        self._moving.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the moving part; it stays on the screen as it is."""
        self._moving.stop()

    def settle(self) -> None:
        """End the moving part: all is up, what comes now are plain lines."""
        self._moving.stop()

    def moved(self, name: str, stage: Stage, detail: str) -> None:
        """Show that a process has come to another stage."""
        words = f"{stage}  {detail}".strip()
        if self._moving.live.is_started and stage in (Stage.STARTING, Stage.READY):
            done = 1 if stage is Stage.READY else 0
            self._moving.update(self._tasks[name], detail=words, completed=done)
            return
        self._line(name, " ", words, _STYLES.get(stage, ""))

    def logged(self, name: str, line: str) -> None:
        """Show a line that a process logged."""
        self._line(name, "|", line, "dim")

    def _line(self, name: str, mark: str, words: str, style: str) -> None:
        text = Text.assemble((f"{name.ljust(self._width)} {mark} ", "bold"), (plain(words), style))
        self._console.print(text)
