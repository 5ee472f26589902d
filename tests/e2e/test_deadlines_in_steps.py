"""Deadlines that fall between asking for a step and reading: no page may be held for ever."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kvairlock.drills.canaries import Canaries
from kvairlock.drills.client import Client
from kvairlock.drills.stack import make_keys, running

SETTINGS = """
[gateway]
port = 0
[[prefill]]
name = "prefill-0"
pages = 256
prefix_share = 0
[[decode]]
name = "decode-0"
pages = 256
tenant_share = 1.0
[limits]
decode_ms = 60
"""


def test_pages_of_requests_that_ran_out_of_time_come_back(tmp_path: Path) -> None:
    keys = make_keys(tmp_path, ["acme"])
    with running(SETTINGS, keys, tmp_path / "stack") as stack:
        client, canaries = Client(stack, keys), Canaries(1)
        prompts = [canaries.prompt("acme", 120) for _ in range(80)]
        with ThreadPoolExecutor(10) as pool:
            calls = pool.map(lambda p: client.ask(p, max_tokens=400).result(), prompts)
            replies = list(calls)
        assert any(r.error.get("code") == "timed_out" or r.status == 504 for r in replies)
        status = client.idle()
    decode = status["nodes"]["decode-0"]["status"]
    assert decode["pages"]["free"] == 256
    assert decode["counters"].get("ended.timed_out", 0) > 0
