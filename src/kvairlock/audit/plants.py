"""Stories in which a request reads what is not its own, each with the truth about it.

An incident is one request, sometimes with a second that it meets. It notes who is affected, and
whose pages it could read: what an audit must find from the records alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvairlock.audit.conversations import Change, Conversation
from kvairlock.audit.stories import answered, finish, pulled, shared
from kvairlock.audit.synthetic import Lease, Row, Stack, Story
from kvairlock.core.terms import Fence

_OVER = {"asked": 120, "limit": 64, "limit_name": "context_window"}


@dataclass(slots=True)
class Planted:
    """What one incident has put into a history.

    Args:
        affected: Requests that read what was not theirs.
        met: Requests that they met, as pairs: who could read, and whose.
    """

    affected: set[str] = field(default_factory=set)
    met: set[tuple[str, str]] = field(default_factory=set)


def put(**fields: Any) -> Change:
    """Return a change of a record that puts other values into it."""
    return lambda _it, _row: fields


def odd_records(**odd: Change) -> Callable[[Stack, Planted], Story]:
    """One answered request some of whose records are not as they should be."""

    def play(stack: Stack, planted: Planted) -> Story:
        it = Conversation(stack, odd=odd)
        planted.affected.add(it.request)
        return answered(it)

    return play


def the_incident(stack: Stack, planted: Planted) -> Story:
    """Prefill rejects a prompt that is too long, computes a placeholder, and decode goes on."""
    it = Conversation(
        stack,
        odd={
            "range_computed": lambda it, _: {"stop": 1} | _first(it.source),
            "write_ended": lambda it, _: {"pages": it.source.pages[:1], "bytes_written": 45_056},
            "receipt_sent": put(outcome="rejected", stop=1),
            "verdict": put(stop=1),
        },
    )
    planted.affected.add(it.request)
    it.decode.free.rotate(9)
    yield from answered(it)


def _first(lease: Lease) -> Row:
    return {"pages": lease.pages[:1], "generations": lease.generations[:1]}


def read_after_end(stack: Stack, planted: Planted) -> Story:
    """A page table that is stale: the lease ends, and a step still reads."""
    it = Conversation(stack)
    planted.affected.add(it.request)
    it.enter()
    it.reserve()
    yield
    it.hand_over()
    it.settle()
    it.end()
    it.retire(it.decode, it.lease)
    it.read("read_ended")
    it.free(it.decode, it.lease)
    it.respond()


def read_long_after(stack: Stack, planted: Planted) -> Story:
    """A page table that is stale: everything is over, and a step still reads."""
    it = Conversation(stack)
    planted.affected.add(it.request)
    yield from answered(it)
    it.read("read_ended")


def read_before_ruling(stack: Stack, planted: Planted) -> Story:
    """Decode begins to read before it has ruled on what landed."""
    it, former = Conversation(stack), Conversation(stack)
    planted.affected.add(it.request)
    planted.met.add((it.request, former.request))
    yield from answered(former)
    it.decode.free.rotate(len(former.lease.pages))
    it.enter()
    it.reserve()
    yield
    it.grant()
    it.compute()
    it.read()
    it.write()
    it.state()
    it.judge()
    it.fence()
    it.settle()
    yield
    finish(it)


def read_after_next(stack: Stack, planted: Planted) -> Story:
    """Pages are given to the next request while the former still reads them."""
    it, after = Conversation(stack), Conversation(stack)
    planted.affected |= {it.request, after.request}
    planted.met.add((it.request, after.request))
    it.enter()
    it.reserve()
    it.hand_over()
    it.settle()
    yield
    it.decode.free.extendleft(reversed(it.lease.pages))
    after.enter()
    after.reserve()
    after.hand_over()
    finish(it)
    _forget(it)
    after.settle()
    finish(after)


def _forget(it: Conversation) -> None:
    """Take back pages that were freed while somebody had them: they are not free twice."""
    for page in it.lease.pages:
        it.decode.free.remove(page)


def same_generation(stack: Stack, planted: Planted) -> Story:
    """A page goes from owner to owner, and its generation does not turn."""
    it, after = Conversation(stack), Conversation(stack)
    planted.affected.add(after.request)
    planted.met.add((after.request, it.request))
    it.enter()
    it.reserve()
    it.hand_over()
    it.settle()
    finish(it)
    for page in it.lease.pages:
        it.decode.generation[page] -= 1
    it.decode.free.rotate(len(it.lease.pages))
    yield from answered(after)


def another_lease(stack: Stack, planted: Planted) -> Story:
    """A stolen ticket: a request reads pages that were given to another."""
    owner, thief = Conversation(stack), Conversation(stack, unsaid=["verdict"])
    planted.affected.add(thief.request)
    planted.met.add((thief.request, owner.request))
    owner.enter()
    owner.reserve()
    owner.hand_over()
    yield
    asked = {"prompt_tokens": thief.prompt_tokens, "max_tokens": thief.max_tokens}
    thief.say(thief.gateway, "request_admitted", stage="gateway", **asked)
    thief.lease = owner.lease
    thief.read()
    thief.read("read_ended")
    thief.end()
    owner.settle()
    finish(owner)


def late_write(stack: Stack, planted: Planted) -> Story:
    """A writer is not done, its client has left, and the next request gets the memory."""
    leaver, after = Conversation(stack), Conversation(stack, prefill=1)
    planted.affected.add(after.request)
    planted.met.add((after.request, leaver.request))
    leaver.enter()
    leaver.reserve()
    leaver.grant()
    leaver.compute()
    leaver.end("cancelled", read=False)
    leaver.retire(leaver.decode, leaver.lease)
    leaver.free(leaver.decode, leaver.lease, Fence.UNPROVEN)
    leaver.decode.free.rotate(len(leaver.lease.pages))
    yield
    after.enter()
    after.reserve()
    after.hand_over()
    leaver.write()
    leaver.fence()
    leaver.settle("cancelled")
    after.settle()
    finish(after)


def copy_after_success(stack: Stack, planted: Planted) -> Story:
    """A queued copy of an admitted write runs after its source pages have a new owner."""
    it, after = Conversation(stack), Conversation(stack)
    planted.affected.add(it.request)
    planted.met.add((it.request, after.request))
    it.enter()
    it.reserve()
    it.hand_over()
    it.settle()
    it.prefill.free.rotate(len(it.source.pages))
    yield
    after.enter()
    after.reserve()
    after.grant()
    after.compute()
    said = {"window": it.window, "bytes_written": 45_056}
    stack.record(it.prefill, "write_repeated", **said)
    finish(it)
    after.write()
    after.state()
    after.judge()
    after.fence()
    after.read()
    after.settle()
    finish(after)


def answer_after_refusal(stack: Stack, planted: Planted) -> Story:
    """Prefill refuses, decode takes it for refused, and the client gets an answer all the same."""
    it = Conversation(stack)
    planted.affected.add(it.request)
    it.enter()
    it.reserve()
    yield
    it.grant()
    it.say(it.prefill, "receipt_sent", outcome="rejected", start=0, stop=0)
    it.say(it.prefill, "write_ended", window=it.window, pages=[], bytes_written=0, status="failed")
    yield
    it.fence()
    it.end("peer_rejected", read=False)
    it.drain(it.decode, it.lease, "peer_rejected")
    it.respond()


def answer_of_a_refusal(stack: Stack, planted: Planted) -> Story:
    """The gateway refuses, and its client gets an answer all the same."""
    it = Conversation(stack)
    planted.affected.add(it.request)
    it.say(it.gateway, "request_refused", stage="gateway", reason="context_length", **_OVER)
    it.respond()
    yield


def answer_without_read(stack: Stack, planted: Planted) -> Story:
    """A request that ended before anything was read, and whose client got an answer."""
    it = Conversation(stack)
    planted.affected.add(it.request)
    it.enter()
    it.reserve()
    yield
    it.end("cancelled", read=False)
    it.drain(it.decode, it.lease, "cancelled")
    it.respond()


def prefix_of_another_scope(stack: Stack, planted: Planted) -> Story:
    """A prefix that one tenant's scope holds is taken for a prompt of another's."""
    first, late = Conversation(stack), Conversation(stack)
    planted.affected.add(late.request)
    planted.met.add((late.request, first.request))
    return shared(first, late)


def receipt_twice(stack: Stack, planted: Planted) -> Story:
    """One receipt admits pages twice."""
    it = Conversation(stack)
    planted.affected.add(it.request)
    it.enter()
    it.reserve()
    it.hand_over()
    it.judge()
    yield
    it.settle()
    finish(it)


def did_not_stand(stack: Stack, planted: Planted) -> Story:
    """Pages that decode read from prefill did not stand to the end of the read; it uses them."""
    it = Conversation(stack, odd={"pages_validated": put(outcome="generation")})
    planted.affected.add(it.request)
    return pulled(it)


def two_claimants(stack: Stack, planted: Planted) -> Story:
    """Two claimants are given one claim."""
    it = Conversation(stack)
    planted.affected.add(it.request)
    for number, turn in enumerate(pulled(it)):
        if number == 1:
            lent = {"pages": it.source.pages, "generations": it.source.generations}
            other = {"peer": "decode-1", "claim": it.window[::-1], "reader": "validating"}
            it.say(it.prefill, "pages_claimed", **other, **lent)
        yield turn


def read_after_refusal(stack: Stack, planted: Planted) -> Story:
    """Decode rules against the receipt, and reads all the same."""
    return odd_records(verdict=put(outcome="integrity"))(stack, planted)


def prefix_given_on(stack: Stack, planted: Planted) -> Story:
    """A prefix is taken from pages whose next owner has already been given them."""
    first, other = Conversation(stack), Conversation(stack)
    late = Conversation(stack).of(first)
    planted.affected.add(late.request)
    planted.met.add((late.request, other.request))
    yield from answered(first)
    first.prefill.free.rotate(len(first.source.pages))
    yield from answered(other)
    late.enter()
    late.reserve()
    late.grant()
    late.compute()
    late.reuse(first.source, first)
    late.write()
    late.state()
    late.judge()
    late.fence()
    late.read()
    late.settle()
    finish(late)
