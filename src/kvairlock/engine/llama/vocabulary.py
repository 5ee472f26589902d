"""Text to the tokens of a GGUF file and back: byte-level BPE, and control tokens kept apart.

`tokenizers` merges, but knows no control tokens here. Text is cut at the names of control tokens
first, and only the pieces between are merged. So one place decides which occurrence of a name is
the token, and which is text that looks like it: in a message a name is *broken* by marks before the
chat template sees it, so that it is not found, and then the marks are taken out. What a template
makes a name of otherwise, such as two messages with nothing between them, is noticed, because turns
that say nothing must come out with the same control tokens.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE

from kvairlock.engine.llama.entries import (
    BYTE_OF,
    Entries,
    TokenType,
    read_ends,
    read_entries,
    require_marks_fit,
)
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
        controls: The ids of those that no message may say, by name.
        end_tokens: Those that end an answer.
        merger: Turns text without control tokens into tokens.
        template: How conversations are written.
    """

    def __init__(
        self,
        entries: Entries,
        controls: Mapping[str, int],
        end_tokens: frozenset[int],
        merger: Tokenizer,
        template: ChatTemplate,
    ) -> None:
        self._entries = entries
        self._merger = merger
        self._template = template
        self._controls = controls
        self._control_name = _any_of(self._controls)
        self._never_marks = frozenset("".join(controls) + template.source)
        self.vocab_size = len(entries.names)
        self.end_tokens = end_tokens

    def encode(self, text: str) -> NDArray[np.int32]:
        """The token ids of a text, int32 of shape (tokens,).

        Names of control tokens in it become these tokens.
        """
        return np.array([*self._entries.prefix, *self._tokens(text, self._names(text))], np.int32)

    def encode_chat(self, messages: Sequence[ChatMessage]) -> NDArray[np.int32]:
        """The token ids of a conversation, up to where the assistant's next turn begins.

        Names of control tokens in a message stay text.

        Raises:
            ConversationRefused: When the template has no form for these turns, or makes a control
                token of what they say.
        """
        mark = self._unused_mark(messages)
        broken = [
            ChatMessage(self._broken(message.role, mark), self._broken(message.content, mark))
            for message in messages
        ]
        mute = [ChatMessage(turn.role, _mute(turn.content, mark)) for turn in broken]
        text, outline = self._template.render(broken), self._template.render(mute)
        names = self._names(text)
        if [name[0] for name in names] != [name[0] for name in self._names(outline)]:
            raise ConversationRefused("it would make a control token of what messages say")
        return np.array(list(self._tokens(text, names, mark)), np.int32)

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

    def _unused_mark(self, messages: Sequence[ChatMessage]) -> str:
        used = self._never_marks.union(*(turn.role + turn.content for turn in messages))
        for mark in map(chr, MARKS):
            if mark not in used:
                return mark
        raise ConversationRefused("a conversation can't use every character of private use")

    def _names(self, text: str) -> list[re.Match[str]]:
        """Where the names of control tokens are."""
        return list(self._control_name.finditer(text))

    def _tokens(self, text: str, names: Iterable[re.Match[str]], mark: str = "") -> Iterator[int]:
        """The tokens of a text, cut at names of control tokens; marks are no part of it."""
        done = 0
        for name in names:
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
    spoken = {"bos_token": entries.begin, "eos_token": entries.end}
    names = {called: entries.names[token] for called, token in spoken.items() if token is not None}
    template, ends = read_template(file, names), read_ends(file, entries)
    controls = entries.controls(template.source, ends)
    require_marks_fit(file, controls)
    merger = _merger(file, words, entries, controls)
    try:
        return Vocabulary(entries, controls, ends, merger, template)
    except RecursionError:
        raise file.unusable("too many names of its control tokens begin alike") from None


def _merger(
    file: GgufFile, words: Words, entries: Entries, controls: Mapping[str, int]
) -> Tokenizer:
    # Merging must never arrive at a control token, whatever the merges or whole words are.
    ids = {name: n for n, name in enumerate(entries.names) if name not in controls}
    merges = [merge.partition(" ") for merge in file.values("tokenizer.ggml.merges", str)]
    pairs = [(left, right) for left, _, right in merges]
    # Looked for here: the package panics where a merge is longer than all tokens.
    strange = [pair for pair in pairs if not {*pair, "".join(pair)} <= ids.keys()]
    if strange:
        raise file.unusable(f"its merges don't fit its tokens: {' and '.join(strange[0])}")
    # One text at a time needs no pool of threads, which the package starts unless it is told so.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    merger = Tokenizer(BPE(ids, pairs, ignore_merges=words.whole))
    merger.pre_tokenizer = words.cut
    literal = entries.of_type(TokenType.USER_DEFINED).keys() - controls.keys()
    merger.add_tokens([AddedToken(name, normalized=False) for name in sorted(literal)])
    return merger


def _any_of(names: Iterable[str]) -> re.Pattern[str]:
    """Finds each of some names, the longest first; nothing if there are none."""
    ordered = sorted(names)
    return re.compile(_tree(ordered) if ordered else r"(?!)")


def _tree(names: list[str]) -> str:
    """A pattern of sorted names that tries what several begin with only once."""
    common = _beginning(names[0], names[-1])
    rests = [name[len(common) :] for name in names]
    branches = [_tree(list(some)) for _, some in groupby(filter(None, rests), itemgetter(0))]
    if not branches:
        return re.escape(common)
    return f"{re.escape(common)}(?:{'|'.join(branches)}){'' if all(rests) else '?'}"


def _beginning(one: str, other: str) -> str:
    """What two names both begin with."""
    pairs = zip(one, other, strict=False)
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _mute(content: str, mark: str) -> str:
    """What stands for a message that says nothing; templates may look whether one is blank."""
    return mark if content.strip() else content
