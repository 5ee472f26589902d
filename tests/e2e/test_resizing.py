"""A node of a real stack is given fewer pages while requests run and wait, and more again.

Requests wait for a minute here, so that whatever is refused sooner is refused by what the node
holds. The failpoints only keep requests where they are.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvairlock.cli import main
from kvairlock.drills.canaries import Marked
from kvairlock.drills.stack import wait_for
from kvairlock.runtime.secrets import write_private

from .served import CANARY_TOKENS, OPERATOR, Json, Served, error_of, serving, text_of

PAGE_TOKENS = 16
PREFILL_PAGES, DECODE_PAGES = 64, 80
BOUND_S = 20.0
"""Well before the deadline of a request that can never fit, on a slow machine too; that is 60 s."""

ACME, BRAVO = "acme", "bravo"
SETTINGS = f"""
[[prefill]]
name = "prefill-0"
pages = {PREFILL_PAGES}
prefix_share = 0

[[decode]]
name = "decode-0"
pages = {DECODE_PAGES}
tenant_share = 1.0

[limits]
beat_ms = 50
queue_ms = 60000

[drill]
enabled = true
"""
Answer = Future[httpx.Response]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("sizes")
    tenants = dict.fromkeys((ACME, BRAVO), "none")
    with serving(folder, SETTINGS, tenants, operators=True) as running:
        write_private(folder / "operator.key", running.keys.of[OPERATOR])
        yield running


@pytest.fixture(autouse=True)
def as_it_was(stack: Served) -> Iterator[None]:
    """One failure must not become those of all tests after it."""
    yield
    stack.release_all()
    for node, pages in (("prefill-0", PREFILL_PAGES), ("decode-0", DECODE_PAGES)):
        capacity(stack, "--node", node, "--pages", str(pages))
    stack.baseline()


def capacity(stack: Served, *options: str) -> tuple[int, str, str]:
    """Run the command, in this process; return its exit status and what it said."""
    key = stack.ready_file.parent / "operator.key"
    words = ["capacity", "--url", stack.url, "--key-file", str(key), *options]
    out, err = io.StringIO(), io.StringIO()
    with pytest.raises(SystemExit) as ended, redirect_stdout(out), redirect_stderr(err):
        main(words)
    code = ended.value.code
    return code if isinstance(code, int) else 0, out.getvalue(), err.getvalue()


def resize(stack: Served, node: str, pages: int) -> Json:
    status, out, err = capacity(stack, "--node", node, "--pages", str(pages), "--json")
    assert status == 0, err
    told: Json = json.loads(out)["resized"]
    assert (told["node"], told["pages"]) == (node, pages)
    return told


def held(stack: Served) -> Json:
    """What the command says of each node, and of the routes, by name."""
    _, out, _ = capacity(stack, "--json", "--length", "160")
    told = json.loads(out)
    found: Json = {node["node"]: node for node in told["nodes"]}
    return {**found, **{route["route"]: route for route in told["routes"]}}


def requests(stack: Served, node: str) -> dict[str, int]:
    counts: dict[str, int] = stack.status_of(node)["requests"]
    return counts


def until(what: str, condition: Any) -> None:
    wait_for(what, lambda: condition() or None)


def ask(stack: Served, pool: ThreadPoolExecutor, tenant: str, tokens: int) -> tuple[Marked, Answer]:
    """Ask for an answer so that prompt and answer have so many tokens."""
    prompt = stack.canaries.prompt(tenant, tokens - CANARY_TOKENS)
    return prompt, pool.submit(stack.post, prompt)


def assert_served(answer: tuple[Marked, Answer]) -> None:
    prompt, response = answer[0], answer[1].result()
    assert response.status_code == 200, response.text
    assert text_of(response) == prompt.canary


def figures(response: httpx.Response) -> tuple[int, str, str, int, int]:
    error = error_of(response)
    told = (error["code"], error["stage"], error["asked"], error["limit"])
    return (response.status_code, *told)


def test_who_runs_is_answered_and_who_can_never_fit_is_refused_at_once(stack: Served) -> None:
    assert stack.client.context_tokens() == PREFILL_PAGES * PAGE_TOKENS
    stack.client.point("decode-0", "arm", "decode.step", after=2)
    with ThreadPoolExecutor(8) as pool:
        running = [ask(stack, pool, tenant, 160) for tenant in (ACME, BRAVO, ACME)]
        until("three to be read", lambda: requests(stack, "decode-0").get("confirmed") == 3)
        large = ask(stack, pool, ACME, 960)
        until("the large one to wait", lambda: requests(stack, "decode-0").get("offered") == 1)
        small = ask(stack, pool, ACME, 160)
        until("one behind it", lambda: requests(stack, "decode-0").get("offered") == 2)
        began = time.monotonic()
        told = resize(stack, "decode-0", 40)
        response = large[1].result()
        took_s = time.monotonic() - began
        assert figures(response) == (400, "context_length_exceeded", "decode_admission", 960, 640)
        assert took_s < BOUND_S
        print(f"refused {took_s * 1000:.0f} ms after the operator asked")
        assert (told["epoch"], told["mapped"]) == (1, DECODE_PAGES)
        until("the other to be granted", lambda: "offered" not in requests(stack, "decode-0"))
        assert stack.client.context_tokens() == 640, "the promise falls"
        over = stack.post(stack.canaries.prompt(BRAVO, 641 - CANARY_TOKENS))
        assert figures(over) == (400, "context_length_exceeded", "gateway", 641, 640)
        stack.client.point("decode-0", "release", "decode.step")
        for answer in (*running, small):
            assert_served(answer)
    stack.baseline()
    assert held(stack)["decode-0"]["withdrawn"] == DECODE_PAGES - 40
    resize(stack, "decode-0", DECODE_PAGES)
    assert stack.client.context_tokens() == PREFILL_PAGES * PAGE_TOKENS, "and rises again"
    stack.serves(BRAVO, characters=943)
    reported = stack.records.all("capacity_reported", node="decode-0")
    assert [(r["epoch"], r["pool_pages"], r["cause"]) for r in reported][:3] == [
        (0, DECODE_PAGES, "start"),
        (1, 40, "resized"),
        (2, DECODE_PAGES, "resized"),
    ]
    assert len({r["fingerprint"] for r in reported}) == 1


def test_pages_in_use_are_withdrawn_when_they_come_back(stack: Served) -> None:
    stack.client.point("decode-0", "arm", "decode.step", after=2)
    with ThreadPoolExecutor(2) as pool:
        running = [ask(stack, pool, tenant, 640) for tenant in (ACME, BRAVO)]
        until("both to be read", lambda: requests(stack, "decode-0").get("confirmed") == 2)
        told = resize(stack, "decode-0", 10)
        assert (told["free"], told["withdrawn"], told["used"]) == (0, 0, 80)
        assert told["surplus"] == 70
        status, out, _ = capacity(stack)
        assert (status, "10 of 80" in out) == (0, True)
        stack.client.point("decode-0", "release", "decode.step")
        for answer in running:
            assert_served(answer)
    stack.baseline()
    after = held(stack)["decode-0"]
    assert (after["free"], after["withdrawn"], after["used"]) == (10, 70, 0)
    stack.serves(ACME, characters=100)


def test_a_prompt_that_waits_at_a_prefill_node_is_refused_with_its_stage(stack: Served) -> None:
    stack.client.point("prefill-0", "arm", "write.piece")
    with ThreadPoolExecutor(3) as pool:
        writing = ask(stack, pool, ACME, 480)
        stack.client.held("prefill-0", "write.piece")
        large = ask(stack, pool, BRAVO, 624)
        until("it to wait for pages", lambda: requests(stack, "prefill-0").get("granted") == 2)
        small = ask(stack, pool, BRAVO, 80)
        until("one behind it", lambda: requests(stack, "prefill-0").get("granted") == 3)
        began = time.monotonic()
        resize(stack, "prefill-0", 32)
        response = large[1].result()
        assert figures(response) == (400, "context_length_exceeded", "prefill_admission", 607, 512)
        assert time.monotonic() - began < BOUND_S
        stack.client.point("prefill-0", "release", "write.piece")
        assert_served(writing)
        assert_served(small)
    stack.baseline()
    assert held(stack)["prefill-0"]["withdrawn"] == PREFILL_PAGES - 32


def test_a_route_on_which_nothing_fits_is_closed_and_opens_again(stack: Served) -> None:
    status, out, _ = capacity(stack)
    assert (status, "nothing_fits" in out) == (0, False)
    resize(stack, "decode-0", 0)
    assert stack.http.get("/healthz").status_code == 503
    refused = stack.post(stack.canaries.prompt(ACME, 100))
    assert (refused.status_code, error_of(refused)["code"]) == (503, "route_closed")
    assert refused.headers["retry-after"] == "5"
    status, out, _ = capacity(stack)
    assert (status, "nothing_fits (decode-0)" in out) == (1, True)
    route = held(stack)["prefill-0/decode-0"]
    assert (route["state"], route["longest_tokens"]) == ("closed", 0)
    resize(stack, "decode-0", 10)
    assert stack.client.context_tokens() == 160
    stack.serves(ACME, characters=143)


def test_a_node_refuses_by_its_own_figures_what_the_gateway_still_believes(stack: Served) -> None:
    """Two layers: until the new report has come, the gateway sends what the node refuses."""
    stack.client.point("decode-0", "arm", "gateway.held")
    told = stack.http.post(
        "/nodes/decode-0/pages", json={"pages": 20}, headers=stack.auth(OPERATOR)
    )
    assert told.status_code == 202
    assert stack.client.context_tokens() == PREFILL_PAGES * PAGE_TOKENS
    with ThreadPoolExecutor(1) as pool:
        _, answer = ask(stack, pool, ACME, 960)
        until("it to be on its way", lambda: stack.client.status()["in_flight"] == 1)
        stack.client.point("decode-0", "release", "gateway.held")
        response = answer.result()
    assert figures(response) == (400, "context_length_exceeded", "decode_admission", 960, 320)
    until("the promise to follow", lambda: stack.client.context_tokens() == 320)


def test_the_command_says_what_it_cannot_do(stack: Served, tmp_path: Path) -> None:
    for options, status, said in (
        (("--node", "decode-0", "--pages", "81"), 2, "has mapped 80"),
        (("--node", "decode-7", "--pages", "1"), 2, "no such node"),
        (("--node", "decode-0"), 2, "belong together"),
        (("--pages", "3"), 2, "belong together"),
    ):
        code, out, err = capacity(stack, *options)
        assert (code, out) == (status, "")
        assert said in err
    tenant = tmp_path / "tenant.key"
    write_private(tenant, "kva-unknown-key")
    key = ("--key-file", str(tenant))
    code, out, err = capacity(stack, *key)
    assert (code, out, "401" in err) == (2, "", True)


def test_figures_are_shown_as_tables(stack: Served) -> None:
    status, out, err = capacity(stack, "--length", "160", "--length", "640")
    assert (status, err) == (0, "")
    lines = [line.split() for line in out.splitlines() if line.strip()]
    titles = next(line for line in lines if line[:2] == ["node", "role"])
    assert titles[-4:] == ["of", "160", "of", "640"]
    decode = next(line for line in lines if line[0] == "decode-0")
    assert decode[1:8] == ["decode", "up", "80", "of", "80", "80", "0"]
    assert decode[-3:] == ["1280", "8", "2"]
    route = next(line for line in lines if line[0] == "prefill-0/decode-0")
    assert route[1:] == ["up", "1024", "6", "1"]
    assert "published: a context of 1024 tokens" in out
