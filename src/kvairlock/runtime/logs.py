"""Logs of a process: one line each on stderr, with its name. Never prompts, never keys."""

from __future__ import annotations

import sys

import structlog


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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=name)
