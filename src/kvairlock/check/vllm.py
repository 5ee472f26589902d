"""What a vLLM server holds, by what it says over HTTP.

    /v1/models   max_model_len                          advertised: prompt plus output
    /metrics     vllm:cache_config_info{...}            block_size, num_gpu_blocks, cache_dtype
                   num_gpu_blocks = 40 --+-- 1 null block, which no request ever gets
                                         +-- 39 pages of block_size tokens
                   kv_cache_size_tokens                 what the whole pool holds of full requests

Sources: `metrics_info` in vllm/config/cache.py writes every field of the cache's configuration as a
label, "None" for what is not known. `BlockPool` in vllm/v1/core/block_pool.py takes one block out
of its free list at the start, as the null block.

A model with several kinds of layers (sliding windows, state spaces) takes pages of each kind from
one pool. Then `num_gpu_blocks` times `block_size` is more than it holds, and only the number of
full-length requests is known: `kv_cache_size_tokens` is that number times `max_model_len`
(https://github.com/vllm-project/vllm/pull/42206). Shorter requests take no more pages than a full
one, so it is a figure to rely on for them too, if a low one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from kvairlock.check.deployment import EngineAddress
from kvairlock.check.exposition import PATH, STARTED, samples_of, started_s, whole
from kvairlock.check.reading import UNSTATED, NodeKind, Reading, fingerprint_of, incarnation_of
from kvairlock.core.promise.capacity import Basis, CapacityReport, KvGroup
from kvairlock.core.terms import NodeName, Role, pages_for
from kvairlock.runtime.asking import Asker, NoAnswer

CACHE = "vllm:cache_config_info"
NULL_BLOCKS = 1
NO_SIZE = (
    "does not state kv_cache_size_tokens; if its model has several kinds of layers, it holds less "
    "than num_gpu_blocks times block_size"
)
SEVERAL_KINDS = (
    "has several kinds of layers: its concurrency is that of requests of its full length"
)
NO_VERSION = "does not state its version: an upgrade does not show in its fingerprint"
NO_START = "does not state when it started: a restart does not show"


class Card(msgspec.Struct):
    """A model or an adapter; adapters have no length of their own."""

    id: str
    max_model_len: Annotated[int, Meta(ge=1)] | None = None


class Models(msgspec.Struct):
    """`/v1/models`."""

    data: list[Card]


class Version(msgspec.Struct):
    """`/version`."""

    version: str


@dataclass(frozen=True, slots=True)
class Cache:
    """The figures of the cache.

    Args:
        block_tokens: Token slots of a block.
        blocks: All blocks, the null block too.
        dtype: Of keys and values.
        size_tokens: What the pool holds of full requests, or None if it is not said.
    """

    block_tokens: int
    blocks: int
    dtype: str
    size_tokens: int | None

    def group(self, full_tokens: int) -> KvGroup | None:
        """Return places for full requests as a group, if a request takes several kinds of pages.

        Args:
            full_tokens: The longest request.
        """
        if self.size_tokens is None:
            return None
        request_blocks = self.blocks * full_tokens // self.size_tokens
        if request_blocks <= pages_for(full_tokens, self.block_tokens):
            return None
        places = (self.blocks - NULL_BLOCKS) // request_blocks
        return KvGroup("full_request", full_tokens, places, 0, 0)


def read(engine: EngineAddress, asker: Asker) -> Reading:
    """Ask a vLLM server what it holds.

    Args:
        engine: How the deployment describes it.
        asker: A client of it.

    Raises:
        NoAnswer: It does not say what is needed; the message names it.
    """
    card = _card(asker)
    exposition = samples_of(asker.text(PATH), CACHE, STARTED)
    cache = _cache([sample.labels for sample in exposition[CACHE]])
    started = started_s(exposition[STARTED])
    version = _version(asker)
    length_tokens = card.max_model_len or 0
    report = _report(engine, card.id, length_tokens, cache, version, started)
    said = [
        (cache.size_tokens is None, NO_SIZE),
        (bool(report.groups), SEVERAL_KINDS),
        (version == UNSTATED, NO_VERSION),
        (started is None, NO_START),
    ]
    return Reading(
        node=report.node,
        role=engine.plays,
        kind=NodeKind.VLLM,
        said=report,
        advertised_tokens=length_tokens,
        warnings=tuple(f"{engine.name} {text}" for applies, text in said if applies),
    )


def _card(asker: Asker) -> Card:
    cards = asker.shaped("/v1/models", Models).data
    lengths = [card for card in cards if card.max_model_len is not None]
    if not lengths:
        raise NoAnswer("/v1/models: no model has a `max_model_len`")
    return max(lengths, key=lambda card: card.max_model_len or 0)


def _cache(found: list[dict[str, str]]) -> Cache:
    if len(found) != 1:
        count = "there is no" if not found else f"{len(found)} engines have a"
        raise NoAnswer(f"{PATH}: {count} {CACHE}; one engine must answer at one address")
    labels = found[0]
    if not labels.get("cache_dtype"):
        raise NoAnswer(f"{PATH}: {CACHE} has no `cache_dtype`")
    size = "kv_cache_size_tokens"
    return Cache(
        block_tokens=whole(labels, CACHE, "block_size"),
        blocks=whole(labels, CACHE, "num_gpu_blocks"),
        dtype=labels["cache_dtype"],
        size_tokens=None if labels.get(size, "None") == "None" else whole(labels, CACHE, size),
    )


def _version(asker: Asker) -> str:
    try:
        return asker.shaped("/version", Version).version
    except NoAnswer:
        return UNSTATED


def _report(
    engine: EngineAddress,
    model: str,
    length_tokens: int,
    cache: Cache,
    version: str,
    started: float | None,
) -> CapacityReport:
    group = cache.group(length_tokens)
    pages = cache.blocks - NULL_BLOCKS
    parts = (model, cache.dtype, cache.block_tokens, cache.blocks, cache.size_tokens or 0)
    return CapacityReport(
        node=NodeName(engine.name),
        role=engine.plays,
        incarnation=incarnation_of(started),
        epoch=0,
        fingerprint=fingerprint_of(NodeKind.VLLM, version, engine.plays, length_tokens, *parts),
        basis=Basis(model, cache.dtype, UNSTATED, 0, version, UNSTATED),
        page_tokens=cache.block_tokens,
        pages=pages,
        landing_pages=pages if engine.plays is Role.DECODE else 0,
        windows=0,
        context_tokens=length_tokens,
        groups=() if group is None else (group,),
    )
