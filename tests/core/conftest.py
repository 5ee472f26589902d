"""The shared helpers of these tests: one seedless Hypothesis profile, and the two joined ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Tests are no package: the root makes `tests.core.ends` importable as mypy names it.
sys.path.insert(0, str(Path(__file__).parents[2]))
pytest.register_assert_rewrite("tests.core.ends", "tests.core.ends_engine", "tests.core.ends_hosts")

settings.register_profile(
    "core",
    derandomize=True,
    print_blob=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.load_profile("core")
