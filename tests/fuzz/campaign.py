"""A campaign of inputs against one target: seeded, counted, and each failure told as hex.

    FUZZ_SEED=7 FUZZ_INPUTS=5000000 script/test tests/fuzz -m slow -s

An input is bytes, made from a valid one by what `odd` does to it; the same seed makes the same
inputs. A target judges one input: it returns a word for how it came out, or raises.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

SEED = int(os.environ.get("FUZZ_SEED", "1"))
FEW = 2_000
"""Inputs of a campaign in every test run."""

Make = Callable[[Random], bytes]
Judge = Callable[[bytes], str]


def inputs(many: int, few: int = FEW) -> pytest.MarkDecorator:
    """Run a test with a few inputs, and marked slow with many, or with as many as are asked for.

    Args:
        many: Inputs of the slow run, unless the environment says another number.
        few: Inputs of every run.
    """
    asked = int(os.environ.get("FUZZ_INPUTS", many))
    return pytest.mark.parametrize("count", [few, pytest.param(asked, marks=pytest.mark.slow)])


def fuzz(target: str, count: int, make: Make, judge: Judge) -> Counter[str]:
    """Judge `count` inputs; return how often each outcome came.

    Args:
        target: The campaign's name, a part of its seed.
        count: How many inputs.
        make: Draws an input.
        judge: Says how it came out.

    Raises:
        AssertionError: An input was judged wrong, or something else than a typed error came.
    """
    rng, outcomes = Random(f"{target} {SEED}"), Counter[str]()
    began = time.perf_counter()
    for number in range(count):
        data = make(rng)
        try:
            outcomes[judge(data)] += 1
        except Exception as error:
            where = f"{target}, seed {SEED}, input {number}"
            raise AssertionError(f"{where}: {error!r}\n{data.hex()}") from error
    seconds = time.perf_counter() - began
    found = ", ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.items()))
    print(f"fuzz {target}: seed {SEED}, {count} inputs in {seconds:.1f} s: {found}")
    return outcomes


def reached(outcomes: Counter[str], *names: str) -> bool:
    """Whether each of these outcomes came: a campaign that never gets somewhere tests nothing."""
    return not set(names) - set(outcomes)
