"""What a running node measured about itself: the figures that admission and the gateway believe.

A report is bound to a fingerprint of what it depends on; a figure of another machine, build or
configuration is no evidence. It has an *epoch*, which rises within one life of a node whenever a
figure changes: of two reports of one life the higher epoch is true, and the other is stale.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kvairlock.core.terms import Incarnation, NodeName, Role, pages_for


class Cause(StrEnum):
    """Why a node states its figures anew."""

    START = "start"
    RESIZED = "resized"
    """An operator gave pages to requests or took them away."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What a node's figures depend on, in words that people can compare.

    Args:
        model: The model, as the node names it.
        dtype: Of keys and values.
        parallelism: Over how many processes the model is spread, for example `tp1`.
        memory_bytes: Memory that the pool was given.
        build: Version of the software that measured.
        protocols: Versions of messages and tickets that it speaks.
    """

    model: str
    dtype: str
    parallelism: str
    memory_bytes: int
    build: str
    protocols: str


@dataclass(frozen=True, slots=True)
class KvGroup:
    """Layers that keep their keys and values in pages of one kind; most models have one group.

    Args:
        name: What the node calls it.
        page_tokens: Token slots of a page.
        pages: Pages that requests can use.
        pages_reserved: Further pages, which no request can use.
        window_tokens: Tokens that its layers look back (sliding window); 0 for all. What is behind
            the window needs no pages.
    """

    name: str
    page_tokens: int
    pages: int
    pages_reserved: int
    window_tokens: int

    @property
    def tokens(self) -> int:
        """Token slots of all its pages."""
        return self.pages * self.page_tokens

    def pages_of(self, tokens: int) -> int:
        """Return how many of its pages a context of `tokens` needs."""
        kept = min(tokens, self.window_tokens) if self.window_tokens else tokens
        return pages_for(kept, self.page_tokens)

    def longest_tokens(self, most: int) -> int:
        """Return the longest context that it holds.

        Args:
            most: The longest that anything else holds.
        """
        return most if self.pages_of(most) <= self.pages else self.tokens


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """What one node can really hold.

    Args:
        node: The node's name.
        role: Prefill or decode.
        incarnation: The life that measured it.
        epoch: Number of the report within this life, rising.
        fingerprint: Digest of what the figures depend on and of the figures at the start.
        basis: The same in words; None of a node that does not state it (wire version 1).
        page_tokens: Token slots of a page.
        pages: Pages of the pool that requests can use; of several groups, of the one with fewest
            among those that keep whole contexts. Of a node that was resized, what it is to have:
            pages that still have to be given back are not among them.
        landing_pages: Pages that one request may have in windows, its tenant's share (decode); 0.
        windows: Windows that may be mapped at one time; 0 where none are.
        context_tokens: Longest context that the model itself supports.
        groups: All groups of pages, if there are several; empty if there is one.
    """

    node: NodeName
    role: Role
    incarnation: Incarnation
    epoch: int
    fingerprint: str
    basis: Basis | None
    page_tokens: int
    pages: int
    landing_pages: int
    windows: int
    context_tokens: int
    groups: tuple[KvGroup, ...]

    @property
    def tokens(self) -> int:
        """Token slots of the whole pool."""
        return self.pages * self.page_tokens

    @property
    def longest_tokens(self) -> int:
        """The longest single request that this node can hold when it has nothing else to do."""
        longest = min(self.tokens, self.context_tokens)
        if self.role is Role.DECODE:
            longest = min(longest, self.landing_pages * self.page_tokens)
        return min((group.longest_tokens(longest) for group in self.groups), default=longest)

    def concurrency(self, tokens: int) -> int:
        """Return how many requests of a length the node can hold at one time.

        Args:
            tokens: Length of each, at least 1; prompt plus what is generated.
        """
        if tokens > self.longest_tokens:
            return 0
        most = self.pages // pages_for(tokens, self.page_tokens)
        for group in self.groups:
            most = min(most, group.pages // group.pages_of(tokens))
        return min(most, self.windows) if self.windows else most

    def figures(self, cause: Cause) -> dict[str, str | int]:
        """Return what is recorded of it, as `capacity_reported` has it.

        Args:
            cause: Why it is stated.
        """
        return {
            "epoch": self.epoch,
            "pool_pages": self.pages,
            "landing_pages": self.landing_pages,
            "windows": self.windows,
            "context_tokens": self.context_tokens,
            "fingerprint": self.fingerprint,
            "cause": cause,
        }


@dataclass(frozen=True, slots=True)
class Demand:
    """What one request needs.

    Args:
        prompt_tokens: Tokens of the prompt.
        max_tokens: Tokens that may be generated, per choice.
        choices: How many answers share the prompt.
    """

    prompt_tokens: int
    max_tokens: int
    choices: int = 1

    @property
    def context_tokens(self) -> int:
        """The longest context that the request can reach."""
        return self.prompt_tokens + self.max_tokens

    def prompt_pages(self, page_tokens: int) -> int:
        """Pages of the prompt: what crosses from prefill to decode."""
        return pages_for(self.prompt_tokens, page_tokens)

    def shared_pages(self, page_tokens: int) -> int:
        """Full prompt pages that all choices read and none writes.

        The last prompt token is run again by the first decode step, so the page that holds it is
        each choice's own.
        """
        return (self.prompt_tokens - 1) // page_tokens

    def decode_pages(self, page_tokens: int) -> int:
        """Pages that decode reserves before it asks for the prompt's cache."""
        each = pages_for(self.context_tokens, page_tokens)
        return each + (self.choices - 1) * (each - self.shared_pages(page_tokens))

    def group_pages(self, group: KvGroup) -> int:
        """Pages of one group that decode needs.

        Choices share full prompt pages only where whole contexts are kept: a window leaves the
        prompt behind, for each choice at its own time.
        """
        if group.window_tokens:
            return self.choices * group.pages_of(self.context_tokens)
        return self.decode_pages(group.page_tokens)
