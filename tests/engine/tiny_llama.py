"""Tiny models of the Llama family as GGUF files, and a slow forward that is not the model's own.

Weights are drawn from a seed. The reference works token by token in float64 loops, from the same
tensors after quantisation; nothing of `kvairlock.engine.llama` takes part in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, RopeScalingType, dequantize, quantize
from numpy.typing import NDArray

SEED = 20261101
F16, F32 = GGMLQuantizationType.F16, GGMLQuantizationType.F32
Q8 = GGMLQuantizationType.Q8_0

CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġ t", "1 2"]

Tensor = NDArray[np.float32]
Numbers = NDArray[np.float64]
Change = Callable[[GGUFWriter], None]


def byte_names() -> list[str]:
    """What the 256 bytes are called in byte-level BPE, in the order of the bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(b) if b in printable else chr(256 + others.index(b)) for b in range(256)]


@dataclass(frozen=True)
class Tiny:
    """What a tiny model is like; `write` makes a file of it."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 16
    inner: int = 96
    context: int = 96
    kind: GGMLQuantizationType = F32
    tied: bool = True
    stretch: float = 1.0
    rope_factors: bool = False
    seed: int = SEED
    words: str = "smollm"
    tokens: list[str] = field(
        default_factory=lambda: CONTROLS + byte_names() + [m.replace(" ", "") for m in MERGES]
    )
    types: list[int] = field(default_factory=lambda: [3] * 3 + [1] * (256 + len(MERGES)))
    merges: list[str] = field(default_factory=lambda: MERGES)
    template: str | None = CHAT

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the file by name, before quantisation."""
        rng = np.random.default_rng(self.seed)

        def matrix(rows: int, columns: int) -> Tensor:
            return (rng.standard_normal((rows, columns)) / math.sqrt(columns)).astype(np.float32)

        def norm() -> Tensor:
            return (1 + rng.standard_normal(self.width) / 4).astype(np.float32)

        queries, keys = self.heads * self.head_width, self.kv_heads * self.head_width
        found = {"token_embd.weight": matrix(len(self.tokens), self.width)}
        for number in range(self.layers):
            layer = {
                "attn_norm": norm(),
                "attn_q": 3 * matrix(queries, self.width),
                "attn_k": 3 * matrix(keys, self.width),
                "attn_v": matrix(keys, self.width),
                "attn_output": matrix(self.width, queries),
                "ffn_norm": norm(),
                "ffn_gate": matrix(self.inner, self.width),
                "ffn_up": matrix(self.inner, self.width),
                "ffn_down": matrix(self.width, self.inner),
            }
            found |= {f"blk.{number}.{name}.weight": tensor for name, tensor in layer.items()}
        found["output_norm.weight"] = norm()
        if not self.tied:
            found["output.weight"] = matrix(len(self.tokens), self.width)
        if self.rope_factors:
            factors = rng.uniform(1, 8, self.head_width // 2)
            found["rope_freqs.weight"] = factors.astype(np.float32)
        return found

    def with_(self, **changes: object) -> Tiny:
        return replace(self, **changes)  # type: ignore[arg-type]

    def write(self, path: Path, change: Change = lambda writer: None) -> Path:
        """Write the model's file; `change` may say more in it."""
        writer = GGUFWriter(path, "llama")
        self._say_figures(writer)
        self._say_vocabulary(writer)
        change(writer)
        for name, tensor in self.tensors().items():
            kind = self.kind if tensor.ndim == 2 else F32
            writer.add_tensor(name, quantize(tensor, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def _say_figures(self, writer: GGUFWriter) -> None:
        writer.add_block_count(self.layers)
        writer.add_context_length(self.context)
        writer.add_embedding_length(self.width)
        writer.add_feed_forward_length(self.inner)
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.kv_heads)
        writer.add_key_length(self.head_width)
        writer.add_value_length(self.head_width)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_dimension_count(self.head_width)
        writer.add_rope_freq_base(500.0)
        if self.stretch != 1.0:
            writer.add_rope_scaling_type(RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(self.stretch)

    def _say_vocabulary(self, writer: GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(self.words)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        writer.add_token_merges(self.merges)
        writer.add_eos_token_id(2)
        writer.add_bos_token_id(1)
        if self.template is not None:
            writer.add_chat_template(self.template)


_DEEP = "{{" + "(" * 5000 + "1" + ")" * 5000 + "}}"
_NESTED = "{% for a in b %}" * 60 + "{% endfor %}" * 60
_ALIKE = ["a" * (number + 2) for number in range(2000)]
_TINY = Tiny(layers=1)
STRANGE = {
    "merge": _TINY.with_(
        tokens=[*_TINY.tokens, "aaaaaaa", "bbbbbbbbb"],
        types=[*_TINY.types, 1, 1],
        merges=["aaaaaaa bbbbbbbbb"],
    ),
    "deep": _TINY.with_(template=_DEEP),
    "nested": _TINY.with_(template=_NESTED),
    "alike": _TINY.with_(tokens=[*_TINY.tokens, *_ALIKE], types=[*_TINY.types, *[3] * len(_ALIKE)]),
}
"""Files that Python or a package has no room for, with errors that are no refusals: a merge longer
than all tokens, a template of too many parentheses or loops, names that begin too much alike."""
STRANGE_REASONS = {
    "merge": "its merges don't fit its tokens: aaaaaaa and bbbbbbbbb",
    "deep": "its chat template can't be read: ",
    "nested": "its chat template can't be read: ",
    "alike": "too many names of its control tokens begin alike",
}


class Reference:
    """The model in float64, one token after another, from its definition."""

    def __init__(self, tiny: Tiny) -> None:
        self.tiny = tiny
        self.tensors = {
            name: dequantize(quantize(tensor, tiny.kind), tiny.kind).astype(np.float64)
            if tensor.ndim == 2
            else tensor.astype(np.float64)
            for name, tensor in tiny.tensors().items()
        }

    def logits(self, tokens: Sequence[int]) -> Numbers:
        """The logits after each of the tokens: (tokens, vocab)."""
        keys: list[list[Numbers]] = [[] for _ in range(self.tiny.layers)]
        values: list[list[Numbers]] = [[] for _ in range(self.tiny.layers)]
        out = self.tensors.get("output.weight", self.tensors["token_embd.weight"])
        logits = []
        for position, token in enumerate(tokens):
            x = self.tensors["token_embd.weight"][token]
            for number in range(self.tiny.layers):
                x = x + self._attention(number, position, x, keys[number], values[number])
                x = x + self._feed(number, x)
            logits.append(out @ self._norm(x, "output_norm.weight"))
        return np.array(logits)

    def greedy(self, tokens: Sequence[int], count: int) -> list[int]:
        """The next tokens, each the likeliest."""
        found = list(tokens)
        for _ in range(count):
            found.append(int(self.logits(found)[-1].argmax()))
        return found[len(tokens) :]

    def _attention(
        self,
        number: int,
        position: int,
        x: Numbers,
        keys: list[Numbers],
        values: list[Numbers],
    ) -> Numbers:
        tiny = self.tiny
        normed = self._norm(x, f"blk.{number}.attn_norm.weight")
        q, k, v = (self.tensors[f"blk.{number}.attn_{part}.weight"] @ normed for part in "qkv")
        size = tiny.head_width
        keys.append(np.concatenate([self._turned(h, position) for h in k.reshape(-1, size)]))
        values.append(v)
        mixed = []
        for head in range(tiny.heads):
            query = self._turned(q[head * size : (head + 1) * size], position)
            first = head * tiny.kv_heads // tiny.heads * size
            scores = [query @ key[first : first + size] / math.sqrt(size) for key in keys]
            weights = [math.exp(score) for score in scores]
            parts = [
                weight / sum(weights) * value[first : first + size]
                for weight, value in zip(weights, values, strict=True)
            ]
            mixed.append(sum(parts))
        return self.tensors[f"blk.{number}.attn_output.weight"] @ np.concatenate(mixed)

    def _turned(self, head: Numbers, position: int) -> Numbers:
        factors = self.tensors.get("rope_freqs.weight", np.ones(len(head) // 2))
        turned = head.copy()
        for pair in range(len(head) // 2):
            wave = 500.0 ** (-2 * pair / len(head)) / self.tiny.stretch / factors[pair]
            a, b = head[2 * pair], head[2 * pair + 1]
            cos, sin = math.cos(position * wave), math.sin(position * wave)
            turned[2 * pair], turned[2 * pair + 1] = a * cos - b * sin, a * sin + b * cos
        return turned

    def _feed(self, number: int, x: Numbers) -> Numbers:
        normed = self._norm(x, f"blk.{number}.ffn_norm.weight")
        gate = self.tensors[f"blk.{number}.ffn_gate.weight"] @ normed
        up = self.tensors[f"blk.{number}.ffn_up.weight"] @ normed
        added: Numbers = self.tensors[f"blk.{number}.ffn_down.weight"] @ (
            gate / (1 + np.exp(-gate)) * up
        )
        return added

    def _norm(self, x: Numbers, name: str) -> Numbers:
        normed: Numbers = x / np.sqrt((x**2).mean() + 1e-5) * self.tensors[name]
        return normed
