"""A client that leaves, in each stage: one end, no page lost, and the others go on.

Also: what a leaving tenant keeps draining counts against its own share and nobody else's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kvairlock.drills.client import Call
from kvairlock.drills.records import Entry
from kvairlock.drills.stack import wait_for

from .served import Json, Served, error_of, serving, text_of

SETTINGS = """
[[prefill]]
name = "prefill-0"
pages = 64
prefix_share = 0

[[prefill]]
name = "prefill-slow"
pages = 192
chunk_tokens = 1
prefix_share = 0

[[decode]]
name = "decode-0"
pages = 64
tenant_share = 0.5

[[decode]]
name = "decode-1"
pages = 192
tenant_share = 1.0

[limits]
beat_ms = 50

[drill]
enabled = true
"""
TENANTS = ("queued", "computing", "writing", "landing", "decoding", "unread", "holder", "sharer")
OTHER = "bystander"
PAGES = 64
SHARE_PAGES = 32
FAST, SLOW = "prefill-0/decode-0", "prefill-slow/decode-0"
ELSEWHERE = "prefill-slow/decode-1"
CANCELLED = {"end": "cancelled", "reason": "cancelled"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A small decode node and a slow prefill node, and one that has room; a tenant per test."""
    scopes = dict.fromkeys((*TENANTS, OTHER), "none")
    with serving(tmp_path_factory.mktemp("left"), SETTINGS, scopes, operators=True) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_stays_held(stack: Served) -> Iterator[None]:
    """One failure must not become those of all tests after it."""
    yield
    stack.release_all()


def decode_requests(stack: Served, stage: str) -> int:
    count: int = stack.status_of("decode-0")["requests"].get(stage, 0)
    return count


def wait_until_cancelled(stack: Served, tenant: str) -> Entry:
    """The decode node's one end of a tenant's request."""
    ended = stack.one("request_ended", tenant=stack.records.tenant(tenant), role="decode")
    assert {name: ended[name] for name in CANCELLED} == CANCELLED
    return ended


def assert_nothing_is_left(stack: Served, tenant: str) -> None:
    """All counters are at their baseline, and the end is still the only one."""
    stack.baseline()
    ended = wait_until_cancelled(stack, tenant)
    pseudonym = stack.records.tenant(tenant)
    for event in ("end_came_later", "mapping_refused"):
        assert stack.records.all(event, tenant=pseudonym) == []
    assert stack.records.all("invariant_broken") == []
    at_prefill = stack.records.all("request_ended", request=ended["request"], role="prefill")
    assert len(at_prefill) <= 1
    stack.serves(tenant, FAST)
    stack.serves(OTHER, FAST)
    stack.baseline()


def test_while_queued(stack: Served) -> None:
    stack.client.point("decode-0", "arm", "decode.step")
    holder = stack.canaries.prompt("holder", 500)
    holding = stack.start(holder, FAST, max_tokens=500)
    stack.client.held("decode-0", "decode.step")
    call = stack.start(stack.canaries.prompt("queued", 120), FAST)
    waiting = stack.canaries.prompt(OTHER, 100)
    behind = stack.start(waiting, FAST)
    wait_for("both to wait for pages", lambda: decode_requests(stack, "offered") == 2 or None)
    call.leave()
    ended = wait_until_cancelled(stack, "queued")
    assert ended["computed_tokens"] == 0
    assert stack.records.all("window_granted", request=ended["request"]) == []
    wait_for("one to wait still", lambda: decode_requests(stack, "offered") == 1 or None)
    stack.client.point("decode-0", "release", "decode.step")
    assert holding.result().text == holder.canary
    assert behind.result().text == waiting.canary
    assert_nothing_is_left(stack, "queued")


def test_while_prefilling(stack: Served) -> None:
    tenant = stack.records.tenant("computing")
    call = stack.start(stack.canaries.prompt("computing", 3000), "prefill-slow/decode-1")
    stack.records.last("pages_allocated", tenant=tenant, role="prefill")
    call.leave()
    ended = wait_until_cancelled(stack, "computing")
    at_prefill = stack.one("request_ended", request=ended["request"], role="prefill")
    assert {name: at_prefill[name] for name in CANCELLED} == CANCELLED
    # Left in the middle of it: otherwise this test has not seen what it is about.
    assert stack.records.all("range_computed", request=ended["request"]) == []
    assert stack.records.all("write_ended", request=ended["request"]) == []
    fenced = stack.one("window_fenced", request=ended["request"])
    assert (fenced["fence"], fenced["bytes_written"]) == ("acknowledged", 0)
    assert_nothing_is_left(stack, "computing")


def test_while_transferring(stack: Served) -> None:
    stack.client.point("prefill-0", "arm", "write.piece", after=3)
    call = stack.start(stack.canaries.prompt("writing", 300), FAST)
    stack.client.held("prefill-0", "write.piece")
    call.leave()
    ended = wait_until_cancelled(stack, "writing")
    wait_for("the window to drain", lambda: _draining(stack))
    assert stack.records.all("window_fenced", request=ended["request"]) == []
    stack.serves(OTHER, SLOW)
    stack.client.point("prefill-0", "release", "write.piece")
    written = stack.one("write_ended", request=ended["request"])
    assert (written["status"], len(written["pages"])) == ("done", 19)
    fenced = stack.one("window_fenced", request=ended["request"])
    assert fenced["fence"] == "acknowledged"
    assert fenced["bytes_written"] == written["bytes_written"]
    assert stack.records.all("verdict", request=ended["request"]) == []
    assert_nothing_is_left(stack, "writing")


def _draining(stack: Served) -> Json | None:
    """The decode node's figures once its one window drains, and by copy its pages do not."""
    figures = stack.status_of("decode-0")
    drains = (figures["windows"], figures["windows_draining"]) == (1, 1)
    return figures if drains and figures["pages"]["free"] == PAGES else None


def test_while_landing(stack: Served) -> None:
    stack.client.point("decode-0", "arm", "land")
    call = stack.start(stack.canaries.prompt("landing", 300), FAST)
    stack.client.held("decode-0", "land")
    call.leave()
    ended = wait_until_cancelled(stack, "landing")
    assert_pages_wait(stack, ended["request"])
    stack.serves(OTHER, ELSEWHERE)
    stack.client.point("decode-0", "release", "land")
    assert stack.one("drain_ended", request=ended["request"], node="decode-0")["fence"] == "local"
    assert stack.records.all("verdict", request=ended["request"]) == []
    assert stack.records.all("read_started", request=ended["request"]) == []
    assert_nothing_is_left(stack, "landing")


def assert_pages_wait(stack: Served, request: str) -> None:
    """Pages that a thread still writes or reads are not free, whatever became of their request."""
    stack.one("drain_began", request=request, node="decode-0")
    assert stack.records.all("drain_ended", request=request, node="decode-0") == []

    def look() -> Json | None:
        figures = stack.status_of("decode-0")
        return figures if not figures["requests"] else None

    figures = wait_for("the request to be gone", look)
    assert figures["pages"]["free"] == PAGES - 20  # 300 tokens and 17 of answer


def test_while_decoding(stack: Served) -> None:
    stack.client.point("decode-0", "arm", "decode.step", after=2)
    call = stack.start(stack.canaries.prompt("decoding", 300), FAST)
    stack.client.held("decode-0", "decode.step")
    wait_for("two tokens", lambda: len(call.reply.text) == 2 or None)
    other = stack.canaries.prompt(OTHER, 120)
    call.leave()
    ended = wait_until_cancelled(stack, "decoding")
    assert (ended["computed_tokens"], ended["generated_tokens"]) == (300, 2)
    assert_pages_wait(stack, ended["request"])
    joined = stack.start(other, FAST)
    stack.serves(OTHER, ELSEWHERE)
    stack.client.point("decode-0", "release", "decode.step")
    assert joined.result().text == other.canary
    stack.one("read_ended", request=ended["request"])
    assert_nothing_is_left(stack, "decoding")


def test_while_nothing_is_streamed(stack: Served) -> None:
    """The answer is awaited in one piece: nothing was sent, and yet leaving is noticed."""
    stack.client.point("decode-0", "arm", "decode.step", after=2)
    call = stack.start(stack.canaries.prompt("unread", 120), FAST, stream=False)
    stack.client.held("decode-0", "decode.step")
    call.leave()
    wait_until_cancelled(stack, "unread")
    stack.client.point("decode-0", "release", "decode.step")
    assert_nothing_is_left(stack, "unread")


def leave_in_mid_write(stack: Served) -> Call:
    stack.client.point("prefill-0", "arm", "write.piece")
    call = stack.start(stack.canaries.prompt("sharer", 400), FAST)
    stack.client.held("prefill-0", "write.piece")
    call.leave()
    wait_until_cancelled(stack, "sharer")
    return call


def test_what_a_tenant_leaves_draining_counts_against_its_own_share(stack: Served) -> None:
    leave_in_mid_write(stack)  # 25 pages of the 32 that one tenant may have
    response = stack.post(stack.canaries.prompt("sharer", 400), SLOW)
    assert response.status_code == 429
    assert response.headers["retry-after"] == "2"
    error = error_of(response)
    told = {n: error[n] for n in ("code", "type", "stage", "asked", "limit", "limit_name")}
    assert told == {
        "code": "tenant_share_exceeded",
        "type": "rate_limit_error",
        "stage": "decode_admission",
        "asked": 50,
        "limit": SHARE_PAGES,
        "limit_name": "tenant_landing_pages",
    }
    for characters in (400, 112):
        prompt = stack.canaries.prompt(OTHER, characters)
        served = stack.post(prompt, SLOW)
        assert (served.status_code, text_of(served)) == (200, prompt.canary)
    stack.serves("sharer", SLOW, 112)  # the 7 pages that are left of its share
    stack.client.point("prefill-0", "release", "write.piece")
    stack.baseline()
    stack.serves("sharer", FAST, 400)
    stack.baseline()
