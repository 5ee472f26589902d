"""The answers that one request is being given: tokens in, text out, until a stop or the length."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvairlock.core.messages import Sampling, Score, Submit
from kvairlock.core.terms import NodeName, Pages, TransferId
from kvairlock.engine.model import Row
from kvairlock.node.showing import Showing, Shown


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token that was drawn for a choice.

    Args:
        token: Its id.
        text: Its bytes.
        score: How likely it was, if the request asks for that.
    """

    token: int
    text: bytes
    score: Score | None


@dataclass(slots=True)
class Answer:
    """One choice of a request.

    Args:
        table: Page table, shape (pages,).
        token: The token to run next.
        position: Its position.
        tokens_max: How many tokens may be generated.
        end_tokens: Tokens with which the model ends an answer.
        showing: The text that was not shown yet.
        place: How many tokens were generated.
        finish: `stop` or `length` once it is finished, else empty.
    """

    table: Pages
    token: int
    position: int
    tokens_max: int
    end_tokens: frozenset[int]
    showing: Showing
    place: int = 0
    finish: str = ""

    @classmethod
    def behind(
        cls, prompt: NDArray[np.int32], table: Pages, submit: Submit, end_tokens: frozenset[int]
    ) -> Answer:
        """Begin the answer to a prompt whose cache is there.

        Its first step runs the prompt's last token again: logits do not travel, only the cache.

        Args:
            prompt: Token ids, shape (tokens,).
            table: Page table, shape (pages,).
            submit: What was asked.
            end_tokens: Tokens with which the model ends an answer.
        """
        last, showing = len(prompt) - 1, Showing(submit.stop)
        return cls(table, int(prompt[last]), last, submit.max_tokens, end_tokens, showing)

    def row(self) -> Row:
        """Return the engine's row of the next step."""
        return Row(np.array([self.token], dtype=np.int32), self.position, self.table)

    def take(self, drawn: Drawn) -> Shown:
        """Take a generated token and return what may be shown now."""
        # An end token counts as well: it took a step like any other, and vLLM's usage counts it.
        self.token, self.position, self.place = drawn.token, self.position + 1, self.place + 1
        if drawn.token in self.end_tokens:
            self.finish = "stop"
            return self.showing.show_all()
        self.showing.add(drawn.text, drawn.score)
        stop = self.showing.find_stop()
        if stop is not None:
            self.finish = "stop"
            return self.showing.show(stop)
        if self.place == self.tokens_max:
            self.finish = "length"
            return self.showing.show_all()
        return self.showing.show_safe()


@dataclass(frozen=True, slots=True)
class Answers:
    """All choices of one request.

    Args:
        transfer: The request's name in the core.
        alias: The name under which the gateway wants to be answered.
        gateway: Where chunks go.
        tenant: Whose request it is.
        sampling: How tokens are drawn.
        alternatives: How many of the likeliest tokens to state with each; None states no
            likelihoods.
        choices: The answers.
    """

    transfer: TransferId
    alias: TransferId
    gateway: NodeName
    tenant: str
    sampling: Sampling
    alternatives: int | None
    choices: tuple[Answer, ...]

    @property
    def is_finished(self) -> bool:
        """Whether no choice is open any more."""
        return all(choice.finish for choice in self.choices)
