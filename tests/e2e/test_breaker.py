"""A route whose nodes fail takes no requests, through restarts, until three records are there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kvairlock.drills.stack import wait_for
from kvairlock.runtime.failpoints import Flaw
from kvairlock.runtime.secrets import write_private

from .served import OPERATOR, Json, Served, error_of, serving

SETTINGS = """
[[prefill]]
name = "prefill-0"
pages = 16
prefix_share = 0

[[prefill]]
name = "prefill-1"
pages = 64
prefix_share = 0

[[decode]]
name = "decode-0"
pages = 64
tenant_share = 1.0

[breaker]
failures = 2

[limits]
beat_ms = 50
queue_ms = 400

[drill]
enabled = true
"""
ROUTE, OTHER = "prefill-0/decode-0", "prefill-1/decode-0"
PREFILL_TOKENS, DECODE_TOKENS = 256, 1024
TENANTS = {"acme": "none", "bravo": "none"}
RECORDS = ["corrected", "refuses", "in_effect"]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("breaker"), SETTINGS, TENANTS, operators=True) as running:
        yield running


@pytest.fixture(autouse=True)
def every_route_is_trusted_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """One failure must not become those of all tests after it."""
    yield
    if "stack" not in request.fixturenames:
        return
    stack = request.getfixturevalue("stack")
    for flaw in Flaw:
        stack.client.point("prefill-0", "release", flaw)
    if breaker(stack)["breaker"] != "closed":
        assert operate(stack, "recover")["breaker"] == "closed"
    stack.baseline()


def operate(stack: Served, act: str, route: str = ROUTE, **body: str) -> Json:
    """Do what an operator's command does, without starting one."""
    answer = stack.http.post(f"/routes/{route}/{act}", headers=stack.auth(OPERATOR), json=body)
    document: Json = answer.raise_for_status().json()
    return document


def command(stack: Served, *words: str) -> tuple[int, Json]:
    """Run a command of the operator's; return its exit status and its document."""
    key = write_key(stack)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "kvairlock",
            *words,
            "--url",
            stack.url,
            "--key-file",
            key,
            "--json",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, json.loads(done.stdout or "{}")


def write_key(stack: Served) -> Path:
    key = stack.ready_file.with_name("operator.key")
    write_private(key, stack.keys.of[OPERATOR])
    return key


def breaker(stack: Served, route: str = ROUTE) -> Json:
    found: Json = stack.client.status()["breakers"][route]
    return found


def fail_once(stack: Served, flaw: Flaw) -> httpx.Response:
    """Have one request of a tenant fail by what prefill-0 does wrong with it."""
    stack.client.point("prefill-0", "arm", flaw)
    answer = stack.post(stack.canaries.prompt("acme", 120), ROUTE)
    stack.client.point("prefill-0", "release", flaw)
    return answer


def violate(stack: Served) -> None:
    """Open the breaker of the first route by one violation."""
    answer = fail_once(stack, Flaw.SHORT)
    assert (answer.status_code, error_of(answer)["code"]) == (502, "handoff_range_mismatch")
    assert breaker(stack)["breaker"] == "open"


def refused(stack: Served) -> Json:
    """What an operator's drill is told that names the route."""
    answer = stack.post(stack.canaries.prompt("acme", 120), ROUTE)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    return error_of(answer)


def lacks(document: Json) -> dict[str, list[str]]:
    return {record["record"]: record["lacks"] for record in document["records"]}


def test_a_violation_opens_the_route_at_once_and_the_other_goes_on(stack: Served) -> None:
    violate(stack)
    told = refused(stack)
    assert told["code"] == "route_closed"
    assert (told["asked"], told["limit"], told["limit_name"]) == (1, 1, "violations")
    assert told["message"].endswith("condition `violations` (1 of 1, range at verdict)")
    for tenant in TENANTS:
        stack.serves(tenant)
        stack.serves(tenant, OTHER)
    assert stack.client.status()["routes"] == {ROUTE: "closed", OTHER: "up"}
    opened = stack.records.last("breaker_opened", node="gateway")
    assert (opened["route"], opened["condition"], opened["reason"]) == (
        ROUTE,
        "violations",
        "range",
    )


def test_failures_that_are_no_violations_open_it_when_there_are_enough(stack: Served) -> None:
    answer = fail_once(stack, Flaw.REJECTED)
    assert error_of(answer)["code"] == "prefill_rejected"
    assert breaker(stack)["breaker"] == "closed"
    fail_once(stack, Flaw.REJECTED)
    assert breaker(stack)["opening"]["condition"] == "failures"
    assert "(2 of 2, peer_rejected at verdict)" in refused(stack)["message"]


def test_what_clients_do_opens_nothing(stack: Served) -> None:
    for _ in range(4):
        long = stack.canaries.prompt("acme", 4 * DECODE_TOKENS)
        assert stack.post(long, ROUTE).status_code == 400
        left = stack.start(stack.canaries.prompt("bravo", 120), ROUTE)
        left.leave()
        left.result()
    assert breaker(stack)["breaker"] == "closed"


def test_the_replay_is_refused_by_the_nodes_themselves_one_token_over(stack: Served) -> None:
    violate(stack)
    status, document = command(stack, "recover", ROUTE)
    assert (status, document["breaker"], document["missing"]) == (0, "closed", [])
    assert [r["record"] for r in document["records"] if r["on_record"] == "yes"] == RECORDS
    stack.serves("acme", ROUTE)
    for node, asked, limit, name in (
        ("decode-0", DECODE_TOKENS + 1, DECODE_TOKENS, "decode_pool_tokens"),
        ("prefill-0", PREFILL_TOKENS + 1, PREFILL_TOKENS, "prefill_pool_tokens"),
    ):
        rehearsed = stack.records.last("boundary_replayed", limit_of=node, way="rehearsal")
        said = (rehearsed["answer"], rehearsed["asked"], rehearsed["limit"])
        assert said == ("refused", asked, limit)
        replayed = stack.records.last("boundary_replayed", limit_of=node, way="request")
        own = stack.records.last("request_refused", node=node, request=replayed["request"])
        figures = (own["reason"], own["asked"], own["limit"], own["limit_name"])
        assert figures == ("context_length", asked, limit, name), "by the node's own evidence"
        assert stack.records.computed(replayed["request"]) == "nothing"
        assert stack.records.all("read_started", request=replayed["request"]) == []
    recorded = stack.records.all("recovery_recorded", route=ROUTE)[-3:]
    assert [record["record"] for record in recorded] == RECORDS
    lives = [stack.facts["incarnations"][node] for node in ("prefill-0", "decode-0")]
    assert all(record["incarnations"] == lives for record in recorded)


def test_show_replays_nothing_and_says_what_is_missing(stack: Served) -> None:
    violate(stack)
    before = len(stack.records.all("boundary_replayed"))
    status, document = command(stack, "recover", ROUTE, "--show")
    assert (status, document["breaker"], document["missing"]) == (1, "open", RECORDS)
    assert lacks(document)["refuses"] == ["the boundary is not replayed yet"]
    assert len(stack.records.all("boundary_replayed")) == before
    done = subprocess.run(
        [
            *(sys.executable, "-m", "kvairlock", "recover", ROUTE, "--show"),
            *("--url", stack.url, "--key-file", write_key(stack)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "prefill-0 must refuse 257 over 256 (prefill_pool_tokens)" in done.stdout
    assert done.stderr.startswith("kvairlock: missing: corrected, refuses, in_effect\n")


def test_the_breaker_commands_open_try_and_list(stack: Served) -> None:
    assert command(stack, "breaker", "list")[0] == 0
    status, opened = command(stack, "breaker", "open", ROUTE, "--reason", "new pool")
    assert (status, opened["breaker"], opened["opening"]["detail"]) == (0, "open", "new pool")
    assert command(stack, "breaker", "try", ROUTE)[1]["breaker"] == "half_open"
    stack.serves("acme", ROUTE)
    status, listed = command(stack, "breaker", "list")
    states = {each["route"]: each["breaker"] for each in listed["routes"]}
    assert (status, states) == (1, {ROUTE: "half_open", OTHER: "closed"})
    assert command(stack, "recover", ROUTE)[0] == 0
    assert command(stack, "recover", ROUTE)[0] == 0, "once more changes nothing"
    assert command(stack, "recover", "prefill-9/decode-0")[0] == 2
    assert command(stack, "recover", "../status")[0] == 2


def test_a_flaw_that_is_still_there_opens_it_again_in_the_trial(stack: Served) -> None:
    violate(stack)
    assert operate(stack, "try")["breaker"] == "half_open"
    fail_once(stack, Flaw.SHORT)
    opening = breaker(stack)["opening"]
    assert (opening["condition"], opening["reason"]) == ("trial", "range")


def test_it_stays_open_when_its_gateway_is_killed(stack: Served) -> None:
    violate(stack)
    before, life = breaker(stack), stack.facts["incarnations"]["gateway"]
    stack.kill("gateway", signal.SIGKILL)

    def look() -> Json | None:
        if stack.facts["incarnations"]["gateway"] == life:
            return None
        try:
            return breaker(stack)
        except httpx.TransportError:
            return None

    after = wait_for("another gateway", look)
    assert (after["breaker"], after["opening"]) == ("open", before["opening"])
    stack.serves("bravo", OTHER)
    assert "range at verdict" in refused(stack)["message"]


def test_records_are_void_when_a_node_of_the_route_has_another_life(stack: Served) -> None:
    operate(stack, "open", reason="by hand")
    assert operate(stack, "try")["breaker"] == "half_open"
    stack.kill("prefill-0")
    wait_for("the trial to end", lambda: breaker(stack)["breaker"] == "open" or None)
    ended = stack.records.last("breaker_opened", was="half_open")
    assert ended["detail"] == "a node of the route is another one than in the trial"
    wait_for("the route", lambda: closed_by(stack) == "breaker" or None)
    assert operate(stack, "recover")["breaker"] == "closed"
    stack.serves("acme", ROUTE)


def closed_by(stack: Served) -> str | None:
    """Why the first route takes no requests."""
    closure = stack.client.status()["closed"].get(ROUTE)
    return None if closure is None else str(closure["by"])


def test_it_stays_open_when_the_whole_stack_is_stopped_and_started(tmp_path: Path) -> None:
    with serving(tmp_path, SETTINGS, TENANTS, operators=True) as first:
        violate(first)
        before = breaker(first)
    with serving(tmp_path, SETTINGS, TENANTS, operators=True) as second:
        after = breaker(second)
        assert (after["breaker"], after["opening"]) == ("open", before["opening"])
        assert "range at verdict" in refused(second)["message"]
        second.serves("acme", OTHER)
        assert operate(second, "recover")["breaker"] == "closed"
        second.serves("acme", ROUTE)


def test_a_state_file_that_is_damaged_opens_all_routes(tmp_path: Path) -> None:
    (tmp_path / "breakers.json").write_text('{"format": 1, "routes": {"prefill-0/dec')
    with serving(tmp_path, SETTINGS, TENANTS, operators=True) as stack:
        assert stack.http.get("/healthz").status_code == 503
        answer = stack.post(stack.canaries.prompt("acme", 120))
        assert answer.status_code == 503
        assert "the condition `state_file`" in error_of(answer)["message"]
        assert (tmp_path / "breakers.unreadable-1.json").read_text().endswith("prefill-0/dec")
        assert breaker(stack)["opening"]["detail"].startswith("breakers.json: ")
        for route in (ROUTE, OTHER):
            assert operate(stack, "recover", route)["breaker"] == "closed"
        stack.serves("acme")


# Each record missing


def test_it_does_not_close_while_nodes_do_not_refuse(tmp_path: Path) -> None:
    """With `capacity` off, decode has what never fits wait, and prefill computes a placeholder."""
    settings = SETTINGS + 'guards_off = ["capacity"]\n'
    with serving(tmp_path, settings, TENANTS, operators=True) as stack:
        operate(stack, "open", reason="by hand")
        status, document = command(stack, "recover", ROUTE)
        assert (status, document["breaker"], document["missing"]) == (1, "open", RECORDS)
        assert document["opening"]["condition"] == "trial"
        sent, rehearsed, prefill, prefill_rehearsed, _ = lacks(document)["refuses"]
        assert "decode-0: otherwise, capacity at decode_admission" in sent
        assert rehearsed.endswith("decode-0: answered")
        assert "prefill-0: otherwise, peer_rejected at verdict" in prefill
        assert prefill_rehearsed.endswith("prefill-0: answered")


def test_it_does_not_close_while_the_commitment_is_not_corrected(tmp_path: Path) -> None:
    """Every route may be taken, and one of them holds less than is promised."""
    settings = SETTINGS + '[commitment]\ncontext_tokens = 512\nreach = "every"\n'
    with serving(tmp_path, settings, TENANTS, operators=True) as stack:
        operate(stack, "open", reason="by hand")
        status, document = command(stack, "recover", ROUTE)
        assert (status, document["breaker"]) == (1, "half_open")
        assert document["missing"] == ["corrected"]
        (said,) = lacks(document)["corrected"]
        assert "promises 512 tokens, prefill-0/decode-0 holds 256" in said


def test_it_does_not_close_while_a_guard_does_not_enforce(tmp_path: Path) -> None:
    settings = SETTINGS + 'guards_off = ["tail"]\n'
    with serving(tmp_path, settings, TENANTS, operators=True) as stack:
        operate(stack, "open", reason="by hand")
        status, document = command(stack, "recover", ROUTE)
        assert (status, document["breaker"]) == (1, "half_open")
        assert document["missing"] == ["in_effect"]
        assert any(said.startswith("prefill-0: ") for said in lacks(document)["in_effect"])
        assert any(said.startswith("decode-0: ") for said in lacks(document)["in_effect"])
