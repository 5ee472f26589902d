"""A prefill node that does on purpose what no guard relies on that it does not; drill mode only.

The flaws are those of the simulator's mutants, done by a real process: what its engine is fed, what
it fills, which pages it writes, what its receipt says. Each overrides one step of the host and is
chosen once for each prompt, when its computation starts. Without an armed flaw this is the host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import anyio.to_thread
import numpy as np
import structlog

from kvairlock.core.effects import StartCompute, Write
from kvairlock.core.ends import End
from kvairlock.core.errors import PeerMisbehaved
from kvairlock.core.events import ComputeBegan, Computed, Event
from kvairlock.core.messages import Message, Receipt
from kvairlock.core.protocol.prefill import PrefillNode
from kvairlock.core.protocol.prefill.job import Job
from kvairlock.core.terms import NodeName, TransferId
from kvairlock.node.host import Equipment
from kvairlock.node.prefill import PrefillHost
from kvairlock.runtime import link
from kvairlock.runtime.failpoints import Flaw
from kvairlock.runtime.link import ChannelClosed, Identity
from kvairlock.runtime.secrets import new_key
from kvairlock.transport.checksums import page_digests
from kvairlock.wire.keys import Keyring

FLAWS = tuple(flaw for flaw in Flaw if flaw is not Flaw.DEAF)
MIXES = frozenset({Flaw.OTHERS_REQUEST, Flaw.OTHERS_INPUT, Flaw.TORN, Flaw.PADDED})
"""These mix a prompt up with one of another tenant, which must be there at the same time."""

OTHER_LAYOUT = "another layout"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Flawed:
    """What is done wrong with one prompt.

    Args:
        flaw: What.
        other: The prompt that it is mixed up with; itself if there is none.
    """

    flaw: Flaw
    other: Job


class FlawedPrefill(PrefillHost):
    """The host of a prefill node in drill mode.

    Args:
        equipment: What the process is given.
        machine: The core's machine.
        chunk_tokens: Prompt tokens computed in one go.
    """

    def __init__(self, equipment: Equipment, machine: PrefillNode, chunk_tokens: int) -> None:
        super().__init__(equipment, machine, chunk_tokens)
        self._flawed: dict[TransferId, Flawed] = {}
        self._former: Receipt | None = None

    def _flaw(self, name: TransferId) -> Flaw | None:
        flawed = self._flawed.get(name)
        return flawed.flaw if flawed else None

    def _choose(self, name: TransferId) -> Flaw | None:
        """Choose what is done wrong with a prompt, if anything."""
        mine = self.machine.jobs[name]
        tenant = mine.owner.tenant
        others = [job for job in self.machine.jobs.values() if job.owner.tenant != tenant]
        for flaw in FLAWS:
            possible = others or flaw not in MIXES
            if possible and self.points.strikes(flaw, name):
                self._flawed[name] = Flawed(flaw, others[0] if others else mine)
                return flaw
        return None

    # What the engine is fed, and what it fills

    def _start_compute(self, effect: StartCompute) -> None:
        name = effect.transfer
        match self._choose(name):
            case Flaw.IDLE | Flaw.REJECTED:
                self.tell(ComputeBegan(name))
                self.tell(Computed(name, effect.stop))
                return
            case Flaw.OTHERS_REQUEST | Flaw.OTHERS_INPUT:
                self.fed[name] = self.fed[self._flawed[name].other.name]
            case Flaw.SHORT:
                effect = replace(effect, stop=effect.stop - self.has.layout.page_tokens)
            case Flaw.FORGED:
                self.start(self._forge, self.machine.jobs[name])
            case Flaw.FORMER if self._former is not None:
                receipt = replace(self._former, transfer=name)
                self.post(self.machine.jobs[name].asked.decode.node, receipt)
        super()._start_compute(effect)

    def tell(self, event: Event) -> None:
        """Take one event, after whatever is wrong with a chunk that it is about."""
        if isinstance(event, Computed):
            event = self._computed(event)
        super().tell(event)

    def _computed(self, event: Computed) -> Computed:
        flawed, job = self._flawed.get(event.transfer), self.machine.jobs.get(event.transfer)
        if flawed is None or job is None:
            return event
        if flawed.flaw is Flaw.SHORT and event.stop == self._short(job):
            return replace(event, stop=job.stop)
        if event.stop == job.stop:
            self._spoil(flawed, job)
        return event

    def _short(self, job: Job) -> int:
        return job.stop - self.has.layout.page_tokens

    def _spoil(self, flawed: Flawed, job: Job) -> None:
        """Do to pages that are all computed what their flaw does."""
        pages = self.has.memory.array
        if flawed.flaw is Flaw.LAYOUT:
            half = self.has.memory.page_bytes // 2
            pages[job.table] = np.roll(pages[job.table], half, axis=1)
        elif flawed.flaw is Flaw.PADDED:
            self._pad(int(job.table[-1]), int(flawed.other.table[0]), job.stop)

    def _pad(self, page: int, source: int, stop: int) -> None:
        used = stop % self.has.layout.page_tokens
        for layer in range(len(self.has.layout.layers)):
            for slots in (self.cache.keys(layer), self.cache.values(layer)):
                slots[page, used:] = slots[source, used:]

    def _input_digest(self, transfer: TransferId) -> bytes:
        if self._flaw(transfer) is Flaw.OTHERS_REQUEST:
            return self.machine.jobs[transfer].ticket.input_digest
        return super()._input_digest(transfer)

    # What is written, and what is said of it

    def _write(self, effect: Write) -> None:
        flawed = self._flawed.get(effect.transfer)
        if flawed is not None and flawed.flaw is Flaw.ORDER:
            effect = replace(effect, pages=effect.pages[::-1])
        elif flawed is not None and flawed.flaw is Flaw.TORN:
            foreign = flawed.other.table[1 : len(effect.pages)]
            effect = replace(effect, pages=np.concatenate([effect.pages[:1], foreign]))
        super()._write(effect)

    def post(self, to: NodeName, message: Message) -> None:
        """Send a message of the core, a receipt as its flaw has it."""
        if isinstance(message, Receipt) and message.digests:
            flawed = self._flawed.pop(message.transfer, None)
            self._former = message
            message = self._retold(flawed, message) if flawed else message
        super().post(to, message)

    def _retold(self, flawed: Flawed, said: Receipt) -> Receipt:
        match flawed.flaw:
            case Flaw.REJECTED:
                return replace(said, outcome=End.REJECTED)
            case Flaw.OTHERS_REQUEST:
                return replace(said, owner=flawed.other.owner)
            case Flaw.LAYOUT:
                return replace(said, layout=OTHER_LAYOUT)
            case Flaw.SHORT:
                return replace(said, stop=said.stop - self.has.layout.page_tokens)
            case Flaw.ORDER:
                return replace(said, pages=said.pages[::-1], digests=said.digests[::-1])
        return said

    # Somebody who knows all that this node knows, but for the cluster's key

    async def _forge(self, job: Job) -> None:
        """Tell decode of a success, on a channel of its own, until the flaw is released."""
        ring = Keyring.parse(new_key("forger"))
        forger = Identity(self.has.peer, ring, self.has.layout.digest, verify=False)
        decode = job.asked.decode.node
        try:
            channel = await link.dial(self.has.run / f"{decode}.sock", forger, decode)
        except (OSError, ChannelClosed, PeerMisbehaved):
            return  # As it should be: decode has closed the channel.
        try:
            await channel.send(self._forged(job))
            await anyio.to_thread.run_sync(self.points.reach, Flaw.FORGED, job.name)
        finally:
            await channel.close()

    def _forged(self, job: Job) -> Receipt:
        """A receipt that fits a window into which nothing was written, digest for digest."""
        asked, nothing = job.asked, np.zeros((1, self.has.memory.page_bytes), dtype=np.uint8)
        digests = page_digests(nothing, np.zeros(1, dtype=np.int32), asked.seed)
        return Receipt(
            transfer=job.name,
            owner=job.owner,
            outcome=End.COMPLETED,
            refusal=None,
            window=asked.window,
            input_digest=job.ticket.input_digest,
            layout=self.has.layout.digest,
            pages=tuple(range(asked.window_pages)),
            start=0,
            stop=job.stop,
            generations=asked.generations,
            digests=digests * asked.window_pages,
            reused=0,
        )
