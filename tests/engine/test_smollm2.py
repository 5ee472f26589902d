"""SmolLM2 itself: it answers in English, and nothing that a node may do changes what it answers."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvairlock.engine.llama.model import Llama
from kvairlock.engine.model import load, load_tokenizer
from kvairlock.engine.tokenizer import ChatMessage, Tokenizer
from tests.engine.generating import (
    PAGE_TOKENS,
    Tokens,
    answer,
    answers_in_one_batch,
    go_on,
    pool,
    prefill,
)

# These have no token of their own in SmolLM2's vocabulary, and neither have planes 4 to 11.
WITHOUT_TOKEN = "\x04\x06\x13\x14\x16\x1d"
CHARACTERS = st.characters(
    max_codepoint=0x3FFFF, exclude_categories=["Cs"], exclude_characters=WITHOUT_TOKEN
)
NAMED = re.compile(r"<[^<>\s]+>")
"""What names of control tokens look like: a raw prompt may say them, and they have no bytes."""
COUNTRIES = ("France", "Germany")
QUESTIONS = (
    "What is the capital of France?",
    "Name three colours of the rainbow.",
    "Why is the sky blue? Answer in one sentence.",
)


@pytest.fixture(scope="module")
def tokenizer(smollm2_file: Path) -> Tokenizer:
    return load_tokenizer(str(smollm2_file))


@pytest.fixture(scope="module")
def model(smollm2_file: Path) -> Llama:
    model = load(str(smollm2_file))
    assert isinstance(model, Llama)
    return model


def asked(tokenizer: Tokenizer, question: str) -> Tokens:
    return tokenizer.encode_chat([ChatMessage("user", question)])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(text=st.text(CHARACTERS).filter(lambda text: not NAMED.search(text)))
def test_every_text_comes_back_byte_for_byte(text: str, tokenizer: Tokenizer) -> None:
    """Save for names of control tokens, which Hypothesis finds in the modules that are loaded."""
    assert tokenizer.decode(tokenizer.encode(text)) == text.encode()


def test_a_turn_ends_with_the_token_that_the_model_was_tuned_for(tokenizer: Tokenizer) -> None:
    assert tokenizer.end_tokens == set(tokenizer.encode("<|im_end|><|endoftext|>").tolist())


def test_it_answers_a_question_in_english(model: Llama) -> None:
    tokens = answer(model, asked(model.tokenizer, QUESTIONS[0]), 12)
    text = model.tokenizer.decode(np.array(tokens, np.int32)).decode()
    assert text.startswith("The capital of France is Paris.")


def test_a_conversation_that_goes_on_reuses_its_own_pages(model: Llama) -> None:
    turns = [ChatMessage("user", QUESTIONS[0]), ChatMessage("assistant", "Paris.")]
    first = model.tokenizer.encode_chat(turns[:1])
    whole = model.tokenizer.encode_chat([*turns, ChatMessage("user", "Which river is it on?")])
    assert whole[: len(first)].tolist() == first.tolist()
    cache = pool(model, 8)
    pages = np.array([6, 1, 4, 0, 2, 7, 3, 5], np.int32)
    prefill(model, cache, first, pages, 256)
    kept = len(first) // PAGE_TOKENS * PAGE_TOKENS
    prefill(model, cache, whole, pages, 256, start=kept)
    assert go_on(model, cache, whole, pages, 12) == answer(model, whole, 12)


@pytest.mark.parametrize("chunk", [16, 37])
def test_chunks_change_no_token(model: Llama, chunk: int) -> None:
    tokens = asked(model.tokenizer, QUESTIONS[2])
    assert answer(model, tokens, 16, chunk) == answer(model, tokens, 16)


def test_requests_that_join_and_leave_change_no_token(model: Llama) -> None:
    prompts = [asked(model.tokenizer, question) for question in QUESTIONS]
    expected = [answer(model, tokens, 10) for tokens in prompts]
    assert answers_in_one_batch(model, prompts, 10, chunk=32) == expected
    assert len({tuple(tokens) for tokens in expected}) == 3


def test_the_pages_decide_whose_question_is_answered(model: Llama) -> None:
    own, foreign = (asked(model.tokenizer, f"What is the capital of {c}?") for c in COUNTRIES)
    assert len(own) == len(foreign)
    cache = pool(model, 10)
    tables = [np.arange(5, dtype=np.int32), np.arange(5, 10, dtype=np.int32)]
    for tokens, pages in zip((own, foreign), tables, strict=True):
        prefill(model, cache, tokens, pages, 256)
    answers = [go_on(model, cache, own, pages, 12) for pages in tables]
    assert answers == [answer(model, own, 12), answer(model, foreign, 12)]
    assert answers[0] != answers[1]
