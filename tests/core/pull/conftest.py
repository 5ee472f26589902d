"""Assertions of the pull harness are explained as those of tests are."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.core.pull.pulls", "tests.core.pull.pulls_hosts")
