"""A prefill process: computes prompts chunk by chunk, and writes their pages into windows."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections import Counter
from dataclasses import dataclass

import anyio
import anyio.to_thread
import numpy as np
import structlog
from numpy.typing import NDArray

from kvairlock.core.effects import (
    Digest,
    DropWindow,
    Effect,
    StartCompute,
    StopCompute,
    Value,
    Write,
)
from kvairlock.core.errors import Refusal, Stage
from kvairlock.core.events import (
    Digested,
    Granted,
    Told,
    WriteEnded,
)
from kvairlock.core.messages import Grant, Message, Ruling, Withdraw
from kvairlock.core.node import Node
from kvairlock.core.protocol.prefill import PrefillNode
from kvairlock.core.terms import Peer, TransferId, WindowId
from kvairlock.node.computing import Computing, Prompt
from kvairlock.node.host import Equipment, Host
from kvairlock.node.presenting import token_ids
from kvairlock.runtime.ports import WriteEnd, WriteStatus
from kvairlock.transport.checksums import page_digests
from kvairlock.transport.writer import Writer
from kvairlock.wire.tickets import key_id_of

PAGE_KEY_BYTES = 16

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Fed:
    """What the engine is fed for a transfer, and how that is digested.

    Args:
        tenant: Whose it is.
        tokens: Token ids, shape (tokens,).
        key_id: The key that signed the request's ticket.
        salt: The ticket's salt.
    """

    tenant: str
    tokens: NDArray[np.int32]
    key_id: str
    salt: str


@dataclass(frozen=True, slots=True)
class GrantedWindow:
    """A window as it came: the file is ours to close until it is handed to the writer."""

    transfer: TransferId
    file: int
    offsets: tuple[int, ...]


class PrefillHost(Host):
    """The host of a prefill node.

    Args:
        equipment: What the process is given.
        machine: The core's machine.
        chunk_tokens: Prompt tokens computed in one go.
    """

    def __init__(self, equipment: Equipment, machine: PrefillNode, chunk_tokens: int) -> None:
        super().__init__(equipment, Node(machine))
        self.machine = machine
        self.computing = Computing(equipment.model, self.cache, chunk_tokens, self.tell)
        self.writer = Writer(
            equipment.memory, self._write_ended, self.points, repeated=self._write_repeated
        )
        self.granted: dict[WindowId, GrantedWindow] = {}
        self.writing: dict[str, Write] = {}
        self.fed: dict[TransferId, Fed] = {}
        self._has_work = anyio.Event()
        # Page keys never leave this process: a key of its own makes them worthless elsewhere.
        self._page_key = secrets.token_bytes(32)

    # Messages

    def hear(self, peer: Peer, message: Message, file: int | None) -> None:
        """Take a message of a decode node."""
        match message:
            case Grant() if file is not None:
                self._grant(peer, message, file)
            case Withdraw() | Ruling():
                self.tell(Told(peer, message))
            case _:
                log.warning("unexpected message", kind=type(message).__name__, peer=peer.node)

    def _grant(self, peer: Peer, grant: Grant, file: int) -> None:
        if self._has_window(grant.window):
            # The window is known, and the core will ignore the grant: only this file is too many.
            os.close(file)
        else:
            self.granted[grant.window] = GrantedWindow(grant.transfer, file, grant.offsets)
        presented = self.presenter.present(
            grant.ticket, None, grant.tokens, Stage.PREFILL_ADMISSION
        )
        tokens = token_ids(grant.tokens[: len(grant.tokens) // 4 * 4])
        salt = "" if isinstance(presented.ticket, Refusal) else presented.ticket.salt
        fed = Fed(presented.tenant, tokens, key_id_of(grant.ticket), salt)
        self.fed.setdefault(grant.transfer, fed)
        self.traces.begin(grant.transfer, grant.trace)
        self.tell(
            Granted(
                transfer=grant.transfer,
                presented=presented,
                decode=peer,
                window=grant.window,
                window_pages=len(grant.offsets),
                generations=grant.generations,
                layout=grant.layout,
                seed=grant.seed,
                patience_ms=grant.patience_ms,
                page_keys=self._page_keys(tokens),
            )
        )
        if grant.transfer not in self.machine.jobs:
            self.fed.pop(grant.transfer, None)
            self.traces.refused(grant.transfer)

    def _has_window(self, window: WindowId) -> bool:
        writing = any(write.window == window for write in self.writing.values())
        return window in self.granted or writing

    def _page_keys(self, tokens: NDArray[np.int32]) -> tuple[bytes, ...]:
        """Chain a key over the full pages: a page matches only behind the same beginning."""
        size, key, keys = self.has.layout.page_tokens, b"", []
        for start in range(0, len(tokens) - size + 1, size):
            page = tokens[start : start + size].tobytes()
            digest = hashlib.blake2b(key + page, key=self._page_key, digest_size=PAGE_KEY_BYTES)
            key = digest.digest()
            keys.append(key)
        return tuple(keys)

    # Effects

    def perform(self, effect: Effect) -> None:
        """Carry out what only a prefill node does."""
        match effect:
            case StartCompute():
                self._start_compute(effect)
            case StopCompute(transfer):
                self.computing.stop(transfer)
                self.fed.pop(transfer, None)
            case Digest():
                self.start(self._digest, effect)
            case Write():
                self._write(effect)
            case DropWindow(_, window):
                dropped = self.granted.pop(window, None)
                if dropped is not None:
                    os.close(dropped.file)
            case _:
                log.error("effect of another node", kind=type(effect).__name__)

    def _start_compute(self, effect: StartCompute) -> None:
        fed = self.fed[effect.transfer]
        prompt = Prompt(fed.tenant, fed.tokens, effect.table, effect.start, effect.stop)
        self.computing.start(effect.transfer, prompt)
        self._has_work.set()

    async def _digest(self, effect: Digest) -> None:
        computed = self._input_digest(effect.transfer)
        digests = await anyio.to_thread.run_sync(
            page_digests, self.has.memory.array, effect.pages, effect.seed
        )
        self.tell(Digested(effect.transfer, digests, computed))

    def _input_digest(self, transfer: TransferId) -> bytes:
        """Digest the tokens that the engine was fed, not those that came with the grant."""
        job, fed = self.machine.jobs.get(transfer), self.fed.get(transfer)
        if job is None or fed is None:
            return b""
        tokens = fed.tokens[: job.stop].astype("<i4").tobytes()
        return self.presenter.digest(fed.key_id, fed.salt, tokens)

    def _write(self, effect: Write) -> None:
        window = self.granted.pop(effect.window)
        # A window with too little room ends the write failed: the writer checks the grant.
        offsets = window.offsets[: len(effect.pages)]
        name = f"{effect.window} {effect.transfer}"
        self.writing[name] = effect
        self.writer.submit(name, effect.pages, window.file, offsets)

    def _write_ended(self, end: WriteEnd) -> None:
        write, done = self.writing.pop(end.write), end.status is WriteStatus.DONE
        if not done:
            log.warning("write failed", window=write.window, reason=end.reason)
        ended = WriteEnded(write.transfer, write.window, done, end.bytes_written)
        self.tell_from_thread(ended)

    def _write_repeated(self, end: WriteEnd) -> None:
        fields: dict[str, Value] = {
            "window": end.write.split(" ", 1)[0],
            "bytes_written": end.bytes_written,
        }
        self.has.sink.record("write_repeated", None, fields)

    # Computing

    async def work(self) -> None:
        """Compute one chunk of one prompt after the other, in turn, until cancelled."""
        while True:
            if not self.computing.has_work:
                self._has_work = anyio.Event()
                await self._has_work.wait()
            await self.computing.step()

    # Figures

    def requests(self) -> Counter[str]:
        """Return the number of prompts by hand-over stage."""
        return Counter(str(job.stage) for job in self.machine.jobs.values())

    def windows(self) -> tuple[int, int]:
        """Return the windows that were granted to us and that we have not given back."""
        return len(self.granted), 0
