"""What `kvairlock explain` does: find a request, tell its story, write or verify a bundle."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kvairlock import __version__
from kvairlock.audit.bundle import (
    FORMAT,
    Attempt,
    Bundle,
    BundleBroken,
    read_bundle,
    signed,
    write_bundle,
)
from kvairlock.audit.bundling import attempt_of
from kvairlock.audit.explaining import Explanation, explain
from kvairlock.audit.rederiving import agrees, rederive
from kvairlock.audit.report import Class
from kvairlock.audit.signing import Signer, public_key_of
from kvairlock.cli.auditing import Asked, Audited, audited
from kvairlock.cli.evidence_places import digests_of
from kvairlock.cli.explain_view import show
from kvairlock.cli.output import Status, document, fail, note
from kvairlock.cli.verify_view import show_bundle

_DIGEST = re.compile(r"[0-9a-f]{24}")
_STATUS = {
    Class.EXCLUDED: Status.OK,
    Class.AFFECTED: Status.NOT_OK,
    Class.INSUFFICIENT: Status.UNTOLD,
}
WORST = (Class.AFFECTED, Class.INSUFFICIENT, Class.EXCLUDED)

Found = list[tuple[int, Explanation]]


def explain_request(request: str, asked: Asked, bundle: Path | None, *, json: bool) -> Status:
    """Explain a request, and write its bundle if one is wanted; return the exit status.

    Args:
        request: Its digest, or the id that its client got.
        asked: Which evidence to look at.
        bundle: The file to write.
        json: Whether to print JSON rather than text.
    """
    if bundle is not None and bundle.exists():
        fail(f"{bundle} is there already; name another file")
    with audited(asked) as done:
        found = list(_attempts(request, done))
        if not found:
            fail(
                f"nothing is on record of {request}", "is it this evidence, and are its keys there?"
            )
        if json:
            document([{"attempt": number, **told.to_json()} for number, told in found])
        else:
            for number, told in found:
                show(told, number)
        if bundle is not None:
            _bundle(request, done, found, bundle)
        worst = min((told.verdict.verdict for _, told in found), key=WORST.index)
        return _STATUS[worst]


def verify_bundle(path: Path, public_key: str, *, json: bool) -> Status:
    """Verify a bundle and say what it claims; return the exit status.

    Args:
        path: The bundle.
        public_key: The key that must have signed it, or a file that holds it; if empty, nobody can
            tell who signed it.
        json: Whether to print JSON rather than text.
    """
    try:
        held = read_bundle(path, public_key_of(public_key) if public_key else "")
        again = [_again(attempt) for attempt in held.attempts]
    except BundleBroken as error:
        if json:
            document({"verifies": False, "reason": str(error)})
        fail(str(error), "do not rely on it; ask whoever sent it for another", Status.NOT_OK)
    if json:
        document(_claimed(held, again, pinned=bool(public_key)))
    else:
        show_bundle(held, again, pinned=bool(public_key))
    return Status.OK if public_key else Status.UNTOLD


def _attempts(request: str, done: Audited) -> Iterator[tuple[int, Explanation]]:
    """Yield each attempt that is on record, with its number; 0 if a digest was given."""
    if _DIGEST.fullmatch(request):
        named: Sequence[tuple[int, str]] = [(0, request)]
    elif done.ring is None:
        fail(
            "an id can only be looked up with the cluster's keys",
            "--state DIR or --cluster-key FILE, or give the digest that an audit prints",
        )
    else:
        digests = digests_of(done.ring, done.paths, done.state)
        named = list(dict.fromkeys(digests.request(request)))
    for number, digest in named:
        told = explain(done.evidence, done.report, digest)
        if told is not None:
            yield number, told


def _bundle(request: str, done: Audited, found: Found, path: Path) -> None:
    if done.state is None:
        fail("there is no state folder to keep the signing key in", "--state DIR")
    signer = Signer.of(done.state)
    own = [told.verdict.request for _, told in found]
    attempts = [attempt_of(done.evidence, done.paths, told, number, own) for number, told in found]
    bundle = Bundle(
        format=FORMAT,
        kvairlock=__version__,
        made_unix_s=int(time.time()),
        asked="" if _DIGEST.fullmatch(request) else request,
        attempts=tuple(attempts),
        public_key="",
        signature="",
    )
    write_bundle(signed(bundle, signer), path)
    note(f"wrote {path}, signed by {signer.public_key}")


def _again(attempt: Attempt) -> bool:
    """Come to the verdict again, where its records are enough for that; whether they were.

    Raises:
        BundleBroken: They are said to be enough, and come to another one.
    """
    if not attempt.rederived:
        return False
    if not agrees(attempt, rederive(attempt)):
        raise BundleBroken("its records do not come to the verdict that it states")
    return True


def _claimed(held: Bundle, again: Sequence[bool], *, pinned: bool) -> dict[str, Any]:
    said = msgspec.to_builtins(held)
    for attempt, rederived in zip(said["attempts"], again, strict=True):
        attempt["rederived"] = rederived
    return {"verifies": True, "key_was_named": pinned, "bundle": said}
