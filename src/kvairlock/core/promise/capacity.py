"""What a running node measured about itself: the figures that admission and the gateway believe.

A report is bound to a fingerprint of what it depends on; a figure of another machine, build or
configuration is no evidence.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvairlock.core.terms import Incarnation, NodeName, Role, pages_for


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """What one node can really hold.

    Args:
        node: The node's name.
        role: Prefill or decode.
        incarnation: The life that measured it.
        fingerprint: Digest of model, dtype, page geometry, pool size and build.
        page_tokens: Token slots of a page.
        pages: Pages of the pool that requests can use.
        landing_pages: Pages that one request may have in windows, its tenant's share (decode); 0.
        context_tokens: Longest context that the model itself supports.
    """

    node: NodeName
    role: Role
    incarnation: Incarnation
    fingerprint: str
    page_tokens: int
    pages: int
    landing_pages: int
    context_tokens: int

    @property
    def tokens(self) -> int:
        """Token slots of the whole pool."""
        return self.pages * self.page_tokens


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
