"""Which lines of which engine are read, literally: the one table of them.

A pattern is tried only where the message of a line begins, so that text of a client that stands
inside a message is not taken for one. Each is a plain sequence with classes that can't run over
into each other: matching takes time linear in the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from kvairlock.audit.foreign.signs import Engine, Side, Sign

ID = r"(?P<request>[^\s,'\"]{1,256})"
ROOM = r"(?P<room>\d{1,20})"
RID = r"(?:decode_req\.)?req\.rid='(?P<request>[^']{1,256})' (?:decode_req\.)?req\.bootstrap_room="
NO_ID = "names no request"


@dataclass(frozen=True)
class Pattern:
    """One kind of line.

    Args:
        engine: Whose it is.
        sign: What it is a sign of.
        side: Which half writes it; unknown if both can.
        versions: Releases whose source was read for it.
        source: Where it is written there.
        level: From which log level on it is there.
        message: A regular expression for the beginning of the message. Groups: `request` and `room`
            are ids, `peer` is the id that the other half knows it by, `several` is a list of ids.
        unproven: What it does not show.
        unless: A text that, anywhere in the line, makes it no such sign.
    """

    engine: Engine
    sign: Sign
    side: Side
    versions: str
    source: str
    level: str
    message: str
    unproven: str
    unless: str = ""

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled expression."""
        return re.compile(self.message)


def _vllm(sign: Sign, side: Side, source: str, message: str, unproven: str, **more: str) -> Pattern:
    said = {"versions": "0.32.0", "level": "info"} | more
    return Pattern(
        Engine.VLLM, sign, side, source=source, message=message, unproven=unproven, **said
    )


def _sglang(
    sign: Sign, side: Side, source: str, message: str, unproven: str, **more: str
) -> Pattern:
    said = {"versions": "0.5.23", "level": "warning"} | more
    return Pattern(
        Engine.SGLANG, sign, side, source=source, message=message, unproven=unproven, **said
    )


PATTERNS: tuple[Pattern, ...] = (
    _vllm(
        Sign.LEASE_EXPIRED,
        Side.PREFILL,
        "NIXL connector, worker: leases of sends are reaped",
        rf"Releasing expired KV blocks for request {ID} which were retrieved by \d+ "
        r"(?:remote|decode) worker\(s\)",
        "whether the blocks were given to another request, and whether decode reads them later",
        versions="0.32.0, and the wording of earlier ones",
        level="warning",
    ),
    _vllm(
        Sign.LEASE_EXPIRED,
        Side.PREFILL,
        "Mooncake connector, worker: sends that nobody asked for",
        rf"Request {ID} timed out after \d+ seconds without being sent\. Freeing its blocks",
        "whether decode asks for them later",
        level="warning",
    ),
    _vllm(
        Sign.READ_UNKNOWN,
        Side.PREFILL,
        "NIXL connector, pull worker: notes of decode are read",
        rf"Potentially invalid KV blocks for unrecognized request {ID} were retrieved by a decode",
        "what the blocks held when they were read: the old bytes may still have been there",
        versions="0.32.0, and the wording of earlier ones",
        level="error",
    ),
    _vllm(
        Sign.READ_DECLINED,
        Side.DECODE,
        "NIXL connector, pull worker: a read of a second turn",
        rf"Declining expired remote read for {ID} from engine ",
        "anything about reads that were not declined",
        level="warning",
    ),
    _vllm(
        Sign.NOTE_LOST,
        Side.DECODE,
        "NIXL connector, worker: failures with their context",
        r"NIXL transfer failure: notification_failed",
        "whether prefill had already let the blocks go",
        level="error",
    ),
    _vllm(
        Sign.TRANSFER_FAILED,
        Side.DECODE,
        "NIXL connector, worker: failures with their context",
        r"NIXL transfer failure: (?:transfer|handshake)_[a-z_]{1,40}",
        "whether part of it arrived, and what the request did then",
        level="error",
    ),
    _vllm(
        Sign.TRANSFER_FAILED,
        Side.DECODE,
        "Mooncake connector, worker: a pull came back with an error",
        r"pulling kv_caches for (?P<several>.{1,4000}) failed: ",
        "whether part of it arrived, and what the requests did then",
        level="error",
    ),
    _vllm(
        Sign.DECODE_FAILED,
        Side.DECODE,
        "scheduler: blocks whose load failed",
        r"Failing \d+ request\(s\) due to KV load failure \([^)]{1,200}\)\. "
        r"Request IDs: (?P<several>.{1,4000})",
        "that every failed load is known to the scheduler",
        level="error",
    ),
    _vllm(
        Sign.TRANSFERRED,
        Side.UNKNOWN,
        "scheduler: what workers say is finished",
        rf"Finished (?:recving|sending) KV transfer for request {ID}",
        "how it ended: failed and expired transfers are finished as well",
        level="debug",
    ),
    _vllm(
        Sign.ABORTED,
        Side.UNKNOWN,
        "asynchronous engine: its client left, or asked for it",
        rf"Request {ID} aborted\.",
        "whether a transfer ran at that time",
    ),
    _vllm(
        Sign.ABORTED,
        Side.UNKNOWN,
        "asynchronous engine: its client left, or asked for it",
        r"Aborted request\(s\) (?P<several>.{1,4000})\.$",
        "whether a transfer ran at that time",
    ),
    _vllm(
        Sign.ANSWERED,
        Side.UNKNOWN,
        "log of requests, with outputs switched on",
        rf"Generated response {ID} ?(?:\([^)]{{1,60}}\))?: output: ",
        "which blocks the answer was computed from",
        unless="finish_reason: abort",
    ),
    _sglang(
        Sign.PREFILL_FAILED,
        Side.PREFILL,
        "prefill: a transfer in flight has failed",
        rf"Prefill transfer failed for request rank=\d+ {RID}{ROOM}",
        "whether its writes had ended",
    ),
    _sglang(
        Sign.PREFILL_FAILED,
        Side.PREFILL,
        "prefill: decode did not come, or left",
        rf"Prefill bootstrap failed for request rank=\d+ {RID}{ROOM}",
        "what decode made of it",
    ),
    _sglang(
        Sign.REFUSED,
        Side.UNKNOWN,
        "prefill and decode: longer than the pool",
        rf"Request {ID} exceeds the maximum number of tokens: \d+ > \d+",
        "that the other half was told",
        level="error",
    ),
    _sglang(
        Sign.TRANSFER_FAILED,
        Side.PREFILL,
        "NIXL connection: a transfer worker",
        rf"(?:NIXL transport error|Unexpected transfer worker error) for room {ROOM}",
        "whether other writes for that room still run",
    ),
    _sglang(
        Sign.ABORT_LATE,
        Side.PREFILL,
        "NIXL connection: an abort from decode",
        rf"Received abort notification for room {ROOM}, ignoring \(already completed or unknown\)",
        "whether decode still kept the pages when the write ended",
        level="debug",
    ),
    _sglang(
        Sign.ABORTED,
        Side.PREFILL,
        "NIXL connection: an abort from decode",
        rf"Received abort notification for room {ROOM}, marked as Failed",
        "whether a write ran at that time",
        level="debug",
    ),
    _sglang(
        Sign.ABORTED,
        Side.UNKNOWN,
        "scheduler: requests of every queue",
        r"Abort (?:[A-Za-z]{1,20} ){1,3}request\. (?:decode_req\.)?req\.rid="
        r"'(?P<request>[^']{1,256})'",
        "whether a transfer ran at that time",
        level="debug",
    ),
    _sglang(
        Sign.DECODE_FAILED,
        Side.DECODE,
        "decode: a transfer or its handshake has failed",
        rf"Decode (?:transfer|handshake) failed for request rank=\d+ {RID}{ROOM}",
        "whether writes into its pages had ended",
        level="error",
    ),
    _sglang(
        Sign.RELEASED_UNPROVEN,
        Side.DECODE,
        "decode: releases that wait for prefill",
        rf"Deferred KV release for room {ROOM} timed out after [0-9.]{{1,20}}s without a full ",
        "that a write came after it",
    ),
    _sglang(
        Sign.OTHERS_METADATA,
        Side.DECODE,
        "decode: what arrived is joined with its request",
        rf"Context corruption detected: Request {ID} \(bootstrap_room={ROOM}\) received metadata",
        "whether pages were mixed up as well; the request itself is given up",
        level="error",
    ),
    _sglang(
        Sign.OTHER_BYTES,
        Side.DECODE,
        "decode: checksums are compared",
        rf"KV checksum mismatch (?:on a peer rank )?req={ID} bootstrap_room={ROOM}",
        "who wrote the bytes; the request itself is given up",
        level="error",
    ),
    _sglang(
        Sign.UNCHECKED,
        Side.DECODE,
        "decode: checksums of prefill nodes that are laid out differently",
        r"KV checksum skipped: prefill layout signature ",
        NO_ID,
    ),
    _sglang(
        Sign.ANSWERED,
        Side.UNKNOWN,
        "log of requests",
        r"Finish: obj=[A-Za-z]{1,40}\(rid='(?P<request>[^']{1,256})'",
        "which pages the answer was computed from",
        level="info",
        unless="'type': 'abort'",
    ),
)
"""Every kind of line that is read. Logs of requests as JSON are read in `sightings`."""

PREFILL_SAID = ("disaggregation_mode='prefill'", "kv_role='kv_producer'")
DECODE_SAID = ("disaggregation_mode='decode'", "kv_role='kv_consumer'")
"""What an engine says at its start of which half it is."""
