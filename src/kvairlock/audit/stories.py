"""How requests go that are as they should be: answered, left, refused, recomputed, pulled.

Each story is one conversation in steps; between two steps others may take their turn.
"""

from __future__ import annotations

from http import HTTPStatus

from kvairlock.audit.conversations import Conversation
from kvairlock.audit.synthetic import Story
from kvairlock.core.terms import Fence

EVICTED = "evicted"
LEFT = 0
"""The status of a response that nobody was there for."""


def answered(it: Conversation) -> Story:
    """A request that is answered."""
    it.enter()
    it.reserve()
    yield
    it.grant()
    yield
    it.compute()
    yield
    it.write()
    it.state()
    yield
    it.judge()
    it.fence()
    it.read()
    yield
    it.settle()
    yield
    finish(it)


def finish(it: Conversation) -> None:
    """The last step of a request that was read: it is over, its pages are free, it is answered."""
    it.read("read_ended")
    it.end()
    it.drain(it.decode, it.lease)
    it.respond()


def shared(first: Conversation, it: Conversation) -> Story:
    """A prompt whose full pages are kept, and a later one that begins alike."""
    for one, creator in ((first, None), (it, first)):
        one.enter()
        one.reserve()
        yield
        one.grant()
        one.compute(creator)
        yield
        one.write()
        one.state()
        one.judge()
        one.fence()
        one.read()
        if creator is None:
            one.keep()
        one.settle()
        yield
        finish(one)
    first.drain(first.prefill, first.prefix, EVICTED)


def pulled(it: Conversation) -> Story:
    """A request whose pages decode reads from prefill, and asks whether they stood."""
    asked = {"prompt_tokens": it.prompt_tokens, "max_tokens": it.max_tokens}
    it.say(it.gateway, "request_admitted", stage="gateway", **asked)
    it.say(it.prefill, "request_admitted", stage="prefill_admission", **asked)
    it.compute()
    lent = {"pages": it.source.pages, "generations": it.source.generations}
    it.say(it.prefill, "pages_offered", peer=it.decode.node, **lent)
    yield
    it.say(it.decode, "request_admitted", stage="decode_admission", **asked)
    it.reserve()
    target = it.landed["pages"]
    said = {"window": it.window, "peer": it.prefill.node, "pages": target}
    it.say(it.decode, "window_granted", **said)
    claim = {"peer": it.decode.node, "claim": it.window}
    it.say(it.prefill, "pages_claimed", **claim, reader="validating", **lent)
    it.state()
    yield
    it.say(
        it.decode,
        "remote_read_started",
        peer=it.prefill.node,
        peer_incarnation=it.prefill.incarnation,
        claim=it.window,
        source_pages=it.source.pages,
        source_generations=it.source.generations,
        pages=target,
    )
    it.say(it.decode, "remote_read_ended", claim=it.window, pages=target, status="done")
    yield
    it.say(it.prefill, "pages_validated", **claim, outcome="stood", **lent)
    it.judge()
    it.fence(Fence.LOCAL)
    it.read()
    it.say(it.decode, "pages_returned", claim=it.window, pages=target)
    it.say(it.prefill, "pages_returned", claim=it.window, pages=it.source.pages)
    it.settle()
    yield
    finish(it)


def left(it: Conversation) -> Story:
    """A client that leaves before anything is read."""
    it.enter()
    it.reserve()
    yield
    it.grant()
    yield
    it.compute()
    yield
    it.end("cancelled", read=False)
    it.retire(it.decode, it.lease, "cancelled")
    it.respond(LEFT)
    it.write()
    it.state()
    yield
    it.fence()
    it.free(it.decode, it.lease)
    it.settle("cancelled")


def too_long(it: Conversation) -> Story:
    """A request that the gateway refuses."""
    said = {"asked": it.prompt_tokens, "limit": 64, "limit_name": "context_window"}
    it.say(it.gateway, "request_refused", stage="gateway", reason="context_length", **said)
    it.respond(HTTPStatus.BAD_REQUEST)
    yield


def recomputed(it: Conversation) -> Story:
    """A request whose receipt never came: decode starts over and computes the prompt itself."""
    it.enter()
    it.reserve()
    yield
    it.grant()
    it.compute()
    it.write()
    yield
    it.fence()
    it.drain(it.decode, it.lease, "timeout")
    it.say(it.decode, "request_recomputed", reason="timeout", tokens=it.prompt_tokens)
    it.reserve()
    it.settle("failed")
    yield
    it.say(it.decode, "range_computed", start=0, stop=it.prompt_tokens, **it.landed)
    it.read()
    yield
    finish(it)
