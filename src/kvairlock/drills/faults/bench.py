r"""The stack of the fault matrix: two routes, of which one is struck, and what rows do with it.

    prefill-0 --- decode-0     the struck route: mishaps happen here
             \ /
    prefill-1 --- decode-1     the neighbours: they have to serve on

One stack serves for many rows. Its supervisor starts again what a row has killed.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from kvairlock.core.guards import Guard
from kvairlock.core.terms import LandingPolicy
from kvairlock.drills.canaries import Canaries, Marked
from kvairlock.drills.client import Call, Client, Reply
from kvairlock.drills.faults.table import Stack
from kvairlock.drills.journal import Journal
from kvairlock.drills.records import Records
from kvairlock.drills.stack import Keys, Running, running, wait_for
from kvairlock.runtime.failpoints import Failpoint

SEED = 2027
GATEWAY, P0, P1, D0, D1 = "gateway", "prefill-0", "prefill-1", "decode-0", "decode-1"
ROUTE = f"{P0}/{D0}"
STRUCK, HOLDER, NEIGHBOUR, NEXT = TENANTS = ("struck", "holder", "neighbour", "next")
DECODE_PAGES = 32
"""Room for a neighbour's request beside the one that is struck, but not for the holder's."""
UNUSED = Failpoint.WRITE_REPEAT
"""What no row arms."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a stack differs from another that the matrix is carried out on.

    Args:
        landing: Landing policy of its decode nodes.
        off: The guards that are off.
    """

    landing: LandingPolicy = LandingPolicy.COPY
    off: frozenset[Guard] = frozenset()


def settings(times: Stack, kind: Kind) -> str:
    """Return the TOML of a stack."""
    off = ", ".join(f'"{guard}"' for guard in sorted(kind.off))
    nodes = "".join(_nodes(number, kind.landing) for number in (0, 1))
    return f"""
[gateway]
port = 0
{nodes}
[breaker]
failures = 1000
violations = 1000

[limits]
beat_ms = {times.beat_ms}
lost_ms = {times.lost_ms}

[drill]
enabled = true
guards_off = [{off}]
"""


def _nodes(number: int, landing: LandingPolicy) -> str:
    return f"""
[[prefill]]
name = "prefill-{number}"
pages = 64
prefix_share = 0

[[decode]]
name = "decode-{number}"
pages = {DECODE_PAGES}
landing = "{landing}"
tenant_share = 1.0
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was asked, and its prompt."""

    prompt: Marked
    call: Call


class Bench:
    """What rows do with one running stack.

    Args:
        stack: The stack.
        keys: The keys of its tenants.
        canaries: Makes the prompts.
    """

    def __init__(self, stack: Running, keys: Keys, canaries: Canaries) -> None:
        self.client = Client(stack, keys)
        self.journal = Journal(stack.evidence)
        self.canaries = canaries
        self._records = Records(stack.evidence, keys.pseudonyms)

    # Processes

    def lives(self) -> Mapping[str, str]:
        """Return the incarnation of each process, as it was when all were last ready."""
        return self.client.stack.lives()

    def send(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the present life of a process."""
        self.client.stack.send(name, number)

    def wait_until_all_up(self) -> None:
        """Wait until every process is in the life that it was last ready in, and every route up.

        Raises:
            DrillFailed: It does not come to that.
        """
        self.client.wait_until_all_up()

    # Points

    def hold(self, node: str, point: str, after: int = 0) -> None:
        """Arm a point, and wait until it is armed."""
        self.client.point(node, "arm", point, after)
        self.journal.last("failpoint", node=node, point=point, action="arm")

    def wait_for_records(self, *nodes: str) -> None:
        """Wait until the journal has all that nodes have recorded so far.

        Each is told to release what is not armed, and records that behind everything else.
        """
        for node in nodes:
            self.let_go(node, UNUSED)
            self.journal.last("failpoint", node=node, point=UNUSED, action="release")

    def let_go(self, node: str, point: str) -> None:
        """Release a point, as soon as its node can be told."""
        wait_for(f"{node} to be reachable", lambda: self._released(node, point))

    def _released(self, node: str, point: str) -> bool | None:
        try:
            self.client.point(node, "release", point)
        except httpx.HTTPError:
            return None
        return True

    # Requests

    def ask(self, tenant: str, route: str, characters: int = 120, max_tokens: int = 17) -> Asked:
        """Ask a marked prompt, and go on at once."""
        prompt = self.canaries.prompt(tenant, characters)
        return Asked(prompt, self.client.ask(prompt, route, max_tokens))

    def answers(self, tenant: str, route: str) -> tuple[Marked, Reply]:
        """Ask, and wait for the answer."""
        asked = self.ask(tenant, route)
        return asked.prompt, asked.call.result()

    def request_of(self, tenant: str, node: str) -> str:
        """Wait until a node has admitted a tenant's request; return its pseudonym."""
        name = self._records.tenant(tenant)
        return str(self.journal.last("request_admitted", tenant=name, node=node)["request"])


@contextmanager
def started(times: Stack, kind: Kind, keys: Keys, folder: Path) -> Iterator[Bench]:
    """Start a stack, and stop it at the end, whatever was stopped on it.

    Raises:
        DrillFailed: It did not start.
    """
    with running(settings(times, kind), keys, folder) as stack:
        bench = Bench(stack, keys, Canaries(SEED))
        bench.wait_until_all_up()
        yield bench
