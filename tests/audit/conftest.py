"""Makes `tests.audit` importable as mypy names it: tests are no package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ibis.backends import BaseBackend

from kvairlock.audit.tables import embedded

sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture(scope="module")
def engine() -> BaseBackend:
    """The engine of one module's audits; they follow each other in it."""
    return embedded()
