"""Who authorised what in a case: a log that only grows, each line bound to the one before.

    case.json --digest--> 1: authorised, by whom, why --digest--> 2: joined, which file --> ...

Each line also has a MAC of the cluster's key, so that nobody without it can add, change or reorder
one. A line is on disk before what it speaks of begins; if it can't be written, nothing begins.
"""

from __future__ import annotations

import hashlib
import os
import time
from enum import StrEnum
from pathlib import Path

import msgspec

from kvairlock.audit.cases import CaseWrong, Count, Digest
from kvairlock.core.errors import PeerMisbehaved
from kvairlock.wire.keys import Keyring

LOG_FILE = "log.jsonl"
PURPOSE = "audit case log"
LOG_BYTES_MAX = 16 * 2**20


class Act(StrEnum):
    """What a line of the log records."""

    AUTHORISED = "authorised"
    JOINED = "joined"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the log.

    Args:
        entry: Its number, from 1.
        act: What was done.
        at_unix_ns: When.
        previous: SHA-256 of the line before, of the case itself in the first line.
        authorised_by: Who answers for it.
        reason: Why it was done.
        scope: For whom names are joined.
        result: The file that names went into; empty if this line only authorises it.
        result_sha256: Its digest.
        key: Which of the cluster's keys made the MAC.
        mac: Over all the rest; empty while there is none.
    """

    entry: Count
    act: Act
    at_unix_ns: Count
    previous: Digest
    authorised_by: str
    reason: str
    scope: tuple[str, ...]
    result: str
    result_sha256: str
    key: str
    mac: str


class CaseLog:
    """The log of one case.

    Args:
        folder: The case.
        case_sha256: The digest of its candidates.
        ring: The cluster's keys.

    Raises:
        CaseWrong: A line does not follow the one before, or is nobody's who has the keys.
    """

    def __init__(self, folder: Path, case_sha256: str, ring: Keyring) -> None:
        self._path = folder / LOG_FILE
        self._ring = ring
        self._entries, self._last = self._read(case_sha256)

    def __len__(self) -> int:
        """How many lines there are."""
        return self._entries

    def add(
        self,
        act: Act,
        authorised_by: str,
        reason: str,
        scope: tuple[str, ...],
        result: str = "",
        result_sha256: str = "",
    ) -> Entry:
        """Write a line, and have it on disk.

        Args:
            act: What is recorded.
            authorised_by: Who answers for it.
            reason: Why.
            scope: For whom.
            result: The file that names went into, if they did.
            result_sha256: Its digest.

        Raises:
            OSError: It can't be written.
        """
        bare = Entry(
            entry=self._entries + 1,
            act=act,
            at_unix_ns=time.time_ns(),
            previous=self._last,
            authorised_by=authorised_by,
            reason=reason,
            scope=scope,
            result=result,
            result_sha256=result_sha256,
            key=self._ring.active_id,
            mac="",
        )
        entry = msgspec.structs.replace(bare, mac=self._mac(bare))
        line = msgspec.json.encode(entry)
        _append(self._path, line + b"\n")
        self._entries, self._last = entry.entry, hashlib.sha256(line).hexdigest()
        return entry

    def _read(self, case_sha256: str) -> tuple[int, str]:
        last = case_sha256
        lines = _lines(self._path)
        for number, line in enumerate(lines, 1):
            entry = self._entry(number, line)
            if entry.entry != number or entry.previous != last:
                raise self._broken(number, "does not follow the one before")
            last = hashlib.sha256(line).hexdigest()
        return len(lines), last

    def _entry(self, number: int, line: bytes) -> Entry:
        try:
            entry = msgspec.json.decode(line, type=Entry)
        except (msgspec.ValidationError, msgspec.DecodeError):
            raise self._broken(number, "is none") from None
        bare = msgspec.structs.replace(entry, mac="")
        try:
            mac = bytes.fromhex(entry.mac)
            self._ring.check(entry.key, PURPOSE, msgspec.json.encode(bare), mac)
        except (PeerMisbehaved, ValueError):
            raise self._broken(number, "was not written with the cluster's keys") from None
        return entry

    def _mac(self, bare: Entry) -> str:
        return self._ring.mac(bare.key, PURPOSE, msgspec.json.encode(bare)).hex()

    def _broken(self, number: int, what: str) -> CaseWrong:
        return CaseWrong(f"{self._path}: line {number} {what}; open another case")


def _lines(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    if path.stat().st_size > LOG_BYTES_MAX:
        raise CaseWrong(f"{path} is larger than a log may be")
    return path.read_bytes().splitlines()


def _append(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        if os.write(descriptor, line) != len(line):
            raise OSError("the line could only be written in part")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
