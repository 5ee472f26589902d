"""Each stage's deadline: a typed refusal at its time, and nothing is lost after it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from kvairlock.core.errors import REASONS, Reason
from kvairlock.drills.stack import wait_for

from .served import Served, error_of, serving

QUEUE_MS, PREFILL_MS, VERDICT_MS, DECODE_MS = 600, 1500, 700, 2500
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
name = "decode-copy"
pages = 32
landing = "copy"
tenant_share = 1.0

[[decode]]
name = "decode-seal"
pages = 32
landing = "seal"
tenant_share = 1.0

[[decode]]
name = "decode-share"
pages = 64
landing_pages = 40
tenant_share = 0.5

[limits]
beat_ms = 50
queue_ms = {QUEUE_MS}
prefill_ms = {PREFILL_MS}
verdict_ms = {VERDICT_MS}
decode_ms = {DECODE_MS}

[drill]
enabled = true
"""
TENANTS = ("acme", "bravo", "coral")
COPY, SEAL = "prefill-0/decode-copy", "prefill-0/decode-seal"
OTHERS = "prefill-1/decode-copy"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Short deadlines; small decode nodes, by copy and by sealing."""
    folder = tmp_path_factory.mktemp("late")
    with serving(folder, SETTINGS, dict.fromkeys(TENANTS, "none"), operators=True) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_stays_held(stack: Served) -> Iterator[None]:
    """One failure must not become those of all tests after it."""
    yield
    stack.release_all()


def assert_refused(response: httpx.Response, reason: Reason, stage: str, words: str) -> None:
    row = REASONS[reason]
    error = error_of(response)
    assert (response.status_code, error["code"]) == (row.http_status, row.code), error
    assert (error["reason"], error["stage"]) == (reason, stage)
    wait_s = row.retry_after_s
    assert response.headers.get("retry-after") == (None if wait_s is None else str(wait_s))
    assert words in error["message"]


def request_of(stack: Served, response: httpx.Response) -> str:
    return stack.records.request(response.headers["x-request-id"])


def end_of(stack: Served, response: httpx.Response, role: str = "decode") -> tuple[str, str]:
    ended = stack.one("request_ended", request=request_of(stack, response), role=role)
    return ended["end"], ended["reason"]


def test_the_queue_and_the_generation(stack: Served) -> None:
    stack.client.point("decode-copy", "arm", "decode.step", after=2)
    with ThreadPoolExecutor(1) as pool:
        prompt = stack.canaries.prompt("acme", 400)
        generating = pool.submit(stack.post, prompt, COPY, max_tokens=100)
        stack.client.held("decode-copy", "decode.step")
        queued = stack.post(stack.canaries.prompt("bravo", 120), OTHERS)
        assert_refused(queued, Reason.CAPACITY, "decode_admission", f"within {QUEUE_MS} ms")
        assert end_of(stack, queued) == ("rejected", "capacity")
        slow = generating.result()
    assert_refused(slow, Reason.TIMEOUT, "decode", f"within {DECODE_MS} ms")
    assert end_of(stack, slow) == ("timed_out", "timeout")
    # Its pages are still read by the step that does not end: they are what the next one waits for.
    later = stack.post(stack.canaries.prompt("coral", 120), OTHERS)
    assert_refused(later, Reason.DRAINING, "decode_admission", f"within {QUEUE_MS} ms")
    stack.client.point("decode-copy", "release", "decode.step")
    stack.baseline()
    stack.serves("coral", COPY)
    stack.baseline()


def test_a_stream_that_began_ends_with_the_refusal(stack: Served) -> None:
    stack.client.point("decode-seal", "arm", "decode.step", after=2)
    prompt = stack.canaries.prompt("acme", 100)
    reply = stack.start(prompt, SEAL).result()
    assert (reply.status, reply.text) == (200, prompt.canary[:2])
    assert (reply.error["code"], reply.error["stage"]) == ("timed_out", "decode")
    stack.client.point("decode-seal", "release", "decode.step")
    stack.baseline()


def test_a_tenant_that_waits_for_its_own_share_is_told_so(stack: Served) -> None:
    """The node has room and serves others: what is short is what this tenant may have."""
    stack.client.point("prefill-0", "arm", "write.piece")
    with ThreadPoolExecutor(1) as pool:
        first = stack.canaries.prompt("acme", 240)
        landing = pool.submit(stack.post, first, "prefill-0/decode-share")  # 15 of its 20 pages
        stack.client.held("prefill-0", "write.piece")
        waiting = stack.post(stack.canaries.prompt("acme", 240), "prefill-1/decode-share")
        stack.serves("bravo", "prefill-1/decode-share", 240)
        stack.client.point("prefill-0", "release", "write.piece")
        assert landing.result().status_code == 200
    stack.baseline()
    assert (waiting.status_code, error_of(waiting)["code"]) == (429, "tenant_share_exceeded")


def test_the_receipt(stack: Served) -> None:
    stack.client.point("prefill-0", "arm", "write.piece", after=2)
    response = stack.post(stack.canaries.prompt("acme", 300), COPY)
    assert_refused(response, Reason.TIMEOUT, "transfer", f"within {PREFILL_MS} ms")
    assert end_of(stack, response) == ("timed_out", "timeout")
    stack.serves("bravo", OTHERS)
    request = request_of(stack, response)
    assert stack.records.all("window_fenced", request=request) == []
    stack.client.point("prefill-0", "release", "write.piece")
    assert stack.one("window_fenced", request=request)["fence"] == "acknowledged"
    assert stack.records.all("verdict", request=request) == []
    stack.baseline()
    stack.serves("acme", COPY)
    stack.baseline()


def test_a_window_that_a_writer_keeps_mapped_is_never_landed_by_sealing(stack: Served) -> None:
    stack.client.point("prefill-0", "arm", "write.repeat")
    response = stack.post(stack.canaries.prompt("acme", 300), SEAL)
    assert_refused(response, Reason.MISSING_EVIDENCE, "transfer", "a writer kept the window")
    assert end_of(stack, response) == ("failed", "missing_evidence")
    request = request_of(stack, response)
    assert stack.records.all("read_started", request=request) == []
    stack.serves("bravo", "prefill-1/decode-seal")
    stack.client.point("prefill-0", "release", "write.repeat")
    window = stack.one("window_granted", request=request)["window"]
    stack.one("write_repeated", window=window)
    stack.baseline()
    stack.serves("acme", SEAL)
    stack.baseline()


def test_a_landing_that_takes_too_long_and_the_ruling_that_prefill_waits_for(
    stack: Served,
) -> None:
    stack.client.point("decode-copy", "arm", "land")
    response = stack.post(stack.canaries.prompt("acme", 300), COPY)
    row = REASONS[Reason.TIMEOUT]
    assert (response.status_code, error_of(response)["code"]) == (row.http_status, row.code)
    assert end_of(stack, response) == ("timed_out", "timeout")
    at_prefill = stack.one("request_ended", request=request_of(stack, response), role="prefill")
    assert at_prefill["end"] in {"timed_out", "failed"}  # its own deadline, or decode's ruling
    wait_for("its pages to drain", lambda: _free(stack, "prefill-0") == 64 or None)
    assert _free(stack, "decode-copy") == 32 - 20  # 300 tokens and 17 of answer
    stack.client.point("decode-copy", "release", "land")
    stack.baseline()
    assert stack.records.all("verdict", request=request_of(stack, response)) == []
    stack.serves("acme", COPY)
    stack.baseline()


def _free(stack: Served, node: str) -> int:
    free: int = stack.status_of(node)["pages"]["free"]
    return free


def test_no_invariant_broke_meanwhile(stack: Served) -> None:
    assert stack.records.all("invariant_broken") == []
    assert stack.records.all("frame_refused") == []
