"""What came of a soak, and what of it must not be: every figure that is wrong has a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvairlock.core.errors import REASONS, Reason
from kvairlock.drills.canaries import Canaries
from kvairlock.drills.client import pages_out
from kvairlock.drills.gauges import Descriptors, Memory
from kvairlock.drills.soak.evidence import Witness
from kvairlock.drills.soak.load import Ending, Outcome

TOO_LONG = REASONS[Reason.CONTEXT_LENGTH].code
UNDER_LOAD = frozenset(
    REASONS[reason].code for reason in (Reason.CAPACITY, Reason.DRAINING, Reason.TENANT_SHARE)
)
"""Refusals that load explains: they are counted, and nothing is wrong."""


@dataclass(slots=True)
class Answers:
    """What came to the clients.

    Args:
        requests: How many have ended.
        completed: With a whole answer.
        cancelled: Clients that left before.
        too_long: Over-long ones that were refused for that, as they must be.
        too_long_answered: Over-long ones with an answer, which nobody can have computed.
        refused: The other refusals, by code.
        broken: Answers that were not whole, by what broke.
        foreign: Answers that show the canary of another request.
        own: Completed ones all of whose choices begin with their own canary.
        stray: Answers, whole or not, that say something else than their own canary.
        generated_tokens: In the completed ones.
        reused_tokens: Prompt tokens of the completed ones that were not computed again.
    """

    requests: int = 0
    completed: int = 0
    cancelled: int = 0
    too_long: int = 0
    too_long_answered: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    foreign: int = 0
    own: int = 0
    stray: int = 0
    generated_tokens: int = 0
    reused_tokens: int = 0

    def take(self, outcome: Outcome, canaries: Canaries) -> None:
        """Count one outcome."""
        prompt = outcome.ask.prompt
        are_own = [_agree(text, prompt.canary) for text in outcome.texts]
        self.requests += 1
        self.foreign += any(canaries.foreign(prompt, text) for text in outcome.texts)
        self.stray += not all(are_own)
        self.generated_tokens += outcome.generated_tokens
        self.reused_tokens += outcome.reused_tokens
        match outcome.ending:
            case Ending.COMPLETED:
                self.completed += 1
                self.too_long_answered += outcome.ask.overlong
                self.own += all(outcome.texts) and all(are_own)
            case Ending.LEFT:
                self.cancelled += 1
            case Ending.REFUSED if outcome.ask.overlong and outcome.code == TOO_LONG:
                self.too_long += 1
            case Ending.REFUSED:
                self.refused[outcome.code] += 1
            case Ending.BROKEN:
                self.broken[outcome.code] += 1


def _agree(text: str, canary: str) -> bool:
    """Whether a text, as far as it came, is the canary and what follows it."""
    return text.startswith(canary) or canary.startswith(text)


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What a stack holds after the last request has ended.

    Args:
        pages_lost: Pages that are neither free nor kept as prefixes.
        pages_kept: Pages that are kept as prefixes.
        windows_left: Windows that are open or draining.
        requests_left: Requests in the tables of gateway and nodes.
    """

    pages_lost: int
    pages_kept: int
    windows_left: int
    requests_left: int

    @classmethod
    def of(cls, status: Mapping[str, Any]) -> Leftovers:
        """Read them from the gateway's status."""
        nodes = [node["status"] for node in status["nodes"].values() if node["status"]]
        return cls(
            pages_lost=sum(pages_out(figures) for figures in nodes),
            pages_kept=sum(figures["pages"]["shared"] for figures in nodes),
            windows_left=sum(figures["windows"] for figures in nodes),
            requests_left=status["in_flight"] + sum(sum(f["requests"].values()) for f in nodes),
        )


@dataclass(frozen=True, slots=True)
class Soaked:
    """All that one soak has shown.

    Args:
        asked: How many requests were to be made.
        repeats: Whether the model must answer with its canary.
        answers: What came to the clients.
        leftovers: What the stack held afterwards.
        descriptors: Open files, by process.
        memory: Resident memory, by process.
        witness: What the evidence says.
        seconds: How long the requests took.
    """

    asked: int
    repeats: bool
    answers: Answers
    leftovers: Leftovers
    descriptors: Mapping[str, Descriptors]
    memory: Mapping[str, Memory]
    witness: Witness
    seconds: float

    def problems(self) -> tuple[str, ...]:
        """Say what is not as it must be; nothing if the soak is good."""
        return (*self._of_clients(), *self._of_memory(), *self._of_evidence())

    def _of_clients(self) -> Iterator[str]:
        answers = self.answers
        if not answers.completed:
            yield "no request completed, so nothing was shown"
        if answers.foreign:
            yield f"{answers.foreign} answers show the canary of another request"
        if self.repeats and answers.stray:
            yield f"{answers.stray} answers are not what their own prompt says"
        if self.repeats and answers.own != answers.completed:
            yield f"{answers.completed - answers.own} completed answers lack their own canary"
        if answers.too_long_answered:
            yield f"{answers.too_long_answered} over-long requests were answered"
        if answers.requests != self.asked:
            yield f"{self.asked - answers.requests} requests never ended"
        for code, count in sorted(answers.broken.items()):
            yield f"{count} answers broke: {code}"
        for code in sorted(answers.refused.keys() - UNDER_LOAD):
            yield f"{answers.refused[code]} requests were refused that must not be: {code}"

    def _of_memory(self) -> Iterator[str]:
        left = self.leftovers
        if left.pages_lost or left.windows_left or left.requests_left:
            yield (
                f"{left.pages_lost} pages, {left.windows_left} windows and {left.requests_left} "
                "requests are left although nothing runs"
            )
        for name, files in self.descriptors.items():
            if files.after > files.before:
                yield f"{name} has {files.after} files open, {files.before} before"
        for name, memory in self.memory.items():
            if not memory.is_bounded:
                yield f"{name} has grown by {memory.growth_mib:.1f} MiB in the second half"

    def _of_evidence(self) -> Iterator[str]:
        told, processes = self.witness, len(self.descriptors)
        if told.files < processes:
            yield f"evidence: {processes} processes left {told.files} files"
        if told.ends_missing or told.ends_repeated:
            yield f"evidence: {told.ends_missing} ends missing, {told.ends_repeated} repeated"
        if told.records_lost or told.files_open:
            yield f"evidence: {told.records_lost} records lost, {told.files_open} files not closed"
