"""Models are found by name or file; rows that can't be computed are refused before any write."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kvairlock.engine.cache import PagedCache
from kvairlock.engine.model import (
    Row,
    RowMismatch,
    UnknownModel,
    load,
    load_tokenizer,
    served_name,
)
from kvairlock.engine.sampling import greedy
from kvairlock.engine.store import ModelMissing
from tests.engine.tiny_llama import Tiny

MODEL = load("recall")
LAYOUT = MODEL.layout(16)


def row(tokens: int, start: int, pages: list[int]) -> Row:
    return Row(np.full(tokens, 97, np.int32), start, np.array(pages, np.int32))


def test_unknown_model_names_the_known_ones() -> None:
    message = r"unknown model 'llama'; known models: recall, smollm2, or the path of a \.gguf file"
    with pytest.raises(UnknownModel, match=message):
        load("llama")
    with pytest.raises(UnknownModel, match=message):
        load_tokenizer("llama")


def test_a_model_is_served_under_its_name_or_that_of_its_file() -> None:
    assert served_name("smollm2") == "smollm2"
    assert served_name("/models/Some.Q4_1.gguf") == "Some.Q4_1"


def test_a_file_is_loaded_by_its_path_under_its_name(tmp_path: Path) -> None:
    path = Tiny().write(tmp_path / "tiny.v1.gguf")
    model, tokenizer = load(str(path)), load_tokenizer(str(path))
    assert model.name == "tiny.v1"
    assert model.layout(16).model == f"tiny.v1@{model.revision}"
    assert model.context_tokens_max == Tiny().context
    assert model.vocab_size == tokenizer.vocab_size == len(Tiny().tokens)
    assert tokenizer.encode("hello").tolist() == model.tokenizer.encode("hello").tolist()


def test_a_published_model_that_was_not_fetched_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for loading in (load, load_tokenizer):
        with pytest.raises(ModelMissing, match="kvairlock models fetch smollm2"):
            loading("smollm2")


def run(program: str, *arguments: str) -> str:
    """What a program prints, in a process of its own."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_recall_needs_no_package_of_the_extra() -> None:
    program = (
        "import sys\nfrom kvairlock.engine.model import load, load_tokenizer\n"
        "load('recall'), load_tokenizer('recall')\n"
        "print(sorted({'gguf', 'jinja2', 'tokenizers'} & set(sys.modules)))"
    )
    assert run(program) == "[]\n"


def test_a_tokenizer_starts_no_threads_and_loads_no_weights(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom kvairlock.engine.model import load_tokenizer\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "tokens = load_tokenizer(sys.argv[1]).encode('hello we ' * 20000)\n"
        "after = len(os.listdir('/proc/self/task'))\n"
        "print(len(tokens), after - before, 'gguf' in sys.modules)"
    )
    path = Tiny().write(tmp_path / "tiny.gguf")
    assert run(program, str(path)).split()[1:] == ["0", "False"]


def test_byte_tokenizer_round_trip() -> None:
    tokenizer = load_tokenizer("recall")
    tokens = tokenizer.encode("a é")
    assert tokens.dtype == np.int32
    assert tokens.tolist() == [97, 32, 0xC3, 0xA9]
    assert tokenizer.decode(tokens) == "a é".encode()
    assert tokenizer.encode("").tolist() == []
    assert tokenizer.decode(tokens[:3]) == b"a \xc3"


def test_greedy_takes_the_largest_and_the_lowest_of_equals() -> None:
    logits = np.array([[0.0, 2.0, 1.0], [3.0, 1.0, 3.0]], np.float32)
    tokens = greedy(logits)
    assert tokens.tolist() == [1, 0]
    assert tokens.dtype == np.int32


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(17, 0, [0]), "17 tokens need 2 pages, got 1"),
        (row(1, 16, [0]), "17 tokens need 2 pages, got 1"),
        (row(0, 5, [0]), "0 tokens"),
        (row(1, -1, [0]), "start at -1"),
        (row(1, 0, [-1]), "leaves the cache of 4 pages"),
        (row(20, 0, [0, 4]), "leaves the cache of 4 pages"),
        (row(1, 8192, list(range(600))), "exceed the context of 8192"),
        (Row(np.array([256], np.int32), 0, np.array([0], np.int32)), "vocabulary of 256"),
        (Row(np.array([-1], np.int32), 0, np.array([0], np.int32)), "vocabulary of 256"),
    ],
)
def test_a_row_that_cannot_be_computed_stops_the_batch_before_any_write(
    bad: Row, message: str
) -> None:
    memory = np.full((4, LAYOUT.page_bytes), 0xFF, np.uint8)
    with pytest.raises(RowMismatch, match=message):
        MODEL.forward([row(3, 0, [2]), bad], PagedCache(memory, LAYOUT))
    assert (memory == 0xFF).all()


def test_a_cache_of_another_layout_is_refused() -> None:
    other = type(LAYOUT)("recall@0", 16, LAYOUT.layers)
    cache = PagedCache(np.zeros((1, other.page_bytes), np.uint8), other)
    with pytest.raises(ValueError, match="laid out for recall@0"):
        MODEL.forward([row(1, 0, [0])], cache)


def test_an_empty_batch_has_no_logits() -> None:
    cache = PagedCache(np.zeros((1, LAYOUT.page_bytes), np.uint8), LAYOUT)
    assert MODEL.forward([], cache).shape == (0, 256)
