"""What a verified bundle claims, as text: who says so, what they say, and what that rests on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from kvairlock.audit.bundle import Attempt, Bundle
from kvairlock.audit.report import Class
from kvairlock.cli.audit_view import at, reasons_found
from kvairlock.cli.explain_view import MEANS, says
from kvairlock.cli.output import plain, say, table
from kvairlock.pictures.names import page_ranges

RANGES_MAX = 6


def show_bundle(held: Bundle, again: Sequence[bool], *, pinned: bool) -> None:
    """Print what a bundle claims.

    Args:
        held: The bundle, which verifies.
        again: For each attempt, whether its records came to the verdict again.
        pinned: Whether the reader named the key that must have signed it.
    """
    made = datetime.fromtimestamp(held.made_unix_s, UTC)
    if not pinned:
        say("unknown signer: anybody can sign a bundle; name the key that you trust: --public-key")
    say(f"no byte was changed since it was signed, {made:%Y-%m-%d %H:%M} UTC")
    say(f"signed by {held.public_key}{', the key that you named' if pinned else ''}")
    if held.asked:
        say(f"it is about the request with the id {plain(held.asked)}")
    for attempt, rederived in zip(held.attempts, again, strict=True):
        _show_attempt(attempt, rederived=rederived)


def _show_attempt(attempt: Attempt, *, rederived: bool) -> None:
    which = f", attempt {attempt.number}" if attempt.number else ""
    say(f"\nrequest {plain(attempt.request)}{which}")
    means = MEANS.get(Class(attempt.verdict), "") if attempt.verdict in tuple(Class) else ""
    say(f"verdict: {plain(attempt.verdict)}, {plain(attempt.grade)}: {means}")
    for name in attempt.reasons:
        say(f"  {plain(name)}: {_found(name)}")
    for met in attempt.met:
        pages = page_ranges(met.pages, RANGES_MAX)
        say(f"  could have read of another request: {pages} on {plain(met.node)}")
    if rederived:
        say("the rules came to the same verdict again, from the records in the bundle alone")
    else:
        say("its records are not enough to come to the verdict again: it rests on the signature")
    _show_records(attempt)
    say("that the evidence of these processes is complete as stated rests on the signature:")
    for life in attempt.lives:
        gaps = [span.gap for span in attempt.spans if span.life == life.number]
        covered = f"not covered: {', '.join(dict.fromkeys(gaps))}" if gaps else "covered"
        say(plain(f"  {life.node} ({life.role}): {life.records} records, {covered}"))


def _found(name: str) -> str:
    try:
        return reasons_found([name])
    except KeyError:
        return "a rule that this release does not have"


def _show_records(attempt: Attempt) -> None:
    own = [record for record in attempt.records if record.get("request") == attempt.request]
    others = len(attempt.records) - len(own)
    say(f"records: {len(own)} of its own, {others} of others, around its pages")
    own.sort(key=lambda record: (record["at_unix_ns"], record["node"], record["sequence"]))
    rows = [(at(r["at_unix_ns"]), r["node"], r["event"], says(r)) for r in own]
    table(("when (UTC)", "node", "event", "what it says"), rows, ("when (UTC)",))
