"""What processes see of traces: begin a span, say what is known of it, end it.

Who is not traced has no span at all, so that nothing is paid for it.
"""

from __future__ import annotations

from typing import Protocol

Figure = str | int | bool


class Span(Protocol):
    """A piece of work that is under way."""

    @property
    def context(self) -> str:
        """Its name for other processes, as W3C's `traceparent`: what is under it there names it."""

    def child(self, name: str) -> Span:
        """Begin a span under it, one of the table."""

    def note(self, attribute: str, value: Figure) -> None:
        """Say something about it, if the table has that attribute for it.

        Raises:
            Misuse: It has not.
        """

    def fail(self, reason: str) -> None:
        """Mark it as failed, for a reason of a closed list."""

    def end(self) -> None:
        """Take note that it is over; only then is it sent."""


class NoSpan:
    """What is not traced, for whoever would rather not ask."""

    context = ""

    def child(self, name: str) -> NoSpan:
        """Return itself."""
        return self

    def note(self, attribute: str, value: Figure) -> None:
        """Say nothing."""

    def fail(self, reason: str) -> None:
        """Say nothing."""

    def end(self) -> None:
        """Say nothing."""


class Tracer(Protocol):
    """Where the spans of one process go."""

    @property
    def dropped(self) -> int:
        """How many spans were lost: there was no room for them, or nobody took them."""

    def request(self, name: str, client: tuple[str, ...]) -> Span | None:
        """Begin the first span of a request, if the draw has it that it is traced.

        Args:
            name: The span, one of the table.
            client: The `traceparent` headers of the client as they came.
        """

    def under(self, context: str, name: str) -> Span | None:
        """Begin a span under one of another process.

        Args:
            context: That span's `context` as it came; one that can't be read traces nothing.
            name: The span, one of the table.
        """

    def close(self) -> None:
        """Send what is left, for a bounded time."""


class Untraced:
    """The tracer of a process that traces nothing."""

    dropped = 0

    def request(self, name: str, client: tuple[str, ...]) -> Span | None:
        """Begin nothing."""
        return None

    def under(self, context: str, name: str) -> Span | None:
        """Begin nothing."""
        return None

    def close(self) -> None:
        """Do nothing."""


NO_SPAN = NoSpan()
UNTRACED = Untraced()
