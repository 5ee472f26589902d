"""The world of a case: statements about tenants, requests, pages, nodes, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kvairlock.core.terms import LandingPolicy, Reader
from kvairlock.sim.bytes import POSITIONS
from kvairlock.sim.cases.steps import transfer_of
from kvairlock.sim.cases.words import Fields, Phrase, Vocabulary
from kvairlock.sim.setup import DECODE_LIMITS, PREFILL_LIMITS, Ask, Direction, Flaw, Setup, Theft


class Contradiction(ValueError):
    """A statement cannot be, beside those before it."""


@dataclass(slots=True)
class Draft:
    """A world that is being described.

    Args:
        asks: Its requests, by the names that the case gives them.
        values: Arguments of its setup.
        decode: Changed limits of decode nodes.
        prefill: Changed limits of prefill nodes.
        prompts: Names of prompts; their places are the contents of requests.
    """

    asks: dict[str, Ask] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    decode: dict[str, int] = field(default_factory=dict)
    prefill: dict[str, int] = field(default_factory=dict)
    prompts: list[str] = field(default_factory=list)

    def setup(self) -> Setup:
        """Return the world.

        Raises:
            Contradiction: It has no request, one for a node that is not there, or one that mixes
                up tenants where there is only one.
        """
        asks = tuple(self.asks.values())
        if not asks:
            raise Contradiction("nobody asks for anything")
        for role in ("decode", "prefill"):
            most = max(getattr(ask, role) for ask in asks)
            if most >= self.values.get(f"{role}s", 1):
                raise Contradiction(f"a request is routed to {role}-{most + 1}, and there is none")
        if len({ask.tenant for ask in asks}) == 1 and any(ask.flaw in MIXES_UP for ask in asks):
            raise Contradiction("prefill mixes up requests, and there is only one tenant")
        return Setup(
            asks,
            decode_limits=replace(DECODE_LIMITS, **self.decode),
            prefill_limits=replace(PREFILL_LIMITS, **self.prefill),
            **self.values,
        )

    def change(self, request: str, **values: Any) -> None:
        """Change a request.

        Raises:
            Contradiction: There is none of this name.
        """
        if request not in self.asks:
            raise Contradiction(f"no request is called {request} yet")
        self.asks[request] = replace(self.asks[request], **values)


MIXES_UP = frozenset({Flaw.OTHERS_REQUEST, Flaw.OTHERS_INPUT, Flaw.TORN, Flaw.PADDED})
"""Flaws that need a request of another tenant."""

States = Callable[[Draft, Fields], None]


def _set(draft: Draft, fields: Fields, **values: Any) -> None:
    draft.values.update(values)


def _number(draft: Draft, fields: Fields, name: str) -> None:
    if not int(fields["NUMBER"]):
        raise Contradiction("there is at least one")
    draft.values[name] = int(fields["NUMBER"])


def _limit_decode(draft: Draft, fields: Fields, name: str) -> None:
    draft.decode[name] = int(fields["NUMBER"])


def _limit_prefill(draft: Draft, fields: Fields, name: str) -> None:
    draft.prefill[name] = int(fields["NUMBER"])


def _landing(draft: Draft, fields: Fields) -> None:
    draft.values["policy"] = LandingPolicy(fields["POLICY"])


def _asks(draft: Draft, fields: Fields) -> None:
    name, tokens, more = fields["REQUEST"], int(fields["NUMBER"]), int(fields.get("MORE", "1"))
    if name in draft.asks:
        raise Contradiction(f"there is a request {name} already")
    if not tokens or not more or tokens + more >= POSITIONS:
        raise Contradiction(f"a prompt and an answer have fewer than {POSITIONS} tokens, and some")
    request, _, attempt = transfer_of(name).partition("/")
    draft.asks[name] = Ask(fields["TENANT"], request, tokens, more, attempt=int(attempt))


def _prompt(draft: Draft, fields: Fields) -> None:
    if fields["PROMPT"] not in draft.prompts:
        draft.prompts.append(fields["PROMPT"])
    draft.change(fields["REQUEST"], content=draft.prompts.index(fields["PROMPT"]) + 1)


def _scope(draft: Draft, fields: Fields) -> None:
    draft.change(fields["REQUEST"], scope=fields["SCOPE"])


def _route(draft: Draft, fields: Fields) -> None:
    role, _, number = fields["NODE"].partition("-")
    draft.change(fields["REQUEST"], **{role: int(number or 1) - 1})


def _flaw(draft: Draft, fields: Fields, flaw: Flaw) -> None:
    draft.change(fields["REQUEST"], flaw=flaw)


def _theft(draft: Draft, fields: Fields, theft: Theft) -> None:
    draft.change(fields["OTHER"])
    stolen = str(transfer_of(fields["OTHER"]))
    draft.change(fields["REQUEST"], stolen=stolen, theft=theft)


# `Flaw.IDLE` has no phrase: whoever computes nothing and says all the rest right cannot be found
# out, so no case with it has a right outcome.
def _flawed(words: str, flaw: Flaw) -> Phrase[States]:
    return Phrase(words, flaw.value, partial(_flaw, flaw=flaw))


def _figure(words: str, does: str, name: str) -> Phrase[States]:
    return Phrase(words, does, partial(_number, name=name))


WORLD: Vocabulary[States] = Vocabulary(
    (
        Phrase(
            "prefill pushes",
            "prefill writes into windows of decode; so it is if nothing is said",
            partial(_set, direction=Direction.PUSH),
        ),
        Phrase(
            "decode pulls",
            "decode claims what prefill offers, and reads it",
            partial(_set, direction=Direction.PULL),
        ),
        Phrase(
            "decode trusts what it has read",
            "it does not ask afterwards whether the pages stood (pull)",
            partial(_set, reader=Reader.TRUSTING),
        ),
        Phrase(
            "landing POLICY",
            "how what is written becomes pages; `copy` if nothing is said",
            _landing,
        ),
        _figure("NUMBER tokens to a page", "slots of a page; 2", "page_tokens"),
        _figure("prefill has NUMBER pages", "its measured pool; 3", "prefill_pages"),
        _figure("decode has NUMBER pages", "its measured pool; 3", "decode_pages"),
        _figure("the model takes NUMBER tokens", "its longest context; 64", "context_tokens"),
        _figure("a tenant may have NUMBER pages in windows", "its share; 2", "tenant_pages"),
        Phrase(
            "all tenants may have NUMBER pages in windows",
            "8",
            partial(_limit_decode, name="landing_pages"),
        ),
        Phrase(
            "NUMBER requests may wait",
            "places in decode's queue; 4",
            partial(_limit_decode, name="queue_max"),
        ),
        Phrase(
            "decode may compute NUMBER tokens a minute itself",
            "its budget where evidence of prefill is missing; 0",
            partial(_limit_decode, name="recompute_tokens_per_min"),
        ),
        Phrase(
            "prefill keeps up to NUMBER pages for later prompts",
            "prefixes, each in its scope; 2",
            partial(_limit_prefill, name="prefix_pages"),
        ),
        _figure("there are NUMBER prefill nodes", "prefill, prefill-2, ...; 1", "prefills"),
        _figure("there are NUMBER decode nodes", "decode, decode-2, ...; 1", "decodes"),
        Phrase(
            "TENANT asks REQUEST: NUMBER tokens",
            "a request and the length of its prompt; one token is generated. `a/2` is a second try "
            "of `a`",
            _asks,
        ),
        Phrase(
            "TENANT asks REQUEST: NUMBER tokens, MORE to generate",
            "as before, with the length of the answer",
            _asks,
        ),
        Phrase(
            "REQUEST has prompt PROMPT",
            "requests of the same prompt have the same pages and keys",
            _prompt,
        ),
        Phrase("REQUEST is shared in SCOPE", "who may share its pages; nobody if not said", _scope),
        Phrase("REQUEST is routed to NODE", "the first of its role if not said", _route),
        _flawed("prefill rejects REQUEST and reports it all the same", Flaw.REJECTED),
        _flawed("prefill computes another request in place of REQUEST", Flaw.OTHERS_REQUEST),
        _flawed("prefill computes another prompt in place of REQUEST", Flaw.OTHERS_INPUT),
        _flawed("prefill stores REQUEST in another layout", Flaw.LAYOUT),
        _flawed("prefill computes all but the last token of REQUEST", Flaw.SHORT),
        _flawed("prefill writes the pages of REQUEST in another order", Flaw.ORDER),
        _flawed("a foreign byte lands with the last page of REQUEST", Flaw.TORN),
        _flawed("prefill fills the last page of REQUEST with a neighbour's slots", Flaw.PADDED),
        _flawed("prefill reports REQUEST before it is written", Flaw.EARLY),
        _flawed("the write of REQUEST hangs", Flaw.HANGS),
        Phrase(
            "the body of REQUEST names the transfer of OTHER",
            f"a ticket is presented {Theft.BY_CLIENT.value}",
            partial(_theft, theft=Theft.BY_CLIENT),
        ),
        Phrase(
            "a router presents the ticket of OTHER for REQUEST",
            f"a ticket is presented {Theft.BY_ROUTER.value}",
            partial(_theft, theft=Theft.BY_ROUTER),
        ),
        Phrase(
            "a router repeats all that came with OTHER for REQUEST",
            f"a ticket is presented {Theft.WITH_ALL.value}",
            partial(_theft, theft=Theft.WITH_ALL),
        ),
        Phrase(
            "decode's engine drops requests late",
            "it keeps its batch until it is asked at a step",
            partial(_set, deaf_engine=True),
        ),
        Phrase(
            "the transport keeps copies",
            "an ended write's last page may land once more",
            partial(_set, copies=True),
        ),
        Phrase(
            "pages are zeroed late",
            "a step of its own; at once if not said",
            partial(_set, slow_scrubs=True),
        ),
    )
)
