"""A file that means something else than what is computed is refused, and the refusal says what."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFWriter, RopeScalingType

from kvairlock.engine import model as models
from kvairlock.engine.llama import weights
from kvairlock.engine.llama.model import Llama
from kvairlock.engine.unusable import ModelUnusable
from tests.engine.tiny_llama import STRANGE, STRANGE_REASONS, Change, Tiny

TINY = Tiny(layers=1)


def says(key: str, value: object) -> Change:
    """A change that says one value more, or another in place of what was said."""

    def change(writer: GGUFWriter) -> None:
        writer.kv_data[0].pop(key, None)
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)

    return change


def holds(name: str, *shape: int) -> Change:
    """A change that adds a tensor."""
    return lambda writer: writer.add_tensor(name, np.zeros(shape, np.float32))


def packed_as(kind: GGMLQuantizationType) -> Change:
    """A change that adds a tensor for the output, in a number format."""
    packed = np.zeros((len(TINY.tokens), TINY.width), np.float64)
    return lambda writer: writer.add_tensor("output.weight", packed, raw_dtype=kind)


def yarn(writer: GGUFWriter) -> None:
    writer.add_rope_scaling_type(RopeScalingType.YARN)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (says("general.architecture", "qwen2"), "architecture is 'qwen2', and only 'llama'"),
        (says("split.count", 3), "one part of several"),
        (says("llama.expert_count", 8), "it has llama.expert_count, which is not understood"),
        (says("llama.attention.sliding_window", 512), "llama.attention.sliding_window"),
        (yarn, "scales positions by 'yarn'; understood are none and linear, and the way of"),
        (
            says("llama.rope.scaling.type", "llama3"),
            "by 'llama3'; .* the way of Llama 3, which is no such word but the tensor rope_freqs",
        ),
        (says("llama.block_count", None), "it lacks llama.block_count"),
        (says("llama.block_count", "2"), "llama.block_count is '2', which should be int"),
        (says("llama.block_count", 0), "llama.block_count is 0"),
        (says("llama.block_count", 2), r"it lacks the tensor blk.1.attn_k.weight and 8 more"),
        (says("llama.block_count", 2**31), "2147483648 layers can't be in 11 tensors"),
        (says("llama.feed_forward_length", [96, 48]), "is a list of 2, which should be int"),
        (says("llama.feed_forward_length", 95), r"gate.weight has the shape \(96, 64\)"),
        (says("llama.rope.freq_base", 0.0), "llama.rope.freq_base is 0.0"),
        (says("llama.rope.dimension_count", 8), "is 8, which should be the even head size 16"),
        (says("llama.attention.value_length", 32), "is 32, which should be the even head size"),
        (says("llama.attention.head_count_kv", 3), "don't divide: 4 query heads, 3 key heads"),
        (holds("blk.0.attn_q.bias", 64), "blk.0.attn_q.bias, which no Llama model computes with"),
        (holds("blk.0.ffn_gate_inp.weight", 8, 64), "it holds blk.0.ffn_gate_inp.weight"),
        (holds("output.weight", 265, 64), r"output.weight has the shape \(265, 64\)"),
        (holds("rope_freqs.weight", 8), "rope_freqs.weight stretches a wavelength by nothing"),
        (packed_as(GGMLQuantizationType.F64), "output.weight is in F64, which can't be read here"),
        (says("tokenizer.ggml.model", "llama"), "tokenizer is of the kind 'llama', and only byte"),
        (says("tokenizer.ggml.pre", "qwen2"), "cuts words as 'qwen2'; understood are gpt-2, llama"),
        (says("tokenizer.ggml.pre", None), "it lacks tokenizer.ggml.pre"),
        (says("tokenizer.ggml.add_eos_token", True), "ends each prompt with an end token"),
        (says("tokenizer.ggml.eos_token_id", 266), "eos_token_id is 266, and it has 266 tokens"),
        (says("tokenizer.ggml.token_type", [1]), "has 266 tokens and says the type of 1"),
        (
            says("tokenizer.ggml.tokens", [1, 2]),
            "tokenizer.ggml.tokens should hold nothing but str",
        ),
        (says("tokenizer.ggml.merges", ["x yz"]), "its merges don't fit its tokens"),
        (says("tokenizer.chat_template", "{% for %}"), "its chat template can't be read"),
    ],
)
def test_a_file_that_means_something_else_is_refused(
    change: Change, reason: str, tmp_path: Path
) -> None:
    path = TINY.write(tmp_path / "model.gguf", change)
    with pytest.raises(ModelUnusable, match=f"model.gguf can't be served: .*{reason}"):
        Llama(path, "model")


def test_heads_that_do_not_divide_the_width_need_a_size_of_their_own(tmp_path: Path) -> None:
    def change(writer: GGUFWriter) -> None:
        writer.kv_data[0].pop("llama.attention.key_length")
        says("llama.attention.head_count", 3)(writer)
        says("llama.attention.head_count_kv", 1)(writer)

    path = TINY.write(tmp_path / "model.gguf", change)
    with pytest.raises(ModelUnusable, match="width of 64 doesn't divide into 3 heads"):
        Llama(path, "model")


@pytest.mark.parametrize(
    ("tiny", "reason"),
    [
        (
            TINY.with_(tokens=["日本", *TINY.tokens[1:]], types=[1] * 266),
            "alphabet of byte-level BPE",
        ),
        (TINY.with_(tokens=["x", *TINY.tokens[1:]]), "a name of less than two characters"),
        (
            TINY.with_(tokens=[*TINY.tokens, "語"], types=[*TINY.types, 4], template="語"),
            "a name of less than two characters",
        ),
    ],
)
def test_tokens_that_nobody_could_find_or_read_are_refused(
    tiny: Tiny, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelUnusable, match=reason):
        Llama(tiny.write(tmp_path / "model.gguf"), "model")


@pytest.mark.parametrize("kind", STRANGE)
def test_what_there_is_no_room_for_is_refused_all_the_same(kind: str, tmp_path: Path) -> None:
    path = STRANGE[kind].write(tmp_path / "model.gguf")
    with pytest.raises(ModelUnusable, match=f"model.gguf can't be served: {STRANGE_REASONS[kind]}"):
        Llama(path, "model")


def test_weights_that_memory_cannot_hold_are_refused_with_both_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = TINY.with_(width=1024, inner=1024).write(tmp_path / "model.gguf")
    monkeypatch.setattr(weights, "memory_free_bytes", lambda: 5 << 20)
    with pytest.raises(ModelUnusable, match="take 13 MiB as float32, and 5 MiB of memory are free"):
        Llama(path, "model")


@pytest.mark.parametrize("load", [models.load, models.load_tokenizer])
def test_an_installation_without_the_extra_says_how_to_get_it(
    load: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "find_spec", lambda name: None if name == "jinja2" else object())
    with pytest.raises(
        ModelUnusable, match=r"jinja2 is not there; pip install 'kvairlock\[llama\]'"
    ):
        load("model.gguf")
