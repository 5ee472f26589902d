"""Makes `tests.rack` importable as mypy names it: tests are no package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
pytest.register_assert_rewrite(
    "kvairlock.sink.contract",
    "kvairlock.sink.contract_store",
    "kvairlock.transport.contract",
    "kvairlock.transport.contract_pool",
)
