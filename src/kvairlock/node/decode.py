"""A decode process: lands windows, and generates for all requests that may be read, in batches.

Requests join and leave the batch between steps (continuous batching). A step begins by asking the
core which page tables still hold, and the pages stay held until the step has ended.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping

import anyio
import anyio.to_thread
import structlog

from kvairlock.core.checks import Coverage
from kvairlock.core.effects import (
    CloseWindow,
    Effect,
    Land,
    OpenWindow,
    ProbeWindow,
    StartCompute,
    StartDecode,
    StopCompute,
    StopDecode,
)
from kvairlock.core.errors import KvairlockError, Stage
from kvairlock.core.events import (
    DecodeFinished,
    EngineFailed,
    Landed,
    StepBegan,
    StepEnded,
    Submitted,
    Told,
    WindowFailed,
    WindowFenced,
)
from kvairlock.core.messages import (
    Cancel,
    Chunk,
    Ended,
    Grant,
    Message,
    Receipt,
    Released,
    Submit,
)
from kvairlock.core.node import Node
from kvairlock.core.protocol.decode import DecodeNode
from kvairlock.core.terms import Claimant, NodeName, Peer, TransferId, WindowId
from kvairlock.node.answers import Answer, Answers, Drawn
from kvairlock.node.batch import Batch, Seat
from kvairlock.node.computing import Computing, Prompt
from kvairlock.node.host import Equipment, Host
from kvairlock.node.names import fresh_seed, fresh_window
from kvairlock.node.presenting import token_ids
from kvairlock.runtime.failpoints import Failpoint
from kvairlock.runtime.ports import Busy, Opened, ReceivingSide, TransportFull, WindowTampered
from kvairlock.transport.checksums import page_digests

CHUNK_TOKENS = 256

log = structlog.get_logger()


class DecodeHost(Host):
    """The host of a decode node.

    Args:
        equipment: What the process is given.
        machine: The core's machine.
        landing: The receiving side of the transport.
        batch_max: Choices in one step, at most.
    """

    def __init__(
        self, equipment: Equipment, machine: DecodeNode, landing: ReceivingSide, batch_max: int
    ) -> None:
        super().__init__(equipment, Node(machine))
        self.machine, self.landing = machine, landing
        self.batch = Batch(equipment.model, self.cache, self.points, batch_max)
        self.computing = Computing(equipment.model, self.cache, CHUNK_TOKENS, self.tell)
        self.submits: dict[TransferId, Submit] = {}
        self._has_work = anyio.Event()

    # Messages

    def hear(self, peer: Peer, message: Message, file: int | None) -> None:
        """Take a message of a gateway or of a prefill node."""
        match message:
            case Submit():
                self._submit(peer, message)
            case Cancel(transfer):
                name = self._names().get(transfer, transfer)
                self.tell(Told(peer, Cancel(name)))
            case Receipt() | Released():
                self.tell(Told(peer, message))
            case _:
                log.warning("unexpected message", kind=type(message).__name__, peer=peer.node)

    def _submit(self, peer: Peer, submit: Submit) -> None:
        presented = self.presenter.present(
            submit.ticket, submit.tenant, submit.tokens, Stage.DECODE_ADMISSION
        )
        self.submits.setdefault(submit.transfer, submit)
        self.traces.begin(submit.transfer, submit.trace)
        self.tell(
            Submitted(
                transfer=submit.transfer,
                presented=presented,
                claimant=Claimant(peer.node, peer.incarnation, submit.nonce),
                gateway=peer,
                prefill=submit.prefill,
                max_tokens=submit.max_tokens,
                choices=submit.choices,
                window=fresh_window(),
                seed=fresh_seed(),
                sample_seed=fresh_seed(),
            )
        )
        if submit.transfer not in self._names():
            self.submits.pop(submit.transfer, None)
            self.traces.refused(submit.transfer)

    def _names(self) -> dict[TransferId, TransferId]:
        """The core's name of each request, by the name that its gateway uses."""
        return {r.asked.transfer: name for name, r in self.machine.receptions.items()}

    def post(self, to: NodeName, message: Message) -> None:
        """Send a message of the core, and forget the prompt of a request that has ended."""
        super().post(to, message)
        # A copy of a ticket may have been refused under the name of the request that is served.
        if isinstance(message, Ended) and message.transfer not in self._names():
            self.submits.pop(message.transfer, None)

    # Effects

    def perform(self, effect: Effect) -> None:
        """Carry out what only a decode node does."""
        match effect:
            case OpenWindow():
                self._open_window(effect)
            case Land():
                self.start(self._land, effect)
            case CloseWindow(window):
                self._close_window(window)
            case ProbeWindow(window):
                self._probe_window(window)
            case StartDecode():
                self._start_decode(effect)
            case StartCompute():
                self._start_compute(effect)
            case StopCompute(transfer):
                self.computing.stop(transfer)
            case StopDecode(transfer):
                self.batch.drop(transfer)
            case _:
                log.error("effect of another node", kind=type(effect).__name__)

    def _open_window(self, effect: OpenWindow) -> None:
        submit = self.submits[self.machine.receptions[effect.transfer].asked.transfer]
        try:
            opened = self.landing.open(effect.window, effect.pages)
            grant = self._grant(effect, submit, opened)
            self.links.send(effect.to, grant, opened.fd)
        except (TransportFull, OSError) as error:
            self._events.append(WindowFailed(effect.transfer, f"no window could be made: {error}"))

    def _grant(self, effect: OpenWindow, submit: Submit, opened: Opened) -> Grant:
        return Grant(
            transfer=effect.transfer,
            ticket=submit.ticket,
            tokens=submit.tokens,
            window=effect.window,
            file=os.fstat(opened.fd).st_ino,
            offsets=opened.offsets,
            generations=effect.generations,
            layout=self.has.layout.digest,
            seed=effect.seed,
            patience_ms=effect.patience_ms,
            trace=self.traces.context(effect.transfer, "decode.receipt"),
        )

    def _probe_window(self, window: WindowId) -> None:
        try:
            fence = self.landing.try_fence(window)
        except WindowTampered as error:
            log.warning("window cannot be sealed", window=window, reason=str(error))
            return
        if fence is not None:
            self._events.append(WindowFenced(window, fence))

    def _close_window(self, window: str) -> None:
        try:
            self.landing.close(window)
        except KvairlockError:
            # It was never opened: there was no room for it.
            log.info("window was not open", window=window)

    async def _land(self, effect: Land) -> None:
        digests = await anyio.to_thread.run_sync(self._land_now, effect)
        self.tell(Landed(effect.transfer, digests))

    def _land_now(self, effect: Land) -> tuple[int, ...] | None:
        self.points.reach(Failpoint.LAND, effect.transfer)
        try:
            landed = self.landing.land(effect.window, effect.pages)
        except (TransportFull, WindowTampered, OSError) as error:
            log.warning("window could not be landed", window=effect.window, reason=str(error))
            return None
        if isinstance(landed, Busy):
            return None
        return page_digests(self.has.memory.array, effect.digested, effect.seed)

    def _start_decode(self, effect: StartDecode) -> None:
        reception = self.machine.receptions[effect.transfer]
        content = self.machine.receptions[effect.attached]
        tokens = token_ids(self.submits[content.asked.transfer].tokens)
        submit = self.submits[reception.asked.transfer]
        ends = self.has.model.tokenizer.end_tokens
        choices = [Answer.behind(tokens, table, submit, ends) for table in effect.tables]
        answers = Answers(
            transfer=effect.transfer,
            alias=submit.transfer,
            gateway=reception.asked.gateway.node,
            tenant=reception.owner.tenant,
            sampling=submit.sampling,
            alternatives=submit.alternatives,
            choices=tuple(choices),
        )
        self.batch.add(answers)
        self._has_work.set()

    def _start_compute(self, effect: StartCompute) -> None:
        """Compute a prompt here, since nothing came of its transfer."""
        reception = self.machine.receptions[effect.transfer]
        tokens = token_ids(self.submits[reception.asked.transfer].tokens)
        tenant = reception.owner.tenant
        prompt = Prompt(tenant, tokens, effect.table, effect.start, effect.stop)
        self.computing.start(effect.transfer, prompt)
        self._has_work.set()

    # Generating

    async def work(self) -> None:
        """Step through the batch while there is one, until cancelled.

        Between two steps one chunk is computed of a prompt that this node has to compute itself.
        """
        while True:
            if not (self.batch.names or self.computing.has_work):
                self._has_work = anyio.Event()
                await self._has_work.wait()
            await self.computing.step()
            await self._step()

    async def _step(self) -> None:
        # Remembered: a deadline may end some of them before the core has answered.
        began = self.batch.names
        if not began:
            return
        self.tell(StepBegan(began))
        seats = self.batch.seats()
        names = tuple(dict.fromkeys(seat.answers.transfer for seat in seats))
        self._end_step(tuple(name for name in began if name not in names), {})
        if seats:
            await self._read(seats, names)

    async def _read(self, seats: list[Seat], names: tuple[TransferId, ...]) -> None:
        step = await anyio.to_thread.run_sync(self.batch.step, seats)
        took = list(zip(seats, step, strict=True))
        counts = Counter(seat.answers.transfer for seat, drawn in took if drawn is not None)
        self._end_step(names, counts)
        for seat, drawn in took:
            if drawn is None:
                self.tell(EngineFailed(seat.answers.transfer, "the engine failed"))
            else:
                self._take(seat, drawn)

    def _end_step(self, names: tuple[TransferId, ...], tokens: Mapping[TransferId, int]) -> None:
        if names:
            self.tell(StepEnded(names, tuple(tokens.get(name, 0) for name in names)))

    def _take(self, seat: Seat, drawn: Drawn) -> None:
        answers, answer = seat.answers, seat.answer
        if not self.batch.has(answers):
            return
        shown = answer.take(drawn)
        chunk = Chunk(answers.alias, seat.choice, 1, shown.text, answer.finish, shown.scores)
        self.links.send(answers.gateway, chunk)
        if answers.is_finished:
            self.tell(DecodeFinished(answers.transfer))

    # Figures

    def coverage(self) -> tuple[Coverage, ...]:
        """Return the page reads of each route, by what vouched for the pages."""
        reads = self.machine.books.reads
        return tuple(Coverage.counted(route, reads) for route in self.routes)

    def requests(self) -> Counter[str]:
        """Return the number of requests by hand-over stage."""
        return Counter(str(r.stage) for r in self.machine.receptions.values())

    def windows(self) -> tuple[int, int]:
        """Return the windows that are open, and those of them that are draining."""
        return len(self.machine.windows), len(self.machine.windows.draining())
