"""Logs of a process: one line each on stderr, with its name. Never prompts, never keys."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TextIO, cast

import structlog


class Stderr:
    """Standard error whose reader may be gone: a log line must not end what it tells about."""

    def write(self, text: str) -> int:
        """Write, or not."""
        with suppress(OSError, ValueError):
            return sys.stderr.write(text)
        return 0

    def flush(self) -> None:
        """Flush, or not."""
        with suppress(OSError, ValueError):
            sys.stderr.flush()


def log_to_stderr(name: str) -> None:
    """Set structured logging up for a whole process.

    Args:
        name: The process's name, part of every line.
    """
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.KeyValueRenderer(
                key_order=["timestamp", "level", "process", "event"]
            ),
        ],
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, Stderr())),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=name)
