"""Many tenants at once, prefixes shared and not, then the end: for both ways of landing.

The last tests stop the stack and read what it leaves behind: closed evidence in which nobody's
text, key or name is, and nothing else.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from kvairlock.core.evidence import ENVELOPE, EVENTS, Field, Kind
from kvairlock.drills.canaries import CANARY_CHARACTERS, Marked
from kvairlock.drills.client import Call
from kvairlock.drills.stack import wait_for
from kvairlock.metrics.table import LABELS
from kvairlock.sink.reading import files, read

from .served import Json, Served, serving, text_of

SCOPES = {
    "zebra-corp": "private",
    "yak-corp": "private",
    "xenon-corp": "group:lab",
    "walrus-corp": "group:lab",
    "vulture-corp": "public",
    "umbra-corp": "public",
    "tapir-corp": "none",
}
REQUESTS, CONCURRENCY = 60, 12
PREFIX_CHARACTERS = 200
PREFIX_TOKENS = 192  # whole pages of it
PAGE_TOKENS = 16


def settings(landing: str) -> str:
    """Pools so small that requests wait for each other's pages, and pages change their owners."""
    return f"""
[[prefill]]
name = "prefill-0"
pages = 96

[[prefill]]
name = "prefill-1"
pages = 96
chunk_tokens = 64

[[decode]]
name = "decode-0"
pages = 128
landing = "{landing}"
batch_max = 6

[limits]
beat_ms = 50
"""


@dataclass
class Run:
    """One stack of this module, and the seed of what it is asked."""

    stack: Served
    seed: int


@pytest.fixture(scope="module", params=["copy", "seal"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    landing = str(request.param)
    seed = random.SystemRandom().randrange(2**32)
    folder = tmp_path_factory.mktemp(landing)
    with serving(folder, settings(landing), SCOPES, seed=seed) as stack:
        yield Run(stack, seed)


@pytest.fixture(autouse=True)
def seed_is_shown(run: Run) -> None:
    print(f"seed {run.seed}")


def settled(stack: Served) -> Json:
    """Wait until nothing is open and all pages are free or a kept prefix's."""

    def look() -> Json | None:
        status = stack.client.status()
        for node in status["nodes"].values():
            figures = node["status"]
            kept = figures["pages"]["free"] + figures["pages"].get("shared", 0)
            if figures["requests"] or figures["windows"] or kept != figures["report"]["pages"]:
                return None
        return status if not status["in_flight"] else None

    return wait_for("everything to settle", look)


def test_every_answer_is_its_own_canary(run: Run) -> None:
    stack, rng = run.stack, random.Random(run.seed)
    tenants = list(SCOPES)
    prompts = [
        stack.canaries.prompt(rng.choice(tenants), rng.randint(100, 600)) for _ in range(REQUESTS)
    ]
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        responses = list(pool.map(stack.post, prompts))
    assert [r.status_code for r in responses] == [200] * REQUESTS
    answers = [text_of(r) for r in responses]
    assert answers == [prompt.canary for prompt in prompts]
    for prompt, response in zip(prompts, responses, strict=True):
        assert response.json()["usage"]["prompt_tokens"] == len(prompt.text)
    settled(stack)


def test_those_who_leave_disturb_nobody(run: Run) -> None:
    stack, rng = run.stack, random.Random(run.seed + 1)
    tenants, count = list(SCOPES), REQUESTS // 2
    prompts = [
        stack.canaries.prompt(rng.choice(tenants), rng.randint(100, 600)) for _ in range(2 * count)
    ]
    staying, leaving = prompts[:count], prompts[count:]
    tokens_first = [rng.choice((0, 0, 1, 3)) for _ in leaving]
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        gone = pool.map(partial(leave_early, stack), leaving, tokens_first)
        responses = list(pool.map(stack.post, staying))
        list(gone)
    # Who leaves transfers behind may meet its own share of draining memory; nobody else may.
    served = [(p, r) for p, r in zip(staying, responses, strict=True) if r.status_code != 429]
    assert [r.status_code for _, r in served] == [200] * len(served)
    assert [text_of(r) for _, r in served] == [p.canary for p, _ in served]
    assert len(served) > count / 2
    settled(stack)


def leave_early(stack: Served, prompt: Marked, tokens_first: int) -> None:
    """Ask and go away after so many tokens; after none, in whatever stage it is in by then."""
    call = stack.start(prompt)
    if tokens_first:
        wait_for("first tokens or an end", lambda: has_tokens(call, tokens_first))
    with suppress(AttributeError, OSError):  # it has ended meanwhile, and its socket with it
        call.leave()
    call.result()
    assert not stack.canaries.foreign(prompt, call.reply.text)


def has_tokens(call: Call, tokens: int) -> bool | None:
    return True if len(call.reply.text) >= tokens or call.reply.error else None


@dataclass(frozen=True)
class Sharing:
    """Two tenants, and whether the second may use the prefix of the first."""

    first: str
    second: str
    shares: bool


SHARING = [
    Sharing("zebra-corp", "zebra-corp", True),
    Sharing("zebra-corp", "yak-corp", False),
    Sharing("xenon-corp", "walrus-corp", True),
    Sharing("xenon-corp", "zebra-corp", False),
    Sharing("vulture-corp", "umbra-corp", True),
    Sharing("vulture-corp", "xenon-corp", False),
    Sharing("tapir-corp", "tapir-corp", False),
]


@pytest.mark.parametrize("case", SHARING, ids=lambda c: f"{c.first}-{c.second}")
def test_a_prefix_is_used_again_only_inside_its_scope(run: Run, case: Sharing) -> None:
    stack = run.stack
    prompt = stack.canaries.prompt(case.first, PREFIX_CHARACTERS)
    computing = ask_one(stack, prompt)
    assert stack.records.all("prefix_reused", request=computing) == []
    settled(stack)
    again = ask_one(stack, Marked(case.second, prompt.text, prompt.canary))
    stack.one("range_computed", request=again)
    reused = stack.records.all("prefix_reused", request=again)
    if not case.shares:
        assert reused == []
        return
    (entry,) = reused
    assert entry["tokens"] == PREFIX_TOKENS
    assert entry["tenant"] == stack.records.tenant(case.second)
    assert entry["creator"] == stack.records.tenant(case.first)


def ask_one(stack: Served, prompt: Marked) -> str:
    response = stack.post(prompt)
    assert (response.status_code, text_of(response)) == (200, prompt.canary)
    assert response.json()["usage"]["prompt_tokens"] == len(prompt.text)
    return stack.records.request(response.headers["x-request-id"])


def test_a_prompt_of_whole_pages_that_are_all_known_is_served(run: Run) -> None:
    stack = run.stack
    prompt = stack.canaries.prompt("zebra-corp", 10 * PAGE_TOKENS)
    ask_one(stack, prompt)
    settled(stack)
    again = ask_one(stack, prompt)
    reused = stack.one("prefix_reused", request=again)
    assert reused["tokens"] == len(prompt.text)
    settled(stack)


def test_another_ending_behind_a_shared_beginning_answers_from_its_own(run: Run) -> None:
    stack = run.stack
    first = stack.canaries.prompt("zebra-corp", 240)
    ask_one(stack, first)
    settled(stack)
    other = first.canary[::-1]
    changed = Marked("zebra-corp", first.text.replace(first.canary, other), other)
    request = ask_one(stack, changed)
    (reused,) = stack.records.all("prefix_reused", request=request)
    at = first.text.index(first.canary)
    assert reused["tokens"] == at // PAGE_TOKENS * PAGE_TOKENS
    settled(stack)


# What is left behind. Tests from here on find the stack stopped.


@dataclass
class Ended:
    """A stack after SIGTERM."""

    stack: Served
    status: int
    facts: Json
    pids: set[int]
    metrics: str
    evidence: list[Path]


@pytest.fixture(scope="module")
def ended(run: Run) -> Ended:
    stack = run.stack
    facts, pids = stack.facts, family(stack.process.pid)
    assert set(facts["pids"].values()) <= pids
    metrics = stack.http.get("/metrics").text
    status = stack.stop()
    return Ended(stack, status, facts, pids, metrics, files(Path(facts["evidence"])))


def family(pid: int) -> set[int]:
    """All processes below one, itself too."""
    found, parents = {pid}, parent_of_all()
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def parent_of_all() -> dict[int, int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(path.parent.name)] = int(fields[1])
    return parents


def test_sigterm_ends_it_with_nothing_left(ended: Ended) -> None:
    assert ended.status == 0
    alive = {pid for pid in ended.pids if Path(f"/proc/{pid}").exists()}
    assert alive == set()
    assert not Path(ended.facts["run"]).exists()
    assert not ended.stack.ready_file.exists()
    with pytest.raises(httpx.ConnectError):
        ended.stack.http.get("/healthz")


def test_each_file_of_evidence_is_closed_and_has_no_gap(ended: Ended) -> None:
    names = {path.name for path in ended.evidence}
    lives = {f"{name}-{life}.000001.parquet" for name, life in ended.facts["incarnations"].items()}
    assert names == lives
    for path in ended.evidence:
        records = read(path)
        assert records[0]["event"] == "node_started"
        assert records[-1]["event"] == "node_closed"
        assert [r["sequence"] for r in records] == list(range(1, len(records) + 1))
        assert records[-1]["records"] == len(records) - 1
        assert path.stat().st_mode & 0o077 == 0


FITS: dict[Kind, Callable[[Any], bool]] = {
    Kind.TEXT: lambda value: isinstance(value, str),
    Kind.INTEGER: lambda value: type(value) is int,
    Kind.INTEGERS: lambda value: isinstance(value, list) and all(type(v) is int for v in value),
    Kind.TEXTS: lambda value: isinstance(value, list) and all(isinstance(v, str) for v in value),
}


def fits(field: Field, value: object) -> bool:
    return value is None or FITS[field.kind](value)


def test_every_record_fits_the_schema(ended: Ended) -> None:
    seen = set()
    for path in ended.evidence:
        for record in read(path):
            event = str(record["event"])
            row = {**ENVELOPE, **EVENTS[event]}
            assert set(record) == set(row), event
            assert [name for name in row if not fits(row[name], record[name])] == []
            seen.add(event)
    assert {"verdict", "range_computed", "prefix_reused", "window_fenced", "read_ended"} <= seen
    assert not {"invariant_broken", "evidence_lost", "frame_refused", "mapping_refused"} & seen


def test_each_request_has_one_end_at_decode(ended: Ended) -> None:
    records = ended.stack.records
    ends: dict[str, list[str]] = {}
    for record in records.all("request_ended", role="decode"):
        ends.setdefault(record["request"], []).append(record["end"])
    assert [request for request, found in ends.items() if len(found) != 1] == []
    admitted = records.all("request_admitted", role="decode")
    assert {record["request"] for record in admitted} == set(ends)


def secrets_of(stack: Served) -> dict[str, str]:
    """What must show nowhere, by what it is; a prompt by a part of it that is long enough."""
    given = {f"canary {i}": prompt.canary for i, prompt in enumerate(stack.canaries.given)}
    texts = {f"text {i}": prompt.text[:24] for i, prompt in enumerate(stack.canaries.given)}
    keys = {f"key of {tenant}": key for tenant, key in stack.keys.of.items()}
    halves = {f"secret of {t}": key.split("-", 2)[2] for t, key in stack.keys.of.items()}
    names = {f"name {tenant}": tenant for tenant in SCOPES}
    cluster = {f"cluster key {i}": key.hex() for i, key in stack.keys.ring.keys.items()}
    evidence = {"evidence key": stack.keys.pseudonyms.key.hex()}
    return {**given, **texts, **keys, **halves, **names, **cluster, **evidence}


def test_nobody_shows_in_evidence_log_or_metrics(ended: Ended) -> None:
    hidden = secrets_of(ended.stack)
    assert all(len(secret) >= min(CANARY_CHARACTERS, 8) for secret in hidden.values())
    places = {path.name: json.dumps(read(path)) for path in ended.evidence}
    places |= {"log": ended.stack.log.read_text(), "metrics": ended.metrics}
    shown = [
        (what, where)
        for where, text in places.items()
        for what, secret in hidden.items()
        if secret in text
    ]
    assert shown == []
    assert "Traceback" not in places["log"]


def test_metrics_are_labelled_by_node_and_class_only(ended: Ended) -> None:
    labels = set(re.findall(r'[{,]([a-z_]+)="', ended.metrics))
    assert labels <= LABELS.keys() | {"le"}
    completed = re.findall(r'requests_total{.*outcome="completed".*} ([0-9.]+)', ended.metrics)
    assert sum(map(float, completed)) >= REQUESTS
