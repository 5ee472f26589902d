"""Clients of a soak: so many at one time, each asks, reads its answer, or leaves as it was drawn.

What came to a client is kept as it came; whether it is what had to come is judged elsewhere.
Clients that try again do it at once, say so as those of OpenAI do, and stop where they are told to.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Any

import anyio
import httpx

from kvairlock.drills.soak.plan import AfterChunks, AfterEnds, Ask, Leave

TIMEOUT_S = 600.0
DONE = "[DONE]"
SENT = "http11.send_request_body.complete"
COUNT_HEADER = "x-stainless-retry-count"
ADVICE_HEADER = "x-should-retry"
WORTH_A_RETRY = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}
)
"""Statuses below 500 after which clients of OpenAI try again."""


class Ending(StrEnum):
    """How a request ended for its client."""

    COMPLETED = "completed"
    LEFT = "left"
    """Its client left, as drawn."""
    REFUSED = "refused"
    """It was told why, with a code."""
    BROKEN = "broken"
    """None of these: the connection failed, or the answer was not whole."""


class Advice(StrEnum):
    """What a refusal says about trying again."""

    NONE = "none"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Manners:
    """How clients take a refusal that says nothing against another try.

    Args:
        retries_max: How often they send the same request again, at once.
        pause_ms: How long they then wait before they send another one.
    """

    retries_max: int = 0
    pause_ms: int = 0


@dataclass(slots=True)
class Outcome:
    """What one client got.

    Args:
        ask: What it asked.
        ending: How that ended.
        status: The HTTP status; 0 while there was none.
        code: The code of the error, or what broke.
        texts: The text of each choice, as far as it came.
        finishes: The finish reasons, in the order in which they came.
        generated_tokens: What the answer says was generated, if it was whole.
        reused_tokens: What the answer says was not computed again, if it was whole.
        sent: How often it was sent: once, and once for each retry.
        refusals: The code of each refusal, also of those after which it was tried again.
        advice: What the last refusal says about trying again.
        first_ms: From the first sending to the first piece of an answer; None while there is none.
        total_ms: From the first sending to the end; None while it has none.
        began_s: When it was first sent, on the monotonic clock.
    """

    ask: Ask
    ending: Ending = Ending.LEFT
    status: int = 0
    code: str = ""
    texts: list[str] = field(default_factory=list)
    finishes: list[str] = field(default_factory=list)
    generated_tokens: int = 0
    reused_tokens: int = 0
    sent: int = 0
    refusals: list[str] = field(default_factory=list)
    advice: Advice = Advice.NONE
    first_ms: float | None = None
    total_ms: float | None = None
    began_s: float = field(default_factory=time.monotonic, compare=False)

    def __post_init__(self) -> None:
        self.texts = [""] * self.choices

    @property
    def choices(self) -> int:
        """How many answers were asked for."""
        return int(self.ask.parameters["n"])

    @property
    def age_ms(self) -> float:
        """How long ago it was first sent."""
        return (time.monotonic() - self.began_s) * 1000

    @property
    def may_pass(self) -> bool:
        """Whether it was refused for what may pass by itself, by its status."""
        passes = self.status in WORTH_A_RETRY or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        return self.ending is Ending.REFUSED and passes

    def try_again(self) -> None:
        """Forget how it was refused, except that it was."""
        self.ending, self.status, self.code = Ending.LEFT, 0, ""

    def take(self, answer: Mapping[str, Any]) -> None:
        """Take a whole answer, or one event of a stream."""
        if "error" in answer:
            self.refuse(answer["error"])
            return
        if self.first_ms is None:
            self.first_ms = self.age_ms
        for choice in answer["choices"]:
            self.texts[choice["index"]] += _text(choice)
            if choice["finish_reason"] is not None:
                self.finishes.append(choice["finish_reason"])
        usage = answer.get("usage") or {}
        self.generated_tokens += usage.get("completion_tokens", 0)
        details = usage.get("prompt_tokens_details") or {}
        self.reused_tokens += details.get("cached_tokens") or 0

    def refuse(self, error: Mapping[str, Any]) -> None:
        """Take an error."""
        self.ending, self.code = Ending.REFUSED, str(error["code"])
        self.refusals.append(self.code)

    def end(self) -> None:
        """The answer has ended: every choice must have finished, once."""
        if self.ending is Ending.REFUSED:
            return
        whole = len(self.finishes) == self.choices
        self.ending = Ending.COMPLETED if whole else Ending.BROKEN
        self.code = "" if whole else "unfinished"

    def fail(self, code: str) -> None:
        """The answer did not come as it must."""
        self.ending, self.code = Ending.BROKEN, code


def _text(choice: Mapping[str, Any]) -> str:
    part: Mapping[str, Any] = choice.get("delta") or choice.get("message") or choice
    return part.get("text") or part.get("content") or ""


class Load:
    """Asks a stack what was drawn.

    Args:
        url: The gateway.
        keys: The key of each tenant.
        model: The model's name.
        concurrency: Requests at one time.
        tell: Told each outcome as it comes.
        manners: How a client takes a refusal.
    """

    def __init__(
        self,
        url: str,
        keys: Mapping[str, str],
        model: str,
        concurrency: int,
        tell: Callable[[Outcome], None],
        manners: Manners = Manners(),
    ) -> None:
        self._url, self._keys, self._model = url, keys, model
        self._concurrency, self._tell, self._manners = concurrency, tell, manners
        self._ended = 0
        self._one_more = anyio.Event()

    async def run(self, asks: Iterable[Ask]) -> None:
        """Ask everything and return when all has ended."""
        waiting = iter(asks)
        limits = httpx.Limits(max_connections=self._concurrency)
        async with (
            httpx.AsyncClient(base_url=self._url, timeout=TIMEOUT_S, limits=limits) as http,
            anyio.create_task_group() as clients,
        ):
            for _ in range(self._concurrency):
                clients.start_soon(self._one_after_the_other, http, waiting)

    async def _one_after_the_other(self, http: httpx.AsyncClient, waiting: Iterator[Ask]) -> None:
        for ask in waiting:
            outcome = Outcome(ask)
            await self._until_it_leaves(http, outcome)
            outcome.total_ms = outcome.age_ms
            self._ended += 1
            self._one_more.set()
            self._one_more = anyio.Event()
            self._tell(outcome)
            if outcome.may_pass:
                await anyio.sleep(self._manners.pause_ms / 1000)

    async def _until_it_leaves(self, http: httpx.AsyncClient, outcome: Outcome) -> None:
        sent = anyio.Event()
        async with anyio.create_task_group() as tasks:
            leave = outcome.ask.leave
            if isinstance(leave, AfterEnds):
                tasks.start_soon(self._leave_after, leave, sent, tasks.cancel_scope)
            try:
                await self._ask(http, outcome, sent)
            except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as error:
                outcome.fail(type(error).__name__)
            tasks.cancel_scope.cancel()

    async def _leave_after(
        self, leave: AfterEnds, sent: anyio.Event, client: anyio.CancelScope
    ) -> None:
        await sent.wait()
        goal = self._ended + leave.count
        while self._ended < goal:
            await self._one_more.wait()
        client.cancel()

    async def _ask(self, http: httpx.AsyncClient, outcome: Outcome, sent: anyio.Event) -> None:
        await self._send(http, outcome, sent)
        while self._tries_again(outcome):
            outcome.try_again()
            await self._send(http, outcome, sent)

    def _tries_again(self, outcome: Outcome) -> bool:
        if not outcome.may_pass or outcome.advice is Advice.STOP:
            return False
        return outcome.sent <= self._manners.retries_max

    async def _send(self, http: httpx.AsyncClient, outcome: Outcome, sent: anyio.Event) -> None:
        async def trace(event: str, _: Any) -> None:
            if event == SENT:
                sent.set()

        ask = outcome.ask
        headers = {"authorization": f"Bearer {self._keys[ask.prompt.tenant]}"}
        if outcome.sent:
            headers[COUNT_HEADER] = str(outcome.sent)
        outcome.sent += 1
        request = http.build_request(
            "POST",
            ask.endpoint,
            headers=headers,
            json=ask.body(self._model),
            extensions={"trace": trace},
        )
        response = await http.send(request, stream=True)
        try:
            await _read(response, outcome)
        finally:
            await response.aclose()


async def _read(response: httpx.Response, outcome: Outcome) -> None:
    outcome.status = response.status_code
    outcome.advice = Advice.STOP if response.headers.get(ADVICE_HEADER) == "false" else Advice.NONE
    if response.status_code == HTTPStatus.OK and outcome.ask.parameters.get("stream"):
        await _read_stream(response, outcome, outcome.ask.leave)
    else:
        outcome.take(json.loads(await response.aread()))
        outcome.end()


async def _read_stream(response: httpx.Response, outcome: Outcome, leave: Leave) -> None:
    """Read events until the stream ends or the client leaves."""
    events, is_done = 0, False
    async for line in response.aiter_lines():
        data = line.removeprefix("data: ")
        if data == DONE:
            is_done = True
        elif data != line:
            outcome.take(json.loads(data))
            events += 1
        if isinstance(leave, AfterChunks) and events >= leave.count:
            return
    if is_done or outcome.ending is Ending.REFUSED:
        outcome.end()
    else:
        outcome.fail("cut_short")
