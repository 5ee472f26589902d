"""What all processes of a made-up stack record about one request, each record by a step of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from kvairlock.audit.synthetic import Lease, Process, Row, Stack, digest
from kvairlock.core.guards import Guard
from kvairlock.core.terms import Fence, pages_for

PAGE_TOKENS = 16
PAGE_BYTES = 45_056
CHECKED = tuple(
    str(guard)
    for guard in (
        Guard.OUTCOME,
        Guard.IDENTITY,
        Guard.INPUT,
        Guard.LAYOUT,
        Guard.RANGE,
        Guard.PAGE_INDEX,
        Guard.GENERATION,
        Guard.INTEGRITY,
    )
)

Change = Callable[["Conversation", Row], Row]


class Conversation:
    """One request and what all processes record about it.

    Args:
        stack: Where it is.
        prompt_tokens: What is asked.
        max_tokens: What is asked.
        prefill: Which prefill node computes it.
        odd: For an event: what of its record is not as it should be.
        unsaid: Events that are never recorded.
    """

    def __init__(
        self,
        stack: Stack,
        prompt_tokens: int = 120,
        max_tokens: int = 17,
        *,
        prefill: int = 0,
        odd: Mapping[str, Change] | None = None,
        unsaid: Iterable[str] = (),
    ) -> None:
        stack.names += 1
        self.stack, self.odd, self.unsaid = stack, odd or {}, frozenset(unsaid)
        self.request = digest(stack.seed, "request", stack.names)
        self.tenant = digest(stack.seed, "tenant", stack.names % 5)
        self.scope = digest(stack.seed, "scope", stack.names % 5)
        self.window = digest(stack.seed, "window", stack.names)[:16]
        self.prompt_tokens, self.max_tokens = prompt_tokens, max_tokens
        self.gateway, self.decode = stack.gateway, stack.decode
        self.prefill = stack.prefills[prefill]
        self.lease = self.source = self.prefix = Lease(0, [], [])
        self.table: list[int] = []

    def of(self, other: Conversation) -> Conversation:
        """Make it a request of the same tenant as another, and return it."""
        self.tenant, self.scope = other.tenant, other.scope
        return self

    @property
    def prompt_pages(self) -> int:
        """How many pages the prompt has."""
        return pages_for(self.prompt_tokens, PAGE_TOKENS)

    @property
    def landed(self) -> Row:
        """The pages of the prompt on decode, in their moment."""
        count = self.prompt_pages
        return {"pages": self.lease.pages[:count], "generations": self.lease.generations[:count]}

    def say(self, process: Process, event: str, **fields: Any) -> None:
        """Record something about this request."""
        if event in self.unsaid:
            return
        if event in self.odd:
            fields |= self.odd[event](self, fields)
        self.stack.record(process, event, tenant=self.tenant, request=self.request, **fields)

    def enter(self) -> None:
        """The gateway admits it, and so does decode."""
        asked = {"prompt_tokens": self.prompt_tokens, "max_tokens": self.max_tokens}
        self.say(self.gateway, "request_admitted", stage="gateway", **asked)
        self.say(self.decode, "request_admitted", stage="decode_admission", **asked)

    def reserve(self) -> None:
        """Decode gives it pages."""
        total = pages_for(self.prompt_tokens + self.max_tokens, PAGE_TOKENS)
        self.lease = self.stack.reserve(self.decode, total)
        self.say(self.decode, "pages_allocated", **_moment(self.lease))

    def grant(self) -> None:
        """Decode grants a window, and prefill admits the prompt."""
        pages = self.landed["pages"]
        peer = self.prefill.node
        self.say(self.decode, "window_granted", window=self.window, peer=peer, pages=pages)
        asked = {"prompt_tokens": self.prompt_tokens, "max_tokens": self.max_tokens}
        self.say(self.prefill, "request_admitted", stage="prefill_admission", **asked)

    def compute(self, creator: Conversation | None = None) -> None:
        """Prefill computes the prompt, or what is behind the prefix that a creator left."""
        shared = creator.prefix.pages if creator else []
        self.source = self.stack.reserve(self.prefill, self.prompt_pages - len(shared))
        self.table = [*shared, *self.source.pages]
        self.say(self.prefill, "pages_allocated", **_moment(self.source))
        if creator:
            self.reuse(creator.prefix, creator)
        said = {"start": len(shared) * PAGE_TOKENS, "stop": self.prompt_tokens}
        self.say(self.prefill, "range_computed", **said, **_span(self.source))

    def write(self) -> None:
        """Prefill writes into the window."""
        self.say(
            self.prefill,
            "write_ended",
            window=self.window,
            pages=self.table,
            bytes_written=len(self.table) * PAGE_BYTES,
            status="done",
        )

    def state(self) -> None:
        """Prefill states what it did."""
        stop = self.prompt_tokens
        self.say(self.prefill, "receipt_sent", outcome="completed", start=0, stop=stop)

    def judge(self, outcome: str = "admitted") -> None:
        """Decode rules."""
        self.say(
            self.decode,
            "verdict",
            outcome=outcome,
            checks=list(CHECKED),
            observed=[],
            policy="full",
            verified=self.landed["pages"],
            start=0,
            stop=self.prompt_tokens,
            expected_tokens=self.prompt_tokens,
            **self.landed,
        )

    def fence(self, fence: Fence = Fence.ACKNOWLEDGED) -> None:
        """The window has no writer any more."""
        written = self.prompt_pages * PAGE_BYTES
        said = {"window": self.window, "fence": str(fence), "bytes_written": written}
        self.say(self.decode, "window_fenced", **said, wait_ms=0)

    def read(self, event: str = "read_started") -> None:
        """Decode begins to read, or has read."""
        self.say(self.decode, event, **_span(self.lease))

    def settle(self, end: str = "completed") -> None:
        """Prefill ends its part."""
        self._ended(self.prefill, end, 0)
        self.drain(self.prefill, self.source, end)

    def end(self, end: str = "completed", *, read: bool = True) -> None:
        """Decode ends the request."""
        if end != "completed":
            unsaid = {"asked": None, "limit": None, "limit_name": None}
            self.say(self.decode, "request_refused", stage="gateway", reason=end, **unsaid)
        self._ended(self.decode, end, self.max_tokens if read else 0, read=read)

    def _ended(self, process: Process, end: str, generated: int, *, read: bool = True) -> None:
        self.say(
            process,
            "request_ended",
            end=end,
            reason="" if end == "completed" else end,
            computed_tokens=self.prompt_tokens if read else 0,
            generated_tokens=generated,
            reused_tokens=0,
        )

    def retire(self, process: Process, lease: Lease, cause: str = "completed") -> None:
        """End a lease: the generations of its pages turn."""
        for page in lease.pages:
            process.generation[page] += 1
        said = {"lease": lease.number, "pages": lease.pages, "cause": cause}
        self.say(process, "drain_began", **said)

    def free(self, process: Process, lease: Lease, fence: Fence = Fence.LOCAL) -> None:
        """Give the pages of an ended lease back."""
        said = {"lease": lease.number, "pages": lease.pages, "fence": str(fence)}
        self.say(process, "drain_ended", **said, wait_ms=0)
        process.free.extend(lease.pages)
        process.open.discard(lease.number)

    def drain(self, process: Process, lease: Lease, cause: str = "completed") -> None:
        """End a lease, and give its pages back at once."""
        self.retire(process, lease, cause)
        self.free(process, lease)

    def respond(self, status: int = 200) -> None:
        """The gateway tells the client; what is no answer states no usage."""
        stated = (self.prompt_tokens, self.max_tokens) if status == HTTPStatus.OK else (0, 0)
        self.say(
            self.gateway,
            "response_sent",
            http_status=status,
            finish=["length"] if status == HTTPStatus.OK else [],
            prompt_tokens=stated[0],
            generated_tokens=stated[1],
        )

    def keep(self) -> None:
        """Prefill keeps the full pages of the prompt for later ones of its scope."""
        count = self.prompt_tokens // PAGE_TOKENS
        lease, self.prefix = (
            self.source,
            self.stack.lease(self.prefill, *_cut(self.source, 0, count)),
        )
        self.source = Lease(lease.number, *_cut(lease, count, len(lease.pages)))
        self.say(self.prefill, "prefix_kept", **_moment(self.prefix))

    def reuse(self, prefix: Lease, creator: Conversation) -> None:
        """Prefill takes pages that another has computed."""
        self.say(
            self.prefill,
            "prefix_reused",
            tokens=len(prefix.pages) * PAGE_TOKENS,
            creator=creator.tenant,
            scope=self.scope,
            creator_scope=creator.scope,
            **_span(prefix),
        )

    def hand_over(self) -> None:
        """All from the grant to the first step."""
        self.grant()
        self.compute()
        self.write()
        self.state()
        self.judge()
        self.fence()
        self.read()


def _span(lease: Lease) -> Row:
    return {"pages": lease.pages, "generations": lease.generations}


def _cut(lease: Lease, since: int, until: int) -> tuple[list[int], list[int]]:
    return lease.pages[since:until], lease.generations[since:until]


def _moment(lease: Lease) -> Row:
    return {"lease": lease.number, **_span(lease)}
