"""What an SGLang server holds, by what it says over HTTP.

    /v1/models          max_model_len           advertised: prompt plus output
    /get_server_info    max_req_input_len       admitted: prompts of that length are refused
                        max_total_num_tokens    the pool
                          512 --+-- 18: a page and two tokens, which no waiting request can have
                                +-- 494 are scheduled; prompts of 495 to 505 are admitted and wait

A prompt enters a prefill batch while `extend_input_len + max_new_tokens + page_size` is less than
what is free of the pool (`PrefillAdder` in sglang/srt/managers/schedule_policy.py; that admission
looks at something else: https://github.com/sgl-project/sglang/pull/29249). Prefill of a
disaggregated pair asks for one new token, so that a page and two tokens are never had.

A decode server takes a prompt while `num_reserved_decode_tokens` are left beside it
(`DecodePreallocQueue` in sglang/srt/disaggregation/decode.py). So a prompt may be as long as the
pool less that reserve, also if nothing else runs. What is generated is cut a page before the end of
the pool, as the same request for changes says, so that a page and two tokens are kept there too.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kvairlock.check.deployment import EngineAddress
from kvairlock.check.exposition import PATH, STARTED, samples_of, started_s
from kvairlock.check.reading import UNSTATED, NodeKind, Reading, fingerprint_of, incarnation_of
from kvairlock.core.promise.capacity import Basis, CapacityReport, KvGroup
from kvairlock.core.promise.violations import Violation, ViolationKind
from kvairlock.core.terms import NodeName, Role
from kvairlock.runtime.asking import Asker, NoAnswer

INFO_PATHS = ("/get_server_info", "/server_info")
"""The second is its name in later versions."""

NOT_FOUND = 404
KEPT_TOKENS = 2
"""Kept back beside a page: one new token, and the last one, as less must be asked than is free."""

NO_START = "does not state when it started (--enable-metrics): a restart does not show"
NO_ADMISSION = "does not state how long a prompt it admits (max_req_input_len)"

Positive = Annotated[int, Meta(ge=1)]
Word = Annotated[str, Meta(min_length=1)]


class ServerInfo(msgspec.Struct):
    """What is needed of the server's own account; nothing else in it is looked at."""

    version: Word
    max_total_num_tokens: Positive
    page_size: Positive
    disaggregation_mode: Word
    kv_cache_dtype: Word
    tp_size: Positive
    pp_size: Positive
    dp_size: Positive
    max_req_input_len: Positive | None = None
    num_reserved_decode_tokens: Annotated[int, Meta(ge=0)] | None = None

    @property
    def admitted_tokens(self) -> int | None:
        """The longest prompt that is admitted: what has the stated length is refused already."""
        return None if self.max_req_input_len is None else self.max_req_input_len - 1

    @property
    def parallelism(self) -> str:
        """Over how many processes the model is spread."""
        return f"tp{self.tp_size}-pp{self.pp_size}-dp{self.dp_size}"


class Card(msgspec.Struct):
    """The model."""

    id: Word
    max_model_len: Positive


class Models(msgspec.Struct):
    """`/v1/models`."""

    data: Annotated[list[Card], Meta(min_length=1)]


def read(engine: EngineAddress, asker: Asker) -> Reading:
    """Ask an SGLang server what it holds.

    Args:
        engine: How the deployment describes it.
        asker: A client of it.

    Raises:
        NoAnswer: It does not say what is needed; the message names it.
    """
    info = _info(asker)
    card = asker.shaped("/v1/models", Models).data[0]
    started = _started(asker)
    said = [(started is None, NO_START), (info.max_req_input_len is None, NO_ADMISSION)]
    return Reading(
        node=NodeName(engine.name),
        role=engine.plays,
        kind=NodeKind.SGLANG,
        said=_report(engine, info, card, started),
        advertised_tokens=card.max_model_len,
        admitted_tokens=info.admitted_tokens,
        scheduled_tokens=_scheduled_tokens(engine, info),
        violations=_of_role(engine, info),
        warnings=tuple(f"{engine.name} {text}" for applies, text in said if applies),
    )


def _info(asker: Asker) -> ServerInfo:
    try:
        return asker.shaped(INFO_PATHS[0], ServerInfo)
    except NoAnswer as missing:
        if missing.status != NOT_FOUND:
            raise
    return asker.shaped(INFO_PATHS[1], ServerInfo)


def _started(asker: Asker) -> float | None:
    """Return when it started: metrics are off unless they were asked for."""
    try:
        return started_s(samples_of(asker.text(PATH), STARTED)[STARTED])
    except NoAnswer:
        return None


def _of_role(engine: EngineAddress, info: ServerInfo) -> tuple[Violation, ...]:
    if info.disaggregation_mode == engine.plays:
        return ()
    known = info.disaggregation_mode in ("null", Role.PREFILL, Role.DECODE)
    mode = info.disaggregation_mode if known else "another mode"
    message = f"{engine.name} is the {engine.plays} of a route and says that it runs as {mode}"
    return (Violation(ViolationKind.ROLE_DIFFERS, message, node=NodeName(engine.name)),)


def _scheduled_tokens(engine: EngineAddress, info: ServerInfo) -> int:
    """Return the longest prompt that is ever scheduled, with nothing else in the pool.

    Raises:
        NoAnswer: A decode server does not say what it reserves.
    """
    if engine.plays is Role.PREFILL:
        return max(0, info.max_total_num_tokens - _kept_tokens(info))
    if info.num_reserved_decode_tokens is None:
        missing = "num_reserved_decode_tokens"
        raise NoAnswer(f"{INFO_PATHS[0]}: Object missing required field `{missing}`")
    return max(0, info.max_total_num_tokens - info.num_reserved_decode_tokens)


def _kept_tokens(info: ServerInfo) -> int:
    return min(info.max_total_num_tokens, info.page_size + KEPT_TOKENS)


def _report(
    engine: EngineAddress, info: ServerInfo, card: Card, started: float | None
) -> CapacityReport:
    pool_tokens, page_tokens, kept = info.max_total_num_tokens, info.page_size, _kept_tokens(info)
    scheduled = _scheduled_tokens(engine, info)
    parts = (info.parallelism, info.kv_cache_dtype, page_tokens, pool_tokens, card.max_model_len)
    return CapacityReport(
        node=NodeName(engine.name),
        role=engine.plays,
        incarnation=incarnation_of(started),
        epoch=0,
        fingerprint=fingerprint_of(
            NodeKind.SGLANG, info.version, engine.plays, card.id, scheduled, *parts
        ),
        basis=Basis(card.id, info.kv_cache_dtype, info.parallelism, 0, info.version, UNSTATED),
        page_tokens=page_tokens,
        pages=pool_tokens // page_tokens,
        landing_pages=scheduled // page_tokens if engine.plays is Role.DECODE else 0,
        windows=0,
        context_tokens=card.max_model_len,
        groups=(KvGroup("scheduled", 1, pool_tokens - kept, kept, 0),),
    )
