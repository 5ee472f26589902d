"""Kept prefixes are a loan: they never keep a prompt out that the pool can hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kvairlock.drills.canaries import Marked
from kvairlock.drills.stack import wait_for

from .served import Served, serving, text_of

SETTINGS = """
[[prefill]]
name = "prefill-0"
pages = 32
prefix_share = 0.5

[[decode]]
name = "decode-0"
pages = 128
tenant_share = 1.0

[limits]
beat_ms = 50
prefill_ms = 3000
"""
KEPT, LARGE, COMMON = 256, 490, 64  # tokens; the pool holds 512


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A prefill pool of 32 pages, 16 of which prefixes may keep."""
    scopes = {"acme": "private", "bravo": "private"}
    with serving(tmp_path_factory.mktemp("room"), SETTINGS, scopes) as running:
        yield running


def keep_a_prefix(stack: Served) -> Marked:
    """Fill half of the pool with a finished prefix."""
    kept = stack.canaries.prompt("acme", KEPT)
    assert text_of(stack.post(kept)) == kept.canary
    return kept


def test_it_gives_way_to_another_prompt(stack: Served) -> None:
    keep_a_prefix(stack)
    stack.serves("bravo", characters=LARGE)


def test_it_gives_way_to_a_prompt_that_shares_its_beginning(stack: Served) -> None:
    """Holding the kept pages for the four that are shared leaves no room for the others."""
    kept = keep_a_prefix(stack)
    large = stack.canaries.prompt("acme", LARGE)
    text = kept.text[:COMMON] + large.text[COMMON:]
    response = stack.post(Marked("acme", text, large.canary))
    assert response.status_code == 200, response.text
    assert text_of(response) == large.canary


def test_one_that_cannot_start_does_not_keep_the_others_waiting(stack: Served) -> None:
    kept = keep_a_prefix(stack)
    large = stack.canaries.prompt("acme", LARGE)
    text = kept.text[:COMMON] + large.text[COMMON:]
    before = admitted(stack)
    call = stack.start(Marked("acme", text, large.canary))
    wait_for("prefill to have it", lambda: admitted(stack) > before or None)
    stack.serves("bravo", characters=100)
    assert call.result().status == 200


def admitted(stack: Served) -> int:
    """How many prompts the prefill node has taken."""
    return len(stack.records.all("request_admitted", role="prefill"))
