"""How text is cut into words before it is merged: a file names one of a few ways.

A cut at another place gives other tokens, and so another answer; a way that is not known here is
refused. The patterns are those that the models were trained with.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

from kvairlock.engine.llama.file import GgufFile

MODEL = "gpt2"
LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class Words:
    """How text is cut into words before merging.

    Args:
        cut: Cuts it, and writes bytes in the alphabet of byte-level BPE.
        whole: Whether a word that is a token itself is taken without merging.
        begins: Whether a text begins with a token of its own, unless the file says otherwise.
    """

    cut: PreTokenizer
    whole: bool = False
    begins: bool = False


def _byte_level(use_regex: bool) -> ByteLevel:
    return ByteLevel(add_prefix_space=False, use_regex=use_regex)


_LLAMA3 = Words(
    Sequence([Split(Regex(LLAMA3_WORDS), "isolated"), _byte_level(use_regex=False)]),
    whole=True,
    begins=True,
)
WORDS = {
    "gpt-2": Words(_byte_level(use_regex=True)),
    "smollm": Words(Sequence([Digits(individual_digits=True), _byte_level(use_regex=True)])),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
}


def read_words(file: GgufFile) -> Words:
    """Read how a file's text is cut.

    Raises:
        ModelUnusable: When it is not byte-level BPE, or cuts words in a way that is not known here.
    """
    model = file.value("tokenizer.ggml.model", str)
    if model != MODEL:
        raise file.unusable(
            f"its tokenizer is of the kind {model!r}, and only byte-level BPE ({MODEL!r}) is "
            "understood; take a model such as Llama 3 or SmolLM2"
        )
    words = file.value("tokenizer.ggml.pre", str)
    if words not in WORDS:
        known = ", ".join(sorted(WORDS))
        raise file.unusable(f"its tokenizer cuts words as {words!r}; understood are {known}")
    return WORDS[words]
