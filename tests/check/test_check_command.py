"""`kvairlock check` on real stacks: a deployment that is right, and wrong ones, each named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kvairlock.check.checking import check
from kvairlock.check.deployment import load
from kvairlock.core.promise.capacity import CapacityReport
from kvairlock.drills.stack import Keys, Running, make_keys, running

from .answering import SGLANG_PREFILL, VLLM, Answer, answering, document, engines, recorded

LARGE_TOKENS, SMALL_TOKENS = 2048, 512
REFUSED = (
    "gateway: /status: answered 401; it wants an operator's key: "
    "`kvairlock keys add NAME --operator` makes one"
)
UNEQUAL = """
[gateway]
port = 0

[[prefill]]
name = "prefill-0"
pages = 128

[[prefill]]
name = "prefill-1"
pages = 32

[[decode]]
name = "decode-0"
pages = 256

[limits]
beat_ms = 50
"""
DRILLED = (
    UNEQUAL
    + """
[commitment]
context_tokens = 100000

[drill]
enabled = true
guards_off = ["contract"]
"""
)

Json = dict[str, Any]


@dataclass(frozen=True)
class Stack:
    """A stack of real processes, and a folder for deployments that name it.

    Args:
        url: Its gateway.
        folder: Where the deployments go, beside the operator's key.
    """

    url: str
    folder: Path

    @property
    def gateway(self) -> str:
        return f'[[gateway]]\nurl = "{self.url}"\nkey_file = "operator.key"\n'

    def file(self, commitment: str, more: str = "") -> Path:
        """Write a deployment of this stack."""
        path = self.folder / "deployment.toml"
        path.write_text(f"[commitment]\n{commitment}\n{self.gateway}{more}")
        return path


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kvairlock", "check", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def told(path: Path) -> tuple[int, Json]:
    """Check a deployment; return the exit status and the document."""
    done = run(path, "--json")
    document: Json = json.loads(done.stdout)
    assert document["ok"] is (done.returncode == 0)
    return done.returncode, document


def figures(found: Json) -> list[tuple[object, ...]]:
    names = ("kind", "route", "node", "length_class", "promised", "holds", "limit_name")
    return [tuple(violation[name] for name in names) for violation in found["violations"]]


def started(folder: Path, settings: str) -> Iterator[Stack]:
    keys: Keys = make_keys(folder, ["operator"])
    key = folder / "operator.key"
    key.write_text(keys.of["operator"])
    key.chmod(0o600)
    up: Running
    with running(settings, keys, folder / "stack") as up:
        yield Stack(up.url, folder)


@pytest.fixture(scope="module")
def unequal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two unequal prefill nodes: one route holds 2,048 tokens, the other 512."""
    yield from started(tmp_path_factory.mktemp("u"), UNEQUAL)


@pytest.fixture(scope="module")
def drilled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The same in drill mode, with a gateway that advertises what it is told to."""
    yield from started(tmp_path_factory.mktemp("d"), DRILLED)


RIGHT = """
context_tokens = 2048
output_tokens = 2047

[[commitment.classes]]
name = "long"
context_tokens = 2048

[[commitment.classes]]
name = "short"
context_tokens = 256
concurrency = 2

[commitment.fingerprints]
"""


def pins(stack: Stack, **changed: str) -> str:
    """The fingerprints that its nodes report, as the table pins them."""
    path = stack.file("context_tokens = 1")
    readings = check(load(path), path.parent).readings
    reports = [r.said for r in readings if isinstance(r.said, CapacityReport)]
    reported = {str(report.node): report.fingerprint for report in reports}
    return "".join(f'{name} = "{f}"\n' for name, f in {**reported, **changed}.items())


def test_a_deployment_that_is_right(unequal: Stack) -> None:
    status, found = told(unequal.file(RIGHT + pins(unequal)))
    assert (status, found["violations"], found["warnings"]) == (0, [], [])
    assert found["published_tokens"] == LARGE_TOKENS
    assert found["concurrency"] == {"long": 1, "short": 2}
    routes = [(r["route"], r["longest_tokens"], r["concurrency"]) for r in found["routes"]]
    assert routes == [
        ("prefill-0/decode-0", LARGE_TOKENS, {"long": 1, "short": 8}),
        ("prefill-1/decode-0", SMALL_TOKENS, {"long": 0, "short": 2}),
    ]
    reports = {node["node"]: node["report"] for node in found["nodes"]}
    assert {name: r["pages"] for name, r in reports.items()} == {
        "prefill-0": 128,
        "prefill-1": 32,
        "decode-0": 256,
    }
    assert all(r["basis"]["model"] and r["epoch"] == 0 for r in reports.values())


def test_a_person_is_shown_the_same(unequal: Stack) -> None:
    right = run(unequal.file(RIGHT + pins(unequal)))
    assert (right.returncode, right.stderr) == (0, "")
    assert "all that is promised is held" in right.stdout
    assert "longer ones go elsewhere" in right.stdout
    wrong = run(unequal.file('context_tokens = 2048\nreach = "every"'))
    assert wrong.returncode == 1
    (line,) = [each for each in wrong.stdout.splitlines() if "context_over_route" in each]
    assert all(
        word in line for word in ("prefill-1/decode-0", "2048", "512", "prefill_pool_tokens")
    )
    assert "TOO SHORT" in wrong.stdout
    assert "2 violations;" in wrong.stdout


# Five wrong deployments, each named


def test_a_context_over_the_smallest_route(unequal: Stack) -> None:
    status, found = told(unequal.file('context_tokens = 513\nreach = "every"'))
    assert status == 1
    limit = ("prefill-1/decode-0", "prefill-1", None, 513, SMALL_TOKENS, "prefill_pool_tokens")
    # The gateway itself was not told that any route may be taken.
    assert figures(found) == [
        (
            "advertised_over_held",
            None,
            "gateway",
            None,
            LARGE_TOKENS,
            SMALL_TOKENS,
            "context_window",
        ),
        ("context_over_route", *limit),
    ]
    assert found["published_tokens"] == SMALL_TOKENS


def test_a_class_that_is_longer_than_any_route(unequal: Stack) -> None:
    book = '[[commitment.classes]]\nname = "book"\ncontext_tokens = 2049\n'
    status, found = told(unequal.file(book))
    limit = ("prefill-0/decode-0", "prefill-0", "book", 2049, LARGE_TOKENS, "prefill_pool_tokens")
    assert (status, figures(found)) == (1, [("class_over_routes", *limit)])


CLASS = '[[commitment.classes]]\nname = "{}"\ncontext_tokens = {}\nconcurrency = {}\n'


@pytest.mark.parametrize(
    ("classes", "holds"),
    [
        # Eight requests of 256 tokens fit into the large prefill pool, two into the small one.
        (CLASS.format("page", 256, 11), 10),
        # The longer class comes first, and takes all of the large pool.
        (CLASS.format("page", 256, 11) + CLASS.format("long", 2048, 1), 2),
    ],
)
def test_a_concurrency_over_what_the_routes_hold(unequal: Stack, classes: str, holds: int) -> None:
    status, found = told(unequal.file(classes))
    violated = ("concurrency_over_routes", None, None, "page", 11, holds, "concurrency")
    assert (status, figures(found)) == (1, [violated])


def test_a_fingerprint_that_changed(unequal: Stack) -> None:
    changed = pins(unequal, **{"prefill-0": "0123456789abcdef"})
    status, found = told(unequal.file("[commitment.fingerprints]\n" + changed))
    assert status == 1
    # The gateway goes on to use the node: it was told nothing of what this file pins.
    assert [violation[:6] for violation in figures(found)] == [
        ("advertised_over_held", None, "gateway", None, LARGE_TOKENS, SMALL_TOKENS),
        ("fingerprint_changed", None, "prefill-0", None, None, None),
    ]
    assert "0123456789abcdef is pinned" in found["violations"][1]["message"]


def test_engines_that_advertise_more_than_they_hold(unequal: Stack) -> None:
    models = document(VLLM, "/v1/models")
    models["data"][0]["max_model_len"] = 1280
    over = {**recorded(VLLM), "/v1/models": Answer.of(models)}
    with engines(v=over, s=recorded(SGLANG_PREFILL)) as urls:
        more = "".join(
            f'[[engine]]\nname = "{kind}-a"\nkind = "{kind}"\nrole = "prefill"\nurl = "{url}"\n'
            for kind, url in (("vllm", urls["v"]), ("sglang", urls["s"]))
        )
        status, found = told(unequal.file("context_tokens = 2048", more))
    assert status == 1
    assert figures(found) == [
        ("advertised_over_held", None, "vllm-a", None, 1280, 1248, "prefill_pool_tokens"),
        ("advertised_over_held", None, "sglang-a", None, 2048, 494, "scheduled_tokens"),
        ("admitted_over_held", None, "sglang-a", None, 505, 494, "scheduled_tokens"),
    ]
    assert "sglang-a is in no route" in found["warnings"]


# Further ways to be wrong


def test_a_gateway_in_drill_mode_whose_contract_is_off(drilled: Stack) -> None:
    status, found = told(drilled.file("context_tokens = 2048"))
    assert status == 1
    told_of = [violation[:1] + violation[4:6] for violation in figures(found)]
    assert ("drill_mode", None, None) in told_of
    assert ("guard_not_enforcing", None, None) in told_of
    assert ("advertised_over_held", 100_000, LARGE_TOKENS) in told_of


def test_a_node_that_cannot_be_reached_is_a_violation(unequal: Stack) -> None:
    with answering({}) as server:
        gone = server.url
    more = f'[[engine]]\nname = "gone"\nkind = "vllm"\nrole = "prefill"\nurl = "{gone}"\n'
    status, found = told(unequal.file("context_tokens = 2048", more))
    assert (status, [v[:3] for v in figures(found)]) == (1, [("unreported", None, "gone")])
    unequal.file("").write_text(
        f'[commitment]\n[[gateway]]\nurl = "{gone}"\nkey_file = "operator.key"\n'
    )
    status, found = told(unequal.folder / "deployment.toml")
    assert (status, [v[0] for v in figures(found)]) == (1, ["unreported", "no_route"])


def test_a_key_that_is_no_operators_does_not_report(unequal: Stack) -> None:
    path = unequal.file("context_tokens = 2048")
    path.write_text(path.read_text().replace("operator.key", "wrong.key"))
    wrong = unequal.folder / "wrong.key"
    wrong.write_text("kva-nobody")
    wrong.chmod(0o600)
    status, found = told(path)
    assert (status, found["violations"][0]["message"]) == (1, REFUSED)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file"),
        ("[commitment]\ncontext = 1\n", "unknown field `context`"),
        ("[commitment]\n", "no [[gateway]] and no [[engine]]"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str | None, why: str) -> None:
    path = tmp_path / "deployment.toml"
    if text is not None:
        path.write_text(text)
    done = run(path)
    assert (done.returncode, done.stdout) == (2, "")
    first, second = done.stderr.splitlines()
    assert why in first
    assert "docs/capacity.md" in second


def test_a_key_in_the_environment_is_taken_and_never_shown(unequal: Stack) -> None:
    key = (unequal.folder / "operator.key").read_text()
    path = unequal.file("context_tokens = 2048")
    named = path.read_text().replace('key_file = "operator.key"', 'key_variable = "THE_KEY"')
    path.write_text(named)
    command = [sys.executable, "-m", "kvairlock", "check", str(path)]
    for environment, status in (({"THE_KEY": key}, 0), ({}, 2)):
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
        )
        assert done.returncode == status, done.stderr
        assert key not in done.stdout + done.stderr
