"""The weights of a Llama model, as float32 in memory.

The file's tensors must be exactly those that are computed with, in the shapes that the figures ask
for: a tensor that nobody reads, such as a bias, would mean another model. Matrices stay as the file
has them, one row per output, and those that are applied to the same input are joined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

from kvairlock.engine.cache import Floats
from kvairlock.engine.llama.config import Config
from kvairlock.engine.llama.file import GgufFile, TensorEntry
from kvairlock.runtime.machine import memory_free_bytes

FLOAT_BYTES = 4
MIB = 1 << 20

EMBEDDING, OUTPUT_NORM, OUTPUT = "token_embd.weight", "output_norm.weight", "output.weight"
ROPE_FACTORS = "rope_freqs.weight"

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LayerWeights:
    """The weights of one layer; matrices are (outputs, inputs).

    Args:
        attention_norm: (width,).
        qkv: Queries, keys and values: (attention_width + 2 * kv_width, width).
        attention_out: (width, attention_width).
        feed_norm: (width,).
        gate_up: (2 * inner, width).
        down: (width, inner).
    """

    attention_norm: Floats
    qkv: Floats
    attention_out: Floats
    feed_norm: Floats
    gate_up: Floats
    down: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """All weights of a model.

    Args:
        embedding: (vocab, width).
        layers: In their order.
        output_norm: (width,).
        output: (vocab, width); the embedding itself where the file ties the two.
        rope_factors: By how much each wavelength is stretched: (head_width / 2,).
    """

    embedding: Floats
    layers: tuple[LayerWeights, ...]
    output_norm: Floats
    output: Floats
    rope_factors: Floats


def read_weights(file: GgufFile, config: Config, vocab_size: int) -> Weights:
    """Read all weights of a file.

    Raises:
        ModelUnusable: When tensors are missing, left over or of another shape, when their format
            can't be read, when the file is torn, or when there is too little memory.
    """
    _require_tensors(file, config, vocab_size)
    _require_memory(file)
    embedding = _tensor(file, EMBEDDING)
    return Weights(
        embedding=embedding,
        layers=tuple(_layer(file, number) for number in range(config.layers)),
        output_norm=_tensor(file, OUTPUT_NORM),
        output=_tensor(file, OUTPUT) if OUTPUT in file.tensors else embedding,
        rope_factors=_rope_factors(file, config),
    )


def _layer(file: GgufFile, number: int) -> LayerWeights:
    def joined(*parts: str) -> Floats:
        return np.concatenate([_tensor(file, f"blk.{number}.{part}.weight") for part in parts])

    return LayerWeights(
        attention_norm=joined("attn_norm"),
        qkv=joined("attn_q", "attn_k", "attn_v"),
        attention_out=joined("attn_output"),
        feed_norm=joined("ffn_norm"),
        gate_up=joined("ffn_gate", "ffn_up"),
        down=joined("ffn_down"),
    )


def _rope_factors(file: GgufFile, config: Config) -> Floats:
    if ROPE_FACTORS not in file.tensors:
        return np.ones(config.head_width // 2, np.float32)
    factors = _tensor(file, ROPE_FACTORS)
    if not (factors > 0).all():
        raise file.unusable(f"{ROPE_FACTORS} stretches a wavelength by nothing")
    return factors


def _tensor(file: GgufFile, name: str) -> Floats:
    """One tensor in float32, in memory of its own."""
    entry = file.tensors[name]
    kind = _kind(file, name, entry)
    block, block_bytes = GGML_QUANT_SIZES[kind]
    if entry.shape[-1] % block:
        raise file.unusable(f"rows of {name} don't divide into blocks of {block}")
    row_bytes = entry.shape[-1] // block * block_bytes
    rows = int(np.prod(entry.shape[:-1]))
    packed = np.frombuffer(file.data(entry, rows * row_bytes), np.uint8).reshape(rows, row_bytes)
    try:
        floats = dequantize(packed, kind)
    except NotImplementedError:
        raise file.unusable(f"{name} is in {kind.name}, which can't be read here") from None
    return np.array(floats.reshape(entry.shape), np.float32, order="C")


def _kind(file: GgufFile, name: str, entry: TensorEntry) -> GGMLQuantizationType:
    try:
        return GGMLQuantizationType(entry.kind)
    except ValueError:
        raise file.unusable(f"{name} is in the unknown number format {entry.kind}") from None


def _require_tensors(file: GgufFile, config: Config, vocab_size: int) -> None:
    if config.layers > len(file.tensors):
        raise file.unusable(f"{config.layers} layers can't be in {len(file.tensors)} tensors")
    needed, optional = _shapes(config, vocab_size)
    found = {name: entry.shape for name, entry in file.tensors.items()}
    missing = sorted(needed.keys() - found.keys())
    if missing:
        raise file.unusable(f"it lacks the tensor {missing[0]}{_and_more(missing)}")
    unread = sorted(found.keys() - needed.keys() - optional.keys())
    if unread:
        raise file.unusable(
            f"it holds {unread[0]}{_and_more(unread)}, which no Llama model computes with"
        )
    for name, shape in found.items():
        wanted = (needed | optional)[name]
        if shape != wanted:
            raise file.unusable(f"{name} has the shape {shape}, which should be {wanted}")


def _and_more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _shapes(config: Config, vocab_size: int) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """The shapes of the tensors that must be there, and of those that may."""
    vocabulary = (vocab_size, config.width)
    needed: dict[str, Shape] = {EMBEDDING: vocabulary, OUTPUT_NORM: (config.width,)}
    layer: dict[str, Shape] = {
        "attn_norm": (config.width,),
        "attn_q": (config.attention_width, config.width),
        "attn_k": (config.kv_width, config.width),
        "attn_v": (config.kv_width, config.width),
        "attn_output": (config.width, config.attention_width),
        "ffn_norm": (config.width,),
        "ffn_gate": (config.inner, config.width),
        "ffn_up": (config.inner, config.width),
        "ffn_down": (config.width, config.inner),
    }
    for number in range(config.layers):
        needed |= {f"blk.{number}.{part}.weight": shape for part, shape in layer.items()}
    return needed, {OUTPUT: vocabulary, ROPE_FACTORS: (config.head_width // 2,)}


def _require_memory(file: GgufFile) -> None:
    elements = sum(int(np.prod(entry.shape)) for entry in file.tensors.values())
    needed_bytes, free_bytes = elements * FLOAT_BYTES, memory_free_bytes()
    if needed_bytes > free_bytes:
        raise file.unusable(
            f"its weights take {needed_bytes // MIB} MiB as float32, and {free_bytes // MIB} MiB "
            "of memory are free; take a smaller model"
        )
