"""One tenant floods a real stack, another sends a modest stream: the order of grants is the proof.

All requests need equally many pages, so that turns can be counted. Nothing here depends on speed:
what is asserted is the order of the decode node's own records, and who was refused.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import httpx
import pytest

from kvairlock.drills.canaries import Marked
from kvairlock.drills.records import Entry
from kvairlock.drills.stack import wait_for

from .served import Served, error_of, serving, text_of

FLOOD, QUIET = "flood", "quiet"
CHARACTERS = 140
REQUEST_PAGES = 10  # for the prompt and 17 tokens of answer
AT_A_TIME = 4
QUEUE_MAX = 16
RETRY_AFTER_S = "2"
STREAM = 12
GRANT = "pages_allocated"
EVENTS = ("request_admitted", "request_refused", GRANT, "request_ended")
Asked = tuple[Marked, Future[httpx.Response]]
SETTINGS = f"""
[[prefill]]
name = "prefill-0"
pages = 128
prefix_share = 0

[[decode]]
name = "decode-0"
pages = {AT_A_TIME * REQUEST_PAGES}
tenant_share = 1.0
queue_max = {QUEUE_MAX}

[limits]
beat_ms = 50
queue_ms = 60000

[drill]
enabled = true
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A decode pool that holds four requests; sixteen may wait."""
    folder = tmp_path_factory.mktemp("fair")
    with serving(folder, SETTINGS, {FLOOD: "none", QUIET: "none"}, operators=True) as running:
        yield running


@dataclass(frozen=True)
class History:
    """What the decode node recorded of two tenants' requests, in its own order."""

    records: list[Entry]

    def of(self, event: str, tenant: str) -> list[Entry]:
        return [r for r in self.records if (r["event"], r["tenant"]) == (event, tenant)]

    def grants(self) -> list[Entry]:
        return [r for r in self.records if r["event"] == GRANT]

    def pages_between(self, first: Entry, last: Entry) -> int:
        """How many pages the flooder was granted between two records."""
        grants = self.of(GRANT, FLOOD)
        between = [r for r in grants if first["sequence"] < r["sequence"] < last["sequence"]]
        return sum(len(r["pages"]) for r in between)

    def waiting_before(self, moment: Entry) -> int:
        """How many requests of the flooder waited when something was recorded."""
        waiting: set[str] = set()
        for record in self.records[: self.records.index(moment)]:
            if record["tenant"] == FLOOD and record["event"] == "request_admitted":
                waiting.add(record["request"])
            else:
                waiting.discard(record["request"])
        return len(waiting)


def history(stack: Served, after: int = 0) -> History:
    """The decode node's records after the one with a number; tenants by their names."""
    names = {stack.records.tenant(tenant): tenant for tenant in (FLOOD, QUIET)}
    found = [r for event in EVENTS for r in stack.records.all(event, role="decode")]
    newer = [{**r, "tenant": names[r["tenant"]]} for r in found if r["sequence"] > after]
    return History(sorted(newer, key=lambda record: record["sequence"]))


def last_number(stack: Served) -> int:
    return max((r["sequence"] for r in history(stack).records), default=0)


def assert_served(response: httpx.Response, prompt: Marked) -> None:
    assert response.status_code == 200, response.text
    assert text_of(response) == prompt.canary


def assert_told_to_come_back(response: httpx.Response) -> None:
    error = error_of(response)
    assert (response.status_code, error["code"]) == (429, "tenant_share_exceeded"), error
    assert error["limit_name"] == "tenant_queue_places"
    assert error["asked"] > error["limit"]
    assert response.headers["retry-after"] == RETRY_AFTER_S


def ask(stack: Served, pool: ThreadPoolExecutor, tenant: str, count: int) -> list[Asked]:
    """Ask for so many answers at once."""
    prompts = [stack.canaries.prompt(tenant, CHARACTERS) for _ in range(count)]
    return [(prompt, pool.submit(stack.post, prompt)) for prompt in prompts]


def test_ten_times_the_pool_leaves_another_tenant_its_turns(stack: Served) -> None:
    """The pool is held until all have asked; then its pages come back one request at a time."""
    began, flooding, modest = last_number(stack), 10 * AT_A_TIME, 6
    stack.client.point("decode-0", "arm", "decode.step")
    with ThreadPoolExecutor(flooding + modest) as pool:
        try:
            flood = ask(stack, pool, FLOOD, flooding)
            excess = flooding - AT_A_TIME - QUEUE_MAX
            wait_for("the queue to be full", lambda: refused(stack, began) == excess or None)
            quiet = ask(stack, pool, QUIET, modest)
            wait_for("it to give way", lambda: refused(stack, began) == excess + modest or None)
        finally:
            stack.release_all()
    for prompt, answer in quiet:
        assert_served(answer.result(), prompt)
    answers = [(prompt, answer.result()) for prompt, answer in flood]
    told = [response for _, response in answers if response.status_code != 200]
    for response in told:
        assert_told_to_come_back(response)
    for prompt, response in answers:
        if response not in told:
            assert_served(response, prompt)
    stack.baseline()
    seen = history(stack, began)
    order = "".join(grant["tenant"][0].upper() for grant in seen.grants())
    print(f"granted {order}; of {flooding} of the flood {len(told)} were told to come back")
    assert len(told) == excess + modest
    assert len(order) == AT_A_TIME + QUEUE_MAX
    assert_turns(seen)


def refused(stack: Served, after: int) -> int:
    return len(history(stack, after).of("request_refused", FLOOD))


def assert_turns(seen: History) -> None:
    """Between two grants of the quiet tenant, which waits all the time, come its like and one."""
    assert {len(grant["pages"]) for grant in seen.grants()} == {REQUEST_PAGES}
    grants = seen.of(GRANT, QUIET)
    assert seen.waiting_before(grants[0]) > len(grants), "or else there would be no contest"
    for first, last in pairwise(grants):
        assert seen.pages_between(first, last) <= len(first["pages"]) + REQUEST_PAGES


def test_a_stream_of_single_requests_does_not_wait_behind_a_flood(stack: Served) -> None:
    """The flooder asks again as soon as it is answered; the other has one request at a time."""
    began, stop = last_number(stack), threading.Event()
    clients = AT_A_TIME + QUEUE_MAX + 4
    with ThreadPoolExecutor(clients) as pool:
        flooding = [pool.submit(flood_until, stack, stop) for _ in range(clients)]
        try:
            wait_for("a flood", lambda: refused(stack, began) > 0 or None)
            for _ in range(STREAM):
                prompt = stack.canaries.prompt(QUIET, CHARACTERS)
                assert_served(stack.post(prompt), prompt)
        finally:
            stop.set()
    statuses = sum((flood.result() for flood in flooding), Counter[int]())
    stack.baseline()
    seen = history(stack, began)
    asked = seen.of("request_admitted", QUIET)
    before = [seen.waiting_before(moment) for moment in asked]
    passed = [
        seen.pages_between(*both) // REQUEST_PAGES
        for both in zip(asked, seen.of(GRANT, QUIET), strict=True)
    ]
    print(f"the flooder had {before} waiting and was served {passed} first; it got {statuses}")
    assert set(statuses) == {200, 429}
    assert len(asked) == STREAM
    assert not seen.of("request_refused", QUIET)
    assert max(passed) <= 2, "one that was due, and one of an equal start"
    assert max(before) > QUEUE_MAX // 2, "or else nobody would have had to be passed"


def flood_until(stack: Served, stop: threading.Event) -> Counter[int]:
    """Ask again and again; return how often each status came."""
    statuses = Counter[int]()
    while not stop.is_set():
        response = stack.post(stack.canaries.prompt(FLOOD, CHARACTERS))
        statuses[response.status_code] += 1
        if response.status_code != 200:
            assert_told_to_come_back(response)
    return statuses
