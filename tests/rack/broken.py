"""Runs one promise of a contract suite against an adapter, and finds which promises there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def promises(contract: type[Any]) -> set[str]:
    """The names of a suite's tests."""
    return {name for name in vars(contract) if name.startswith("test_")}


def keeps(contract: type[Any], promise: str, give: str, make: Callable[..., Any]) -> bool:
    """Whether an adapter passes one test of a suite.

    Args:
        contract: The suite.
        promise: The name of the test.
        give: The name of the method that gives the adapter.
        make: Makes it; takes what that method takes.
    """
    suite = type("Suite", (contract,), {give: lambda self, *given: make(*given)})()
    try:
        getattr(suite, promise)()
    except (AssertionError, ValueError):  # numpy raises the latter for what can't be written
        return False
    return True
