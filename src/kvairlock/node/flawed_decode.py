"""A decode node whose engine can be made deaf: it goes on with requests that have ended.

An engine keeps page tables of its own, and hears late that a request is gone. While the flaw is
armed this one begins no step and forgets nobody; released, it steps with the batch that it had.
"""

from __future__ import annotations

import anyio.to_thread

from kvairlock.core.effects import Effect, StopDecode
from kvairlock.node.answers import Drawn
from kvairlock.node.batch import Seat
from kvairlock.node.decode import DecodeHost
from kvairlock.runtime.failpoints import Flaw


class FlawedDecode(DecodeHost):
    """The host of a decode node in drill mode; its arguments are those of `DecodeHost`."""

    def perform(self, effect: Effect) -> None:
        """Carry out what only a decode node does, but for what a deaf engine does not hear."""
        if isinstance(effect, StopDecode) and self.points.armed(Flaw.DEAF):
            return
        super().perform(effect)

    async def _step(self) -> None:
        if self.batch.names and self.points.armed(Flaw.DEAF):
            names = ",".join(self.batch.names)
            await anyio.to_thread.run_sync(self.points.reach, Flaw.DEAF, names)
        await super()._step()

    def _take(self, seat: Seat, drawn: Drawn) -> None:
        super()._take(seat, drawn)
        if seat.answers.is_finished:
            # The core does not know an ended request any more, and so stops nobody.
            self.batch.drop(seat.answers.transfer)
