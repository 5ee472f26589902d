"""A drill as text, and what may come to light of its requests, for tests to change."""

from __future__ import annotations

from dataclasses import replace

from kvairlock.drills.library.sights import Seen, Vouched

TEXT = """
name = "made"
title = "a made-up drill"
round = "receipt"
level = 2
guards = ["range"]
shadows = ["input"]

stack = { prefill_pages = [64, 64] }

steps = [
    { do = "arm", node = "prefill-0", point = "prefill.short" },
    { do = "ask", request = "a", tenant = "alice", route = "prefill-0/decode-0" },
    { do = "ask", request = "b", tenant = "bob" },
    { do = "answered", request = "a" },
    { do = "release", node = "prefill-0", point = "prefill.short" },
]

[limits]
tenants_max = 2
requests_max = 3
prompt_tokens = [34, 128]
seconds_max = 60
retention_h = 24

[[holds]]
request = "a"
sight = "refused"
reason = "range"
stage = "verdict"
recorded = { node = "decode-0", event = "verdict", request = "a", fields = { outcome = "range" } }

[[shows]]
request = "a"
sight = "wrong"
"""

OWN = Seen(
    tenant="alice",
    http_status=200,
    error={},
    text="its own canary",
    sent_tokens=120,
    prompt_tokens=120,
    asked_tokens=None,
    limit_tokens=None,
    own=True,
    foreign=(),
    vouched=Vouched.ADMITTED,
    sharers=(),
    tail=False,
)
WRONG = replace(OWN, own=False)
FOREIGN = replace(WRONG, foreign=("bob",))


def refused(code: str, stage: str = "verdict", status: int = 502, **figures: int) -> Seen:
    """A refusal as its client gets it."""
    error = {"code": code, "stage": stage, **figures}
    return replace(OWN, http_status=status, error=error, text="", own=False, vouched=Vouched.UNSEEN)


RANGE = refused("handoff_range_mismatch")
