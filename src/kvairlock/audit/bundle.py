"""An evidence bundle: what the audit says of one request, and what that rests on, signed.

    one line of JSON = { statement ..., attempts: [ verdict, lives, spans, records ], signature }

It is written for the tenant whose request it is. Nothing in it is another's: other requests are
digests of this bundle only (`kvairlock.audit.neighbours`). The signature is over all the rest, byte
for byte, and the form is strict: a file that is not exactly what its own content would be written
as is no bundle. So any byte that was changed shows.

Who checks a bundle does not have to believe the verdict: from the records in it, and from what the
operator states of the completeness of its evidence, the same rules come to it again
(`kvairlock.audit.rederiving`). That statement, and that the records are those of the files named,
is what the signature is for.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kvairlock.audit.lines import is_record
from kvairlock.audit.signing import Signer, is_signed
from kvairlock.core.errors import KvairlockError

Format = Literal["kvairlock-bundle-1"]
FORMAT: Format = "kvairlock-bundle-1"
BUNDLE_BYTES_MAX = 64 * 2**20

ATTEMPTS_MAX = 16
RECORDS_MAX = 4096
"""Records of one attempt."""
MENTIONS_MAX = 256
"""How often one page of one life may be named in them: work grows with the square of it."""
PAGES_MAX = 2**18
"""How many pages they may name, all of them together."""
YEAR_10000_UNIX_S = 253_402_300_800

Text = Annotated[str, Meta(max_length=1024)]
Hex = Annotated[str, Meta(pattern=r"\A[0-9a-f]*\Z", max_length=128)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class BundleBroken(KvairlockError):
    """A bundle does not verify; the message says what does not."""

    code = "bundle_broken"


class Life(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process that the request was on, and how much of its evidence there is."""

    number: Count
    node: Text
    role: Text
    incarnation: Text
    records: Count
    first: Count
    last: Count
    from_unix_ns: Count
    to_unix_ns: Count
    closed: bool


class Span(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a life's evidence that is not covered."""

    life: Count
    since: Count
    until: Count
    gap: Text
    route: Text
    detail: Text


class Met(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pages of another that the request could have read; `other` is a digest of this bundle."""

    other: Text
    node: Text
    incarnation: Text
    pages: tuple[Count, ...]
    generations: tuple[Count, ...]


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that records are from, for somebody who is let at the evidence itself."""

    name: Text
    sha256: Hex


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One attempt of the request on one route.

    Args:
        request: The digest that stands for it.
        tenant: The digest that stands for its tenant.
        number: Which attempt, 0 if that is not known.
        verdict: `affected`, `insufficient` or `excluded`.
        grade: How well founded that is.
        reasons: Which rules fired.
        rederived: Whether the records here, alone, came to the same verdict when it was written.
        met: If it is affected: whose pages it could have read.
        lives: Where it was.
        spans: What of their evidence is not covered.
        files: Which files the records are from.
        records: Its own, and those of others that the verdict rests on.
    """

    request: Text
    tenant: Text
    number: Count
    verdict: Text
    grade: Text
    reasons: tuple[Text, ...]
    rederived: bool
    met: tuple[Met, ...]
    lives: tuple[Life, ...]
    spans: tuple[Span, ...]
    files: tuple[File, ...]
    records: Annotated[tuple[dict[str, Any], ...], Meta(min_length=1, max_length=RECORDS_MAX)]


class Bundle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole bundle.

    Args:
        format: How to read it.
        kvairlock: The release that wrote it.
        made_unix_s: When.
        asked: The id that the client got, if it was explained by that.
        attempts: All attempts of the request.
        public_key: Whose signature it is.
        signature: Over everything else; empty while there is none.
    """

    format: Format
    kvairlock: Text
    made_unix_s: Annotated[int, Meta(ge=0, lt=YEAR_10000_UNIX_S)]
    asked: Text
    attempts: Annotated[tuple[Attempt, ...], Meta(min_length=1, max_length=ATTEMPTS_MAX)]
    public_key: Hex
    signature: Hex


def signed(bundle: Bundle, signer: Signer) -> Bundle:
    """Return a bundle with the signature of whoever signs."""
    bare = msgspec.structs.replace(bundle, public_key=signer.public_key, signature="")
    return msgspec.structs.replace(bare, signature=signer.sign(_line(bare)))


def write_bundle(bundle: Bundle, path: Path) -> None:
    """Write a bundle to a file, which is not there yet.

    Raises:
        BundleBroken: It could not be read again: its request has more records than fit into one.
        FileExistsError: It is there.
    """
    line = _line(bundle)
    parsed(line, path.name)
    with path.open("xb") as file:
        file.write(line)


def read_bundle(path: Path, public_key: str = "") -> Bundle:
    """Read a bundle, and verify it to the last byte.

    Args:
        path: The file.
        public_key: The key that must have signed it; any if empty.

    Raises:
        BundleBroken: It is none, a byte of it was changed, or another key signed it.
    """
    if path.stat().st_size > BUNDLE_BYTES_MAX:
        raise BundleBroken(f"{path.name} is larger than a bundle may be")
    return parsed(path.read_bytes(), path.name, public_key)


def parsed(data: bytes, name: str, public_key: str = "") -> Bundle:
    """Return the bundle that bytes are; see `read_bundle`.

    Raises:
        BundleBroken: They are none, one was changed, or another key signed it.
    """
    try:
        bundle = msgspec.json.decode(data, type=Bundle)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise BundleBroken(f"{name} is no bundle, or was changed: {error}") from None
    if _line(bundle) != data:
        raise BundleBroken(f"{name} was changed: it is not written as bundles are")
    bare = msgspec.structs.replace(bundle, signature="")
    if not is_signed(_line(bare), bundle.signature, bundle.public_key):
        raise BundleBroken(f"{name} was changed: the signature does not verify")
    if public_key not in ("", bundle.public_key):
        raise BundleBroken(f"{name} is signed, but not by the key that was named")
    for attempt in bundle.attempts:
        _look_at(attempt, name)
    return bundle


def _look_at(attempt: Attempt, name: str) -> None:
    """Make sure that records are some, are about their request, and are not too much to judge."""
    if not all(is_record(record) for record in attempt.records):
        raise BundleBroken(f"{name} is no bundle: it holds something that is no record")
    if not any(record.get("request") == attempt.request for record in attempt.records):
        raise BundleBroken(f"{name} claims nothing: no record in it is about its request")
    mentions = Counter(
        (record["node"], record["incarnation"], page)
        for record in attempt.records
        for page in record.get("pages") or ()
    )
    if mentions.total() > PAGES_MAX or max(mentions.values(), default=0) > MENTIONS_MAX:
        raise BundleBroken(f"{name} names more pages than a bundle may")


def _line(bundle: Bundle) -> bytes:
    """Return the only form that a bundle is written in."""
    return msgspec.json.encode(bundle, order="sorted") + b"\n"
