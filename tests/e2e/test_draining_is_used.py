"""What drains is used: by admission, by what a client is told, and by what an operator sees."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kvairlock.cli.holdings import Held, Stack, as_document, held_by
from kvairlock.cli.operator import shaped
from kvairlock.drills.stack import wait_for

from .served import CANARY_TOKENS, Json, Served, error_of, serving, text_of

ACME, BRAVO, CORAL = "acme", "bravo", "coral"
DECODE_PAGES, PROMPT_PAGES = 30, 9
SHARE_PAGES = 15
QUEUE_MS = 900
SETTINGS = f"""
[[prefill]]
name = "prefill-0"
pages = 64
prefix_share = 0

[[prefill]]
name = "prefill-1"
pages = 64
prefix_share = 0

[[decode]]
name = "decode-0"
pages = {DECODE_PAGES}
tenant_share = 0.5

[limits]
beat_ms = 50
queue_ms = {QUEUE_MS}

[drill]
enabled = true
"""
ROUTE, OTHER_ROUTE = "prefill-0/decode-0", "prefill-1/decode-0"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("drains")
    tenants = dict.fromkeys((ACME, BRAVO, CORAL), "none")
    with serving(folder, SETTINGS, tenants, operators=True) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_stays_held(stack: Served) -> Iterator[None]:
    """One failure must not become those of all tests after it."""
    yield
    stack.release_all()
    stack.baseline()


def decode_of(stack: Served) -> Held:
    held = held_by(shaped(stack.client.status(), Stack), "decode-0")
    assert held is not None
    return held


def shown(stack: Served) -> Json:
    """What `kvairlock capacity --json` says of the decode node."""
    document = as_document(shaped(stack.client.status(), Stack), [160])
    node: Json = next(node for node in document["nodes"] if node["node"] == "decode-0")
    return node


def test_a_tenant_over_its_share_is_told_to_come_back_while_another_is_served(
    stack: Served,
) -> None:
    stack.client.point("prefill-0", "arm", "write.piece")
    left = stack.start(stack.canaries.prompt(ACME, 160 - CANARY_TOKENS), ROUTE)
    stack.client.held("prefill-0", "write.piece")
    assert (shown(stack)["windows"], shown(stack)["windows_draining"]) == (1, 0)
    left.leave()
    wait_for("its window to drain", lambda: decode_of(stack).windows_draining == 1 or None)
    over = stack.post(stack.canaries.prompt(ACME, 160 - CANARY_TOKENS), OTHER_ROUTE)
    error = error_of(over)
    assert (over.status_code, error["code"]) == (429, "tenant_share_exceeded")
    assert (error["stage"], error["limit_name"]) == ("decode_admission", "tenant_landing_pages")
    assert (error["asked"], error["limit"]) == (2 * PROMPT_PAGES, SHARE_PAGES)
    assert over.headers["retry-after"] == "2"
    own = stack.canaries.prompt(BRAVO, 160 - CANARY_TOKENS)
    served = stack.post(own, OTHER_ROUTE)
    assert (served.status_code, text_of(served)) == (200, own.canary)
    stack.client.point("prefill-0", "release", "write.piece")
    wait_for("it to be fenced", lambda: decode_of(stack).windows == 0 or None)
    stack.serves(ACME, ROUTE, 160 - CANARY_TOKENS)


def test_a_node_that_is_full_of_what_drains_says_so(stack: Served) -> None:
    """One request with six choices: ten pages for the first, four of its own for each other one."""
    stack.client.point("decode-0", "arm", "decode.step", after=2)
    left = stack.start(stack.canaries.prompt(ACME, 100), ROUTE, n=6, max_tokens=60)
    stack.client.held("decode-0", "decode.step")
    assert (decode_of(stack).used, decode_of(stack).draining) == (DECODE_PAGES, 0)
    left.leave()
    wait_for("it to drain", lambda: decode_of(stack).draining == DECODE_PAGES or None)
    figures = shown(stack)
    assert (figures["pages"], figures["used"], figures["free"]) == (DECODE_PAGES, DECODE_PAGES, 0)
    assert figures["concurrency"] == {"160": 3}, "what it holds when nothing else is there"
    began = time.monotonic()
    waited = stack.post(stack.canaries.prompt(CORAL, 100), ROUTE)
    error = error_of(waited)
    assert (waited.status_code, error["code"]) == (503, "draining")
    assert (error["reason"], error["stage"]) == ("draining", "decode_admission")
    assert waited.headers["retry-after"] == "2"
    assert time.monotonic() - began >= QUEUE_MS / 1000
    stack.client.point("decode-0", "release", "decode.step")
    wait_for("all of it to come back", lambda: decode_of(stack).used == 0 or None)
    assert shown(stack)["free"] == DECODE_PAGES
    stack.serves(CORAL, ROUTE)
