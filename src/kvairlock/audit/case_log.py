"""Who authorised what in a case: a log that only grows, each line bound to the one before.

    case.json --digest--> 1: opened --> 2: authorised, by whom, why, for which result
                                    --> 3: joined, with the digest of that result --> ...

Each line also has a MAC of the cluster's key, so that nobody without it can add, change or reorder
one, or put another case under it. A line is on disk before what it speaks of begins; if it can't be
written, nothing begins. One process at a time has a log, from reading it to its last line. A result
that no line names shows that lines were cut off: then the case is closed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from kvairlock.audit.cases import CaseWrong, Count, Digest
from kvairlock.core.errors import PeerMisbehaved
from kvairlock.wire.keys import Keyring

LOG_FILE = "log.jsonl"
PURPOSE = "audit case log"
LOG_BYTES_MAX = 16 * 2**20
RESULTS = "result-*.json"


class Act(StrEnum):
    """What a line of the log records."""

    OPENED = "opened"
    AUTHORISED = "authorised"
    JOINED = "joined"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One line of the log.

    Args:
        entry: Its number, from 1.
        act: What was done.
        at_unix_ns: When.
        previous: SHA-256 of the line before, of the case itself in the first line.
        authorised_by: Who answers for it; empty in the first line.
        reason: Why it was done.
        scope: For whom names are joined.
        result: The file that names go into.
        result_sha256: Its digest; empty if this line only authorises it.
        key: Which of the cluster's keys made the MAC.
        mac: Over all the rest; empty while there is none.
    """

    entry: Count
    act: Act
    at_unix_ns: Count
    previous: Digest
    authorised_by: str = ""
    reason: str = ""
    scope: tuple[str, ...] = ()
    result: str = ""
    result_sha256: str = ""
    key: str
    mac: str = ""


def open_log(folder: Path, case_sha256: str, ring: Keyring) -> None:
    """Begin the log of a case.

    Args:
        folder: The case.
        case_sha256: The digest of its candidates.
        ring: The cluster's keys.

    Raises:
        CaseWrong: There is one already.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
    try:
        descriptor = os.open(folder / LOG_FILE, flags, 0o600)
    except FileExistsError:
        raise CaseWrong(f"{folder} holds the log of a case already; name another folder") from None
    try:
        _append(descriptor, _line(_entry(Act.OPENED, 1, case_sha256, ring), ring))
    finally:
        os.close(descriptor)


class CaseLog:
    """The log of one case, for one process at a time: others wait until it is closed.

    Args:
        folder: The case.
        case_sha256: The digest of its candidates.
        ring: The cluster's keys.

    Raises:
        CaseWrong: There is none, it is not of this case, a line does not follow the one before or
            is nobody's who has the keys, or there is a result that no line names.
    """

    def __init__(self, folder: Path, case_sha256: str, ring: Keyring) -> None:
        self._path, self._ring = folder / LOG_FILE, ring
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            raise CaseWrong(f"{self._path} is gone; open another case") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            self._entries, self._last = self._read(case_sha256)
            self._see_results(folder)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    @property
    def next_result(self) -> str:
        """The file that the next names go into."""
        done = sum(entry.act is Act.AUTHORISED for entry in self._entries)
        return f"result-{done + 1}.json"

    def add(
        self,
        act: Act,
        authorised_by: str,
        reason: str,
        scope: tuple[str, ...],
        result: str,
        result_sha256: str = "",
    ) -> None:
        """Write a line, and have it on disk.

        Args:
            act: What is recorded.
            authorised_by: Who answers for it.
            reason: Why.
            scope: For whom.
            result: The file that names go into.
            result_sha256: Its digest, if they did.

        Raises:
            OSError: It can't be written.
        """
        bare = msgspec.structs.replace(
            _entry(act, len(self._entries) + 1, self._last, self._ring),
            authorised_by=authorised_by,
            reason=reason,
            scope=scope,
            result=result,
            result_sha256=result_sha256,
        )
        line = _line(bare, self._ring)
        _append(self._descriptor, line)
        self._entries.append(bare)
        self._last = hashlib.sha256(line).hexdigest()

    def _read(self, case_sha256: str) -> tuple[list[Entry], str]:
        entries, last = [], case_sha256
        for number, line in enumerate(self._lines(), 1):
            entry = self._entry(number, line)
            if entry.previous != last and number == 1:
                raise CaseWrong(f"{self._path} is not of this case, which was changed or exchanged")
            if entry.previous != last or entry.entry != number:
                raise self._broken(number, "does not follow the one before")
            entries.append(entry)
            last = hashlib.sha256(line).hexdigest()
        if not entries or entries[0].act is not Act.OPENED:
            raise CaseWrong(f"{self._path} does not say that the case was opened; open another")
        return entries, last

    def _lines(self) -> list[bytes]:
        data = os.pread(self._descriptor, LOG_BYTES_MAX + 1, 0)
        if len(data) > LOG_BYTES_MAX:
            raise CaseWrong(f"{self._path} is larger than a log may be")
        return data.splitlines()

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

    def _see_results(self, folder: Path) -> None:
        named = {entry.result for entry in self._entries}
        for path in sorted(folder.glob(RESULTS)):
            if path.name not in named:
                raise CaseWrong(f"no line of {self._path} names {path.name}: lines were cut off")

    def _broken(self, number: int, what: str) -> CaseWrong:
        return CaseWrong(f"{self._path}: line {number} {what}; open another case")


def _entry(act: Act, number: int, previous: str, ring: Keyring) -> Entry:
    now = time.time_ns()
    return Entry(entry=number, act=act, at_unix_ns=now, previous=previous, key=ring.active_id)


def _line(bare: Entry, ring: Keyring) -> bytes:
    mac = ring.mac(bare.key, PURPOSE, msgspec.json.encode(bare)).hex()
    return msgspec.json.encode(msgspec.structs.replace(bare, mac=mac))


def _append(descriptor: int, line: bytes) -> None:
    whole = line + b"\n"
    if os.write(descriptor, whole) != len(whole):
        raise OSError("the line could only be written in part")
    os.fsync(descriptor)
