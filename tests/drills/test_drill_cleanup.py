"""What counts as clean: the figures are made up, so that each that is wrong shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from kvairlock.core.evidence import ENVELOPE, SCHEMA_VERSION
from kvairlock.drills.canaries import Canaries, Marked
from kvairlock.drills.client import GatewayClient, Reply
from kvairlock.drills.records import Records
from kvairlock.drills.runs import cleanup
from kvairlock.drills.runs.cleanup import asked_again, broken, ended, gone, look
from kvairlock.drills.runs.player import Site
from kvairlock.drills.stack import DrillFailed
from kvairlock.wire.pseudonyms import Pseudonyms

KEY = Pseudonyms(bytes(32))


class Gateway:
    """A stack that is idle, or never is, and what it answers.

    Args:
        scrubbed: Pages that each of its two nodes has zeroed.
        free: Free pages of each.
        shared: Pages that each keeps as prefixes.
        cached: Prompt tokens that an answer finds kept; None where there is no answer.
    """

    def __init__(
        self, scrubbed: int = 4, free: int = 60, shared: int = 4, cached: int | None = 0
    ) -> None:
        self.pages = {"free": free, "shared": shared, "draining": 64 - free - shared}
        self.scrubbed, self.cached = scrubbed, cached

    def idle(self) -> dict[str, Any]:
        if self.pages["free"] < 0:
            raise DrillFailed("waited 30 s for all pages to come back")
        status = {
            "report": {"pages": 64},
            "pages": self.pages,
            "counters": {"pages_scrubbed": self.scrubbed},
        }
        return {"nodes": {"prefill-0": {"status": status}, "decode-0": {"status": status}}}

    def answer(self, prompt: Marked) -> Reply:
        if self.cached is None:
            return Reply(503, error={"code": "route_closed"})
        return Reply(200, usage={"prompt_tokens_details": {"cached_tokens": self.cached}})


def site(gateway: Gateway, folder: Path, *drained: int) -> Site:
    """A site whose evidence says how many pages came out of the drain, each time."""
    envelope = {**dict.fromkeys(ENVELOPE, 0), "schema": SCHEMA_VERSION}
    lines = [{**envelope, "event": "drain_ended", "pages": list(range(n))} for n in drained]
    (folder / "decode-0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Site(cast(GatewayClient, gateway), Records(folder, KEY), None)


def test_all_pages_zeroed_that_were_drained_is_clean(tmp_path: Path) -> None:
    found = look("stack-01", ["drain"], site(Gateway(scrubbed=4), tmp_path, 3, 5))
    assert (found.place, found.drills, found.verified) == ("stack-01", ("drain",), True)
    assert found.figures == {
        "pages_out": 0, "pages_kept": 8, "pages_scrubbed": 8, "pages_drained": 8,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("gateway", "drained"),
    [
        (Gateway(scrubbed=4), (3, 6)),  # a page was drained and not zeroed
        (Gateway(scrubbed=4), (3, 4)),  # one was zeroed that no record says was drained
        (Gateway(scrubbed=4, free=59), (3, 5)),  # two are out
    ],
)
def test_any_figure_that_is_wrong_is_not_clean(
    gateway: Gateway, drained: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "SETTLE_S", 0.0)
    assert not look("stack-01", ["drain"], site(gateway, tmp_path, *drained)).verified


def test_a_stack_that_does_not_come_to_rest_is_not_clean(tmp_path: Path) -> None:
    found = look("stack-01", ["drain"], site(Gateway(free=-1), tmp_path))
    assert (found.verified, found.how) == (False, "waited 30 s for all pages to come back")


def test_what_was_broken_on_purpose_is_clean_once_its_processes_are_gone() -> None:
    before = broken("stack-02", ["drain"])
    ended = gone(before, [])
    assert (ended.verified, ended.figures) == (True, {"processes_left": 0})
    still = gone(before, [os.getpid()])
    assert (still.verified, still.figures) == (False, {"processes_left": 1})


def test_processes_that_are_left_undo_what_was_clean(tmp_path: Path) -> None:
    clean = look("stack-01", ["drain"], site(Gateway(scrubbed=4), tmp_path, 8))
    assert clean.verified
    assert not gone(clean, [os.getpid()]).verified


def test_a_process_that_still_names_the_folder_of_a_run_is_left_of_it(tmp_path: Path) -> None:
    assert ended("faults", ["fault:x"], tmp_path).verified
    waits = [sys.executable, "-c", "input('here')", str(tmp_path / "stack.toml")]
    with subprocess.Popen(waits, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"h"
        found = ended("faults", ["fault:x"], tmp_path)
        process.communicate(b"\n")
    assert (found.verified, found.figures) == (False, {"processes_left": 1})
    assert ended("faults", ["fault:x"], tmp_path).verified


@pytest.mark.parametrize(
    ("cached", "figures"),
    [
        (0, {"asked_again": 2, "tokens_kept": 0, "not_answered": 0}),
        (16, {"asked_again": 2, "tokens_kept": 32, "not_answered": 0}),
        (None, {"asked_again": 2, "tokens_kept": 0, "not_answered": 2}),
    ],
)
def test_a_deployment_is_clean_if_the_same_prompts_find_nothing(
    cached: int | None, figures: dict[str, int]
) -> None:
    canaries = Canaries(1)
    prompts = [canaries.prompt(tenant, 60) for tenant in ("alice", "bob")]
    gateway = cast(GatewayClient, Gateway(cached=cached))
    found = asked_again("deployment", ["promise"], gateway, prompts)
    assert found.figures == figures
    assert found.verified is (cached == 0)


def test_where_nothing_was_answered_nothing_can_have_been_kept() -> None:
    found = asked_again("deployment", ["range"], cast(GatewayClient, Gateway()), [])
    assert (found.verified, found.figures["asked_again"]) == (True, 0)
