"""The loads of a cost run: how clients and processes behave in each, as one literal table.

All loads of a round have prompts of the same lengths and are played on one stack, so that what they
cost can be compared. Which clients leave, and when, and what is too long is drawn from the seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kvairlock.drills.canaries import CANARY_CHARACTERS, END, Canaries
from kvairlock.drills.faults.table import Mishap
from kvairlock.drills.soak.load import Manners
from kvairlock.drills.soak.plan import AfterChunks, AfterEnds, Ask, Endpoint, Leave

TENANTS = ("tenant-0", "tenant-1", "tenant-2", "tenant-3")
LENGTHS = (250, 300, 400)
"""Of ordinary prompts, in characters, which are tokens of the canary model."""

OVERLONG = 700
MAX_TOKENS = 24
"""A canary, its end, and some more."""

CONTEXT_TOKENS = max(LENGTHS) + MAX_TOKENS
"""What the stack promises: the largest ordinary request."""

PAUSE_MS = 250
"""How long a client waits that was refused for load. A quarter of the least Retry-After: clients
without a pause would have used up all requests before the first answer is there."""


@dataclass(frozen=True, slots=True)
class Strike:
    """What happens to a process when half of the requests have ended.

    Args:
        node: Whose process.
        mishap: A crash, or a stop of longer than silence that counts as lost.
    """

    node: str
    mishap: Mishap


@dataclass(frozen=True, slots=True)
class CostLoad:
    """How clients and processes behave in one part of a cost run.

    Args:
        name: Its name.
        what: What it is, in a few words.
        leavers: The share of clients that leave before their answer is there.
        overlong: The share of requests that are longer than what is promised.
        crowding: Clients, and with them requests, as a multiple of what the decode pools hold.
        retries_max: How often a client that is refused tries again, at once.
        strike: What happens in the middle, or None.
    """

    name: str
    what: str
    leavers: float = 0.0
    overlong: float = 0.0
    crowding: int = 1
    retries_max: int = 0
    strike: Strike | None = None

    @property
    def manners(self) -> Manners:
        """How its clients take a refusal."""
        return Manners(self.retries_max, PAUSE_MS)


NORMAL = CostLoad("normal", "as many requests at one time as the decode pools hold")
LOADS = (
    NORMAL,
    CostLoad("cancels", "a third of the clients leave, at drawn moments", leavers=1 / 3),
    CostLoad("over-long", "a fifth of the requests is over the limit", overlong=1 / 5),
    CostLoad("overload", "four times as many clients", crowding=4),
    CostLoad(
        "overload, retried",
        "the same, and who is refused tries again at once, up to twice",
        crowding=4,
        retries_max=2,
    ),
    CostLoad(
        "prefill stopped",
        "a prefill node is stopped for longer than silence that counts as lost",
        strike=Strike("prefill-0", Mishap.LONG_STOP),
    ),
    CostLoad(
        "prefill killed",
        "a prefill node is killed and started again",
        strike=Strike("prefill-0", Mishap.CRASH),
    ),
    CostLoad(
        "decode killed",
        "a decode node is killed and started again",
        strike=Strike("decode-0", Mishap.CRASH),
    ),
)
"""All loads, in the order in which they are shown."""


def draw(load: CostLoad, count: int, seed: str, canaries: Canaries) -> list[Ask]:
    """Draw the requests of one load in one round.

    Args:
        load: The load.
        count: How many requests, before crowding.
        seed: Equal seeds draw equal lengths and moments, whatever the load is.
        canaries: Make the prompts, each with a canary that no other request has.
    """
    choose, count = random.Random(seed), count * load.crowding
    shapes = [(choose.choice(TENANTS), choose.choice(LENGTHS)) for _ in range(count)]
    leavers = set(choose.sample(range(count), round(count * load.leavers)))
    overlong = set(choose.sample(range(count), round(count * load.overlong)))
    return [
        _ask(
            canaries,
            tenant,
            OVERLONG if number in overlong else characters,
            _moment(choose) if number in leavers else None,
        )
        for number, (tenant, characters) in enumerate(shapes)
    ]


def order(loads: Sequence[CostLoad], seed: str) -> list[CostLoad]:
    """Return the loads in the order in which one round plays them.

    Args:
        loads: The loads.
        seed: Equal seeds draw equal orders.
    """
    drawn = list(loads)
    random.Random(seed).shuffle(drawn)
    return drawn


def _moment(choose: random.Random) -> Leave:
    if choose.randrange(2):
        return AfterChunks(choose.randrange(1, CANARY_CHARACTERS))
    return AfterEnds(choose.randrange(4))


def _ask(canaries: Canaries, tenant: str, characters: int, leave: Leave) -> Ask:
    return Ask(
        prompt=canaries.prompt(tenant, characters),
        beginning=0,
        endpoint=Endpoint.COMPLETIONS,
        overlong=characters == OVERLONG,
        parameters={"n": 1, "max_tokens": MAX_TOKENS, "stop": END, "stream": True},
        leave=leave,
    )
