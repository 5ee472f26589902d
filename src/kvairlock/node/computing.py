"""Prompts that are being computed, chunk by chunk and in turn (chunked prefill).

After each chunk it is another's turn: a long prompt delays another tenant's by one chunk at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import anyio.to_thread
import numpy as np
import structlog
from numpy.typing import NDArray

from kvairlock.core.events import ComputeBegan, Computed, EngineFailed, Event
from kvairlock.core.terms import Pages, TransferId
from kvairlock.engine.cache import PagedCache
from kvairlock.engine.model import Model, Row
from kvairlock.node.turns import Turns

log = structlog.get_logger()


@dataclass(slots=True)
class Prompt:
    """A prompt that is being computed.

    Args:
        tenant: Whose it is.
        tokens: Token ids, shape (tokens,).
        table: Page table, shape (pages,).
        position: The next token to compute.
        stop: One after the last.
    """

    tenant: str
    tokens: NDArray[np.int32]
    table: Pages
    position: int
    stop: int


class Computing:
    """The prompts that one node computes.

    Args:
        model: The model.
        cache: The pages it fills.
        chunk_tokens: Prompt tokens computed in one go.
        tell: Told when a chunk begins, when it is done, and when the engine fails.
    """

    def __init__(
        self, model: Model, cache: PagedCache, chunk_tokens: int, tell: Callable[[Event], None]
    ) -> None:
        self._model, self._cache, self._chunk_tokens = model, cache, chunk_tokens
        self._tell = tell
        self._prompts: dict[TransferId, Prompt] = {}
        self._turns: Turns[TransferId] = Turns()

    @property
    def has_work(self) -> bool:
        """Whether a chunk waits to be computed."""
        return bool(self._turns)

    def start(self, name: TransferId, prompt: Prompt) -> None:
        """Take a prompt in; there may be nothing left to compute of it."""
        if prompt.position < prompt.stop:
            self._prompts[name] = prompt
            self._turns.add(prompt.tenant, name)

    def stop(self, name: TransferId) -> None:
        """Forget a prompt; a chunk under way is still told."""
        self._prompts.pop(name, None)
        self._turns.keep(lambda waiting: waiting != name)

    async def step(self) -> None:
        """Compute the next chunk of the prompt whose turn it is."""
        if not self._turns:
            return
        name = self._turns.take()
        prompt = self._prompts[name]
        self._tell(ComputeBegan(name))
        if self._prompts.get(name) is prompt:
            await self._compute(name, prompt)
        else:
            # The core said to stop; it may hold the pages for this chunk all the same.
            self._tell(Computed(name, prompt.position))

    async def _compute(self, name: TransferId, prompt: Prompt) -> None:
        stop = min(prompt.position + self._chunk_tokens, prompt.stop)
        row = Row(prompt.tokens[prompt.position : stop], prompt.position, prompt.table)
        try:
            await anyio.to_thread.run_sync(self._model.forward, [row], self._cache)
        except Exception as error:  # whatever the engine raises ends this request
            log.error("the engine failed", error=type(error).__name__)
            self._tell(EngineFailed(name, f"the engine failed: {type(error).__name__}"))
            return
        prompt.position = stop
        self._tell(Computed(name, stop))
        if self._prompts.get(name) is not prompt:
            return
        if stop < prompt.stop:
            self._turns.add(prompt.tenant, name)
        else:
            del self._prompts[name]
