"""Text to the tokens of a GGUF file and back: byte-level BPE, and control tokens kept apart.

`tokenizers` merges, but knows no control tokens here. Text is cut at the names of control tokens
first, and only the pieces between are merged. So one place decides which occurrence of a name is
the token, and which is text that looks like it: in a message a name is *broken* by marks before the
chat template sees it, so that it is not found, and then the marks are taken out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE

from kvairlock.engine.llama.entries import BYTE_OF, Entries, TokenType, read_ends, read_entries
from kvairlock.engine.llama.file import GgufFile
from kvairlock.engine.llama.template import ChatTemplate, read_template
from kvairlock.engine.llama.words import Words, read_words
from kvairlock.engine.tokenizer import ChatMessage, ConversationRefused

# Characters that may serve as marks: a plane of private use, which text rarely has any of.
MARKS = range(0xF0000, 0xFFFFE)


class Vocabulary:
    """The tokenizer of a GGUF file; see `kvairlock.engine.tokenizer.Tokenizer`.

    Bytes that the vocabulary has no token for are left out, as its reference does: SmolLM2 lacks a
    few control characters, and the lead bytes of planes in which nothing is assigned.

    Args:
        entries: Its tokens.
        end_tokens: Those that end an answer.
        merger: Turns text without control tokens into tokens.
        template: How conversations are written.
    """

    def __init__(
        self,
        entries: Entries,
        end_tokens: frozenset[int],
        merger: Tokenizer,
        template: ChatTemplate,
    ) -> None:
        self._entries = entries
        self._merger = merger
        self._template = template
        self._controls = entries.of_type(TokenType.CONTROL)
        self._control_name = _any_of(self._controls)
        self.vocab_size = len(entries.names)
        self.end_tokens = end_tokens

    def encode(self, text: str) -> NDArray[np.int32]:
        """The token ids of a text, int32 of shape (tokens,).

        Names of control tokens in it become these tokens.
        """
        return np.array([*self._entries.prefix, *self._tokens(text)], np.int32)

    def encode_chat(self, messages: Sequence[ChatMessage]) -> NDArray[np.int32]:
        """The token ids of a conversation, up to where the assistant's next turn begins.

        Names of control tokens in a message stay text.

        Raises:
            ConversationRefused: When the template has no form for these turns.
        """
        mark = _unused_mark(messages)
        broken = [
            ChatMessage(self._broken(message.role, mark), self._broken(message.content, mark))
            for message in messages
        ]
        return np.array(list(self._tokens(self._template.render(broken), mark)), np.int32)

    def decode(self, tokens: NDArray[np.int32]) -> bytes:
        """The bytes of some tokens; control tokens have none.

        Raises:
            ValueError: when a token is not in the vocabulary.
        """
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() < self.vocab_size:
            raise ValueError(f"tokens are 0..{self.vocab_size - 1}")
        return b"".join(self._bytes(token) for token in tokens.tolist())

    def _broken(self, text: str, mark: str) -> str:
        """The text with a mark behind every character of each control token's name."""
        return self._control_name.sub(lambda name: "".join(c + mark for c in name[0]), text)

    def _tokens(self, text: str, mark: str = "") -> Iterator[int]:
        """The tokens of a text; marks are no part of it."""
        done = 0
        for name in self._control_name.finditer(text):
            yield from self._merged(text[done : name.start()].replace(mark, ""))
            yield self._controls[name[0]]
            done = name.end()
        yield from self._merged(text[done:].replace(mark, ""))

    def _merged(self, text: str) -> list[int]:
        # As a batch of one: other threads go on meanwhile, which `encode` does not let them.
        return self._merger.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def _bytes(self, token: int) -> bytes:
        name, kind = self._entries.names[token], self._entries.types[token]
        if kind == TokenType.NORMAL:
            return bytes(BYTE_OF[character] for character in name)
        return name.encode() if kind == TokenType.USER_DEFINED else b""


def read_vocabulary(file: GgufFile) -> Vocabulary:
    """Read the tokenizer of a file, without its weights.

    Raises:
        ModelUnusable: When it is of another kind than byte-level BPE, cuts words in a way that is
            not known here, or doesn't hold together.
    """
    words = read_words(file)
    entries = read_entries(file, words.begins)
    merger = _merger(file, words, entries)
    spoken = {"bos_token": entries.begin, "eos_token": entries.end}
    names = {called: entries.names[token] for called, token in spoken.items() if token is not None}
    return Vocabulary(entries, read_ends(file, entries), merger, read_template(file, names))


def _merger(file: GgufFile, words: Words, entries: Entries) -> Tokenizer:
    ids = {name: token for token, name in enumerate(entries.names)}
    merges = [merge.partition(" ") for merge in file.values("tokenizer.ggml.merges", str)]
    pairs = [(left, right) for left, _, right in merges]
    try:
        merger = Tokenizer(BPE(ids, pairs, ignore_merges=words.whole))
    except Exception as error:  # the package raises nothing narrower
        raise file.unusable(f"its merges don't fit its tokens: {error}") from None
    merger.pre_tokenizer = words.cut
    literal = entries.of_type(TokenType.USER_DEFINED)
    merger.add_tokens([AddedToken(name, normalized=False) for name in literal])
    return merger


def _any_of(names: Iterable[str]) -> re.Pattern[str]:
    """Finds each of some names, the longest first; nothing if there are none."""
    longest_first = sorted(names, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _unused_mark(messages: Sequence[ChatMessage]) -> str:
    used = set("".join(message.role + message.content for message in messages))
    for mark in map(chr, MARKS):
        if mark not in used:
            return mark
    raise ConversationRefused("a conversation can't use every character of private use")
