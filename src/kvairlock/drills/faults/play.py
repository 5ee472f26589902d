"""One row of the fault matrix, from its scene to the next request that is answered.

    set the scene -> strike -> meanwhile -> undo -> afterwards -> next request -> idle -> records

Meanwhile, if the mishap is noticed, the neighbours must be served, and the struck route must refuse
at once: a mishap does not widen, and no new request hangs on it.
"""

from __future__ import annotations

import time

from kvairlock.core.errors import REASONS, Reason
from kvairlock.drills.canaries import Marked
from kvairlock.drills.client import Reply
from kvairlock.drills.faults import judge
from kvairlock.drills.faults.bench import D0, D1, NEIGHBOUR, NEXT, P0, P1, ROUTE, Bench
from kvairlock.drills.faults.judge import Seen
from kvairlock.drills.faults.mishaps import Blow, strike, undo, wait_until_noticed
from kvairlock.drills.faults.outcomes import Left, When
from kvairlock.drills.faults.scenes import Scene, set_scene
from kvairlock.drills.faults.table import Row, Struck
from kvairlock.drills.stack import DrillFailed, wait_for

CLOSED = REASONS[Reason.ROUTE_CLOSED]
ON_DECODE = (Struck.DECODE, Struck.GATEWAY_DECODE)
"""What takes the struck route's decode node away from the neighbours, too."""


class Play:
    """Carries out one row.

    Args:
        bench: The stack; nothing is open on it.
        row: The row.
        short_ms: How long a short mishap lasts.
    """

    def __init__(self, bench: Bench, row: Row, short_ms: int) -> None:
        self._bench, self._row, self._short_ms = bench, row, short_ms
        self._wrong: list[str] = []

    def run(self) -> Seen:
        """Carry it out, and say what was seen.

        Raises:
            DrillFailed: Something that is waited for does not happen.
        """
        bench, cell = self._bench, self._row.cell
        bench.journal.mark()
        scene = set_scene(bench, cell.phase)
        blow = strike(bench, cell)
        try:
            self._meanwhile(scene, blow)
            told_ms = self._told_ms(scene, blow)
        finally:
            over_s = undo(bench, blow)
        bench.wait_until_all_up()
        client, client_ms = self._client(scene, told_ms)
        next_ms = self._next_ms(over_s)
        self._idle()
        return self._seen(scene, client, client_ms, next_ms)

    # While it lasts

    def _meanwhile(self, scene: Scene, blow: Blow) -> None:
        noticed = blow.cell.mishap.is_noticed
        if noticed:
            wait_until_noticed(self._bench, blow.cell)
        if noticed and blow.cell.struck is not Struck.GATEWAY:
            self._neighbour_is_served(scene)
            self._route_is_closed()
        if self._row.rule.let_go is When.MEANWHILE:
            self._let_go(scene)
        if not noticed:
            time.sleep(self._short_ms / 1000)  # That is the mishap.

    def _neighbour_is_served(self, scene: Scene) -> None:
        """By the same decode node, where nobody is held on it and it can be reached."""
        apart = scene.place.node == D0 or self._row.cell.struck in ON_DECODE
        prompt, reply = self._bench.answers(NEIGHBOUR, f"{P1}/{D1 if apart else D0}")
        if reply.text != prompt.canary:
            self._wrong.append(f"a neighbour was not served: {reply.status} {reply.refusal}")
        self._look_for_foreign(prompt, reply)

    def _route_is_closed(self) -> None:
        _, reply = self._bench.answers(NEXT, ROUTE)
        if (reply.status, reply.refusal) != (CLOSED.http_status, CLOSED.code):
            self._wrong.append(f"the route was not closed: {reply.status} {reply.refusal}")

    def _told_ms(self, scene: Scene, blow: Blow) -> int | None:
        """How long it took until the client was told, if it is to be told meanwhile or was."""
        client = self._row.rule.client
        waits = not isinstance(client, Left) and client.when is When.MEANWHILE
        over = scene.call.ends_within(self._row.bounds.client_ms / 1000 if waits else 0)
        return _since_ms(blow.at_s) if over else None

    # Once it is over

    def _client(self, scene: Scene, told_ms: int | None) -> tuple[str, int | None]:
        """What the client got, and how long it took; in the table's words."""
        began_s = time.monotonic()
        if self._row.rule.let_go is When.AFTERWARDS:
            self._let_go(scene)
        reply = scene.call.result()
        self._look_for_foreign(scene.prompt, reply)
        if isinstance(self._row.rule.client, Left):
            return judge.left(), None
        if told_ms is not None:
            return judge.got(scene.prompt, reply, When.MEANWHILE), told_ms
        return judge.got(scene.prompt, reply, When.AFTERWARDS), _since_ms(began_s)

    def _let_go(self, scene: Scene) -> None:
        self._bench.let_go(scene.place.node, scene.place.point)

    def _next_ms(self, over_s: float) -> int:
        """Ask on the route until a request is answered; return how long that took.

        Raises:
            DrillFailed: It is not, long after its time.
        """
        wait_for("the next request to be answered", self._next_is_answered)
        return _since_ms(over_s)

    def _next_is_answered(self) -> bool | None:
        prompt, reply = self._bench.answers(NEXT, ROUTE)
        self._look_for_foreign(prompt, reply)
        return True if reply.text == prompt.canary and not reply.error else None

    def _look_for_foreign(self, prompt: Marked, reply: Reply) -> None:
        for marked in self._bench.canaries.foreign(prompt, reply.text):
            self._wrong.append(f"{prompt.tenant} read a canary of {marked.tenant}")

    def _idle(self) -> None:
        try:
            self._bench.client.idle()
        except DrillFailed as failed:
            self._wrong.append(str(failed))

    # Records

    def _seen(self, scene: Scene, client: str, client_ms: int | None, next_ms: int) -> Seen:
        self._bench.wait_for_records(P0, D0)
        journal, request = self._bench.journal, scene.request
        has_left = isinstance(self._row.rule.client, Left)
        return Seen(
            client=client,
            reply=None if has_left else scene.call.result(),
            decode=judge.ending(journal, request, D0),
            prefill=judge.ending(journal, request, P0),
            fence=judge.fence(journal, request),
            client_ms=client_ms,
            next_ms=next_ms,
            wrong=(*self._wrong, *judge.violations(journal, request)),
        )


def _since_ms(at_s: float) -> int:
    return round((time.monotonic() - at_s) * 1000)
