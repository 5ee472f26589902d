"""SmolLM2 answers as a reference that is not kvairlock does: same ids, same tokens, same logits.

The golden answers were written by llama.cpp, computing in float32 (`script/golden`).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kvairlock.engine.cache import PagedCache
from kvairlock.engine.model import Model, Row, Tokenizer, load, load_tokenizer
from kvairlock.engine.tokenizer import ChatMessage

ROOT = Path(__file__).resolve().parents[2]
REFERENCE_PYTHON = ROOT / ".cache/reference/bin/python"
GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden/smollm2.json").read_text())
ANSWERS: list[dict[str, Any]] = GOLDEN["answers"]
PAGE_TOKENS = 16
# Float32 sums in another order, and four digits in the file: 1e-4 was measured. Margins between
# the best two tokens are at least 0.02 (`benchmarks/golden.py`).
LOGITS_OFF_MAX = 5e-4


def named(*names: str) -> list[dict[str, Any]]:
    return [answer for answer in ANSWERS if answer["name"] in names]


@pytest.fixture(scope="module")
def tokenizer(smollm2_file: Path) -> Tokenizer:
    return load_tokenizer(str(smollm2_file))


@pytest.fixture(scope="module")
def model(smollm2_file: Path) -> Model:
    return load(str(smollm2_file))


def test_the_golden_answers_are_those_of_these_weights(
    smollm2_file: Path, tokenizer: Tokenizer
) -> None:
    assert GOLDEN["weights_sha256"] == sha256(smollm2_file.read_bytes()).hexdigest()
    assert GOLDEN["vocab_size"] == tokenizer.vocab_size


@pytest.mark.parametrize("case", GOLDEN["texts"], ids=lambda case: ascii(case["text"]))
def test_texts_have_the_ids_of_the_reference(tokenizer: Tokenizer, case: dict[str, Any]) -> None:
    assert tokenizer.encode(case["text"]).tolist() == case["tokens"]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer["name"])
def test_prompts_have_the_ids_of_the_reference(
    tokenizer: Tokenizer, answer: dict[str, Any]
) -> None:
    if "messages" in answer:
        tokens = tokenizer.encode_chat([ChatMessage(**turn) for turn in answer["messages"]])
    else:
        tokens = tokenizer.encode(answer["prompt"])
    assert tokens.tolist() == answer["tokens"]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer["name"])
def test_an_answer_ends_only_at_an_end_token(tokenizer: Tokenizer, answer: dict[str, Any]) -> None:
    *before, last = answer["greedy"]
    assert not tokenizer.end_tokens & set(before)
    assert len(answer["greedy"]) == 32 or last in tokenizer.end_tokens


@pytest.mark.parametrize("name", ["capital", "chat of several turns", "long chat"])
def test_alone_it_answers_as_the_reference(model: Model, name: str) -> None:
    require_answers(model, named(name), chunk_tokens=1024)


@pytest.mark.parametrize("chunk_tokens", [64, 1024])
def test_in_one_batch_they_answer_as_the_reference(model: Model, chunk_tokens: int) -> None:
    require_answers(model, ANSWERS, chunk_tokens)


@pytest.mark.slow
@pytest.mark.reference
@pytest.mark.timeout(600)
def test_the_reference_says_it_again(smollm2_file: Path, tmp_path: Path) -> None:
    if not REFERENCE_PYTHON.exists():
        pytest.skip("needs llama.cpp in an environment of its own: script/reference makes it")
    target = tmp_path / "again.json"
    maker = ROOT / "benchmarks" / "golden.py"
    subprocess.run([REFERENCE_PYTHON, maker, smollm2_file, target], check=True)
    again = json.loads(target.read_text())
    assert [answer["greedy"] for answer in again["answers"]] == [a["greedy"] for a in ANSWERS]
    for answer, golden in zip(again["answers"], ANSWERS, strict=True):
        for step, best in golden["scores"].items():
            other = dict(answer["scores"][step])
            near = {token: logit for token, logit in best if token in other}
            assert [other[token] for token in near] == pytest.approx(
                list(near.values()), abs=LOGITS_OFF_MAX
            )
    for part in ("weights_sha256", "vocab_size", "texts"):
        assert again[part] == GOLDEN[part]


class Answering:
    """One request: its tokens so far, and what was drawn of them with which logits."""

    def __init__(self, prompt: Sequence[int], pages: NDArray[np.int32]) -> None:
        self.greedy: list[int] = []
        self.logits: list[NDArray[np.float32]] = []
        self._tokens = list(prompt)
        self._pages = pages
        self._computed = 0

    def row(self, chunk_tokens: int) -> Row:
        new = self._tokens[self._computed : self._computed + chunk_tokens]
        row = Row(np.array(new, dtype=np.int32), self._computed, self._pages)
        self._computed = row.end
        return row

    def take(self, logits: NDArray[np.float32]) -> None:
        if self._computed == len(self._tokens):
            self.greedy.append(int(logits.argmax()))
            self.logits.append(logits)
            self._tokens.append(self.greedy[-1])


def require_answers(model: Model, golden: list[dict[str, Any]], chunk_tokens: int) -> None:
    """Compute the answers together, each as long as its golden one, and compare both."""
    for expected, request in zip(golden, computed(model, golden, chunk_tokens), strict=True):
        assert request.greedy == expected["greedy"], expected["name"]
        for step, best in expected["scores"].items():
            ids, logits = zip(*best, strict=True)
            found = request.logits[int(step)][list(ids)]
            np.testing.assert_allclose(found, logits, rtol=0, atol=LOGITS_OFF_MAX)


def computed(model: Model, golden: list[dict[str, Any]], chunk_tokens: int) -> list[Answering]:
    layout = model.layout(PAGE_TOKENS)
    needed = [layout.pages_for(len(a["tokens"]) + len(a["greedy"])) for a in golden]
    memory = np.zeros((sum(needed), layout.page_bytes), dtype=np.uint8)
    tables = np.split(np.arange(len(memory), dtype=np.int32), np.cumsum(needed)[:-1])
    requests = [Answering(a["tokens"], table) for a, table in zip(golden, tables, strict=True)]
    lengths = [len(answer["greedy"]) for answer in golden]
    cache = PagedCache(memory, layout)
    while waiting := [r for r, n in zip(requests, lengths, strict=True) if len(r.greedy) < n]:
        rows = [request.row(chunk_tokens) for request in waiting]
        for request, logits in zip(waiting, model.forward(rows, cache), strict=True):
            request.take(logits)
    return requests
