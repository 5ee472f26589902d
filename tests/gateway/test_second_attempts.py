"""Second attempts: on another route, before a byte was sent, within a budget."""

from __future__ import annotations

import openai
import pytest

from kvairlock.core.errors import Reason, Refusal, Stage
from kvairlock.core.messages import Submit
from kvairlock.gateway.retries import TENANTS_MAX, Retries
from kvairlock.runtime.settings import RetrySettings

from .fake_nodes import DECODE_TOKENS, PREFILL_TOKENS, FakeNodes, Script, Talk, greet
from .stacks import Stack, stack, until

TWO = """
[gateway]
port = 0

[[prefill]]
name = "prefill-0"

[[decode]]
name = "decode-0"

[[decode]]
name = "decode-1"

[retries]
attempts_max = 2
share = 0.5
burst = 1
"""


def start_three(nodes: FakeNodes) -> None:
    nodes.start("prefill-0", PREFILL_TOKENS)
    nodes.start("decode-0", DECODE_TOKENS, ["prefill-0"])
    nodes.start("decode-1", DECODE_TOKENS, ["prefill-0"])


def refuses(reason: Reason) -> Refusal:
    return Refusal(reason, Stage.DECODE_ADMISSION, f"made to: {reason}")


async def full(talk: Talk) -> None:
    await talk.end(refusal=refuses(Reason.CAPACITY))


async def torn(talk: Talk) -> None:
    await talk.end(refusal=refuses(Reason.INTEGRITY))


async def begins_then_is_full(talk: Talk) -> None:
    await talk.chunk(b"first")
    await talk.end(refusal=refuses(Reason.CAPACITY))


def submits(running: Stack, node: str) -> list[str]:
    """The transfers that a node was asked for."""
    heard = list(running.nodes.nodes[node].heard.queue)
    return [m.transfer for m in heard if isinstance(m, Submit)]


def test_a_full_route_is_followed_by_another_with_a_ticket_and_a_transfer_of_its_own() -> None:
    with stack(TWO, start_three) as running:
        running.nodes.nodes["decode-0"].script = full
        running.nodes.nodes["decode-1"].script = greet
        response = running.complete()
        assert (response.status_code, response.json()["choices"][0]["text"]) == (200, "hello")
        assert response.headers["x-kvairlock-attempt"] == "2"
        (first,), (second,) = submits(running, "decode-0"), submits(running, "decode-1")
        assert (first.split("/")[1], second.split("/")[1]) == ("1", "2")
        assert first.split("/")[0] == second.split("/")[0]
        until(lambda: len(running.evidence("request_retried")) == 1)
        (record,) = running.evidence("request_retried")
        assert (record["attempt"], record["reason"]) == (2, "capacity")
        admitted = [r["request"] for r in running.evidence("request_admitted")]
        assert admitted == [record["before"], record["request"]]


def test_the_budget_ends_second_attempts_and_successes_fill_it_again() -> None:
    with stack(TWO, start_three) as running:
        running.nodes.nodes["decode-0"].script = full
        running.nodes.nodes["decode-1"].script = full
        statuses = [running.complete().status_code for _ in range(4)]
        assert statuses == [503] * 4
        # Four requests and one retry: what was saved up at first is all that was spent.
        assert len(submits(running, "decode-0")) + len(submits(running, "decode-1")) == 5
        running.nodes.nodes["decode-1"].script = greet
        running.nodes.nodes["decode-0"].script = greet
        assert [running.complete().status_code for _ in range(2)] == [200, 200]
        running.nodes.nodes["decode-0"].script = full
        assert running.complete().headers["x-kvairlock-attempt"] == "2"


@pytest.mark.parametrize(("script", "status"), [(torn, 502), (begins_then_is_full, 503)])
def test_a_violation_and_an_answer_that_began_are_not_tried_again(
    script: Script, status: int
) -> None:
    with stack(TWO, start_three) as running:
        running.nodes.nodes["decode-0"].script = script
        running.nodes.nodes["decode-1"].script = greet
        assert running.complete().status_code == status
        assert submits(running, "decode-1") == []


def test_the_only_route_is_not_tried_twice() -> None:
    with stack("[gateway]\nport = 0\n") as running:
        running.decode.script = full
        assert running.complete().status_code == 503
        assert len(submits(running, "decode-0")) == 1


def test_an_openai_client_stops_retrying_when_its_tenant_has_no_budget() -> None:
    with stack(TWO.replace("attempts_max = 2", "attempts_max = 1"), start_three) as running:
        running.nodes.nodes["decode-0"].script = full
        running.nodes.nodes["decode-1"].script = full
        client = openai.OpenAI(
            base_url=f"{running.url}/v1", api_key=running.tenant_key, max_retries=5
        )
        with pytest.raises(openai.InternalServerError) as caught:
            client.completions.create(model="recall", prompt="hello")
        assert caught.value.response.headers["x-should-retry"] == "false"
        # The first try, and one declared retry, which spends all that there is.
        assert len(submits(running, "decode-0")) + len(submits(running, "decode-1")) == 2


def test_each_tenant_has_a_budget_of_its_own() -> None:
    retries = Retries(RetrySettings(share=0.5, burst=1))
    retries.arrived("acme", 1)
    assert retries.advice("acme", refuses(Reason.CAPACITY)) == {"x-should-retry": "false"}
    assert retries.advice("bravo", refuses(Reason.CAPACITY)) == {}
    retries.succeeded("acme")
    retries.succeeded("acme")
    assert retries.advice("acme", refuses(Reason.CAPACITY)) == {}


def test_one_tenant_cannot_spend_the_second_attempts_of_all() -> None:
    retries = Retries(RetrySettings(share=0.1, burst=10))

    def takes(tenant: str) -> int:
        return sum(retries.spend(tenant, refuses(Reason.CAPACITY), 1) for _ in range(100))

    assert takes("mallory") == 5
    assert retries.left == 5
    assert takes("mallory") == 0
    assert retries.spend("bravo", refuses(Reason.PEER_LOST), 1) == 1
    assert takes("bravo") == 2, "of what is left it may have half as well"
    assert takes("carol") == 1


def test_a_tenant_whose_clients_used_up_its_budget_gets_no_second_attempts() -> None:
    retries = Retries(RetrySettings(share=0.5, burst=2))
    for _ in range(2):
        retries.arrived("acme", 1)
    assert retries.spend("acme", refuses(Reason.CAPACITY), 1) == 0
    assert retries.left == 2, "what it may not have it does not take"
    assert retries.spend("bravo", refuses(Reason.CAPACITY), 1) == 1


def test_what_a_client_caused_needs_no_advice() -> None:
    retries = Retries(RetrySettings(burst=0))
    assert retries.advice("acme", refuses(Reason.CONTEXT_LENGTH)) == {}


def test_budgets_of_tenants_are_bounded() -> None:
    retries = Retries(RetrySettings(burst=1))
    retries.arrived("first", 1)
    for number in range(TENANTS_MAX):
        retries.arrived(f"tenant-{number}", 1)
    assert retries.advice("first", refuses(Reason.CAPACITY)) == {}
