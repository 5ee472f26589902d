"""The figures of a Llama model, and the refusal of every file that means something else.

Llama files differ in details that change the result: experts, other rotations, sliding windows,
scaled logits. So the keys that are understood are listed, and one that is not on the list is a
reason to refuse the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvairlock.engine.llama.file import GgufFile

ARCHITECTURE = "llama"
SCALINGS = ("none", "linear")
ROPE_BASE = 10000.0

# What is read below, and what changes no result.
KEYS_READ = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
}
KEYS_WITHOUT_EFFECT = {
    "vocab_size",
    "tensor_data_layout",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
}


@dataclass(frozen=True, slots=True)
class Config:
    """The shape of a Llama model.

    Args:
        layers: How many layers it has.
        width: Elements of a token between layers.
        heads: Query heads of a layer.
        kv_heads: Key heads, and value heads, of a layer; each serves heads / kv_heads query heads.
        head_width: Elements of one head.
        inner: Elements of a token inside the feed-forward part.
        context_tokens: Positions that it was trained for.
        epsilon: Added to the mean square when a token is normed.
        rope_base: The base of the wavelengths of positions.
        rope_stretch: By how much positions are pressed together.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    inner: int
    context_tokens: int
    epsilon: float
    rope_base: float
    rope_stretch: float

    @property
    def kv_width(self) -> int:
        """Elements of all key heads of a token, and of all value heads."""
        return self.kv_heads * self.head_width

    @property
    def attention_width(self) -> int:
        """Elements of all query heads of a token."""
        return self.heads * self.head_width


def read_config(file: GgufFile) -> Config:
    """Read the figures of a model, and refuse it if it is not wholly understood.

    Raises:
        ModelUnusable: The message says what is not understood.
    """
    _require_architecture(file)
    _require_known_keys(file)
    heads, width = _size(file, "attention.head_count"), _size(file, "embedding_length")
    head_width = _size(file, "attention.key_length", width // heads)
    config = Config(
        layers=_size(file, "block_count"),
        width=width,
        heads=heads,
        kv_heads=_size(file, "attention.head_count_kv", heads),
        head_width=head_width,
        inner=_size(file, "feed_forward_length"),
        context_tokens=_size(file, "context_length"),
        epsilon=_positive(file, "attention.layer_norm_rms_epsilon"),
        rope_base=_positive(file, "rope.freq_base", ROPE_BASE),
        rope_stretch=_rope_stretch(file),
    )
    _require_heads_that_divide(file, config)
    return config


def _require_architecture(file: GgufFile) -> None:
    found = file.value("general.architecture", str)
    if found != ARCHITECTURE:
        raise file.unusable(
            f"its architecture is {found!r}, and only {ARCHITECTURE!r} is understood; "
            "take a model of the Llama family, such as Llama 3 or SmolLM2"
        )
    if file.value("split.count", int, 1) > 1:
        raise file.unusable("it is one part of several; merge them into one file")


def _require_known_keys(file: GgufFile) -> None:
    prefix = f"{ARCHITECTURE}."
    said = {key.removeprefix(prefix) for key in file.metadata if key.startswith(prefix)}
    unknown = sorted(said - KEYS_READ - KEYS_WITHOUT_EFFECT)
    if unknown:
        raise file.unusable(f"it has {prefix}{unknown[0]}, which is not understood")


def _require_heads_that_divide(file: GgufFile, config: Config) -> None:
    sizes = f"{config.heads} query heads, {config.kv_heads} key heads, head size"
    if config.heads % config.kv_heads:
        raise file.unusable(f"its heads don't divide: {sizes} {config.head_width}")
    if "llama.attention.key_length" not in file.metadata and config.width % config.heads:
        raise file.unusable(f"its width of {config.width} doesn't divide into {config.heads} heads")
    for key in ("attention.value_length", "rope.dimension_count"):
        size = _size(file, key, config.head_width)
        if size != config.head_width or size % 2:
            raise file.unusable(
                f"its {key} is {size}, which should be the even head size {config.head_width}"
            )


def _rope_stretch(file: GgufFile) -> float:
    scaling = file.value("llama.rope.scaling.type", str, "none")
    if scaling not in SCALINGS:
        raise file.unusable(
            f"it scales positions by {scaling!r}; understood are none and linear, and the way of "
            "Llama 3, which is no such word but the tensor rope_freqs.weight"
        )
    return _positive(file, "rope.scaling.factor", 1.0) if scaling == "linear" else 1.0


def _size(file: GgufFile, key: str, default: int | None = None) -> int:
    size = file.value(f"{ARCHITECTURE}.{key}", int, default)
    if size < 1:
        raise file.unusable(f"its {ARCHITECTURE}.{key} is {size}")
    return size


def _positive(file: GgufFile, key: str, default: float | None = None) -> float:
    number = file.value(f"{ARCHITECTURE}.{key}", float, default)
    if not 0 < number < float("inf"):
        raise file.unusable(f"its {ARCHITECTURE}.{key} is {number}")
    return number
