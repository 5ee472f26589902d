"""The tokens that a GGUF file lists, and what each of them is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from kvairlock.engine.llama.file import GgufFile

BEGIN_KEY = "tokenizer.ggml.bos_token_id"
END_KEY = "tokenizer.ggml.eos_token_id"
TURN_END_KEY = "tokenizer.ggml.eot_token_id"
# Tokens that end a turn or a text, under the names that files of this family give them. A file
# names one or two of them, and a model that was tuned may answer with another.
END_NAMES = {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>"}
# In a shorter name there is no place for a mark that tells text from the token.
CONTROL_NAME_MIN = 2


def _alphabet() -> dict[str, int]:
    """The byte that each character of byte-level BPE stands for.

    Printable characters of Latin-1 stand for themselves; the rest follow from 256, in their order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {
        chr(256 + number): byte for number, byte in enumerate(others)
    }


BYTE_OF = _alphabet()


class TokenType(IntEnum):
    """What a token is for, as GGUF numbers it."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5


@dataclass(frozen=True, slots=True)
class Entries:
    """The tokens of a file.

    Args:
        names: What each token is called, by its id.
        types: What each is for, by its id.
        begin: The token that begins a text, if there is one.
        end: The token that ends a text, if there is one.
        prefix: What is put in front of each prompt: the token that begins a text, or nothing.
    """

    names: list[str]
    types: list[int]
    begin: int | None
    end: int | None
    prefix: tuple[int, ...]

    def of_type(self, kind: TokenType) -> dict[str, int]:
        """The ids of all tokens of one type, by name."""
        pairs = enumerate(zip(self.names, self.types, strict=True))
        return {name: token for token, (name, found) in pairs if found == kind}

    def controls(self, template: str, ends: frozenset[int]) -> dict[str, int]:
        """What no message may say: control tokens, and others that part or end turns.

        Converters call an added token user-defined if its tokenizer doesn't call it special, also
        where the chat template parts turns with it.

        Args:
            template: The source of the chat template.
            ends: Tokens that end an answer.
        """
        literal = self.of_type(TokenType.USER_DEFINED)
        parting = {
            name: token
            for name, token in literal.items()
            if token in ends or (name in template and not name.isspace())
        }
        return self.of_type(TokenType.CONTROL) | parting


def read_entries(file: GgufFile, begins: bool) -> Entries:
    """Read the tokens of a file.

    Args:
        file: The file.
        begins: Whether prompts begin with a token of their own if the file doesn't say.

    Raises:
        ModelUnusable: When the list doesn't hold together.
    """
    names = file.values("tokenizer.ggml.tokens", str)
    types = file.values("tokenizer.ggml.token_type", int)
    if len(types) != len(names):
        raise file.unusable(f"it has {len(names)} tokens and says the type of {len(types)}")
    if file.value("tokenizer.ggml.add_eos_token", bool, False):
        raise file.unusable("it ends each prompt with an end token, so no prompt can be continued")
    begin, end = (_token(file, key, names) for key in (BEGIN_KEY, END_KEY))
    prefix: tuple[int, ...] = ()
    if file.value("tokenizer.ggml.add_bos_token", bool, begins):
        if begin is None:
            raise file.unusable(f"it lacks {BEGIN_KEY}")
        prefix = (begin,)
    entries = Entries(names, types, begin, end, prefix)
    _require_readable(file, entries)
    return entries


def read_ends(file: GgufFile, entries: Entries) -> frozenset[int]:
    """Read which tokens end an answer.

    Raises:
        ModelUnusable: When the file names one that it doesn't have.
    """
    turn_end = _token(file, TURN_END_KEY, entries.names)
    said = {token for token in (entries.end, turn_end) if token is not None}
    controls = entries.of_type(TokenType.CONTROL)
    return frozenset(said | {controls[name] for name in END_NAMES & controls.keys()})


def require_marks_fit(file: GgufFile, controls: Mapping[str, int]) -> None:
    """Refuse control tokens whose names can't be told from text by a mark within them.

    Args:
        file: The file.
        controls: What no message may say.

    Raises:
        ModelUnusable: When one has too short a name.
    """
    if any(len(name) < CONTROL_NAME_MIN for name in controls):
        raise file.unusable("one of its control tokens has a name of less than two characters")


def _token(file: GgufFile, key: str, names: list[str]) -> int | None:
    if key not in file.metadata:
        return None
    token = file.value(key, int)
    if not 0 <= token < len(names):
        raise file.unusable(f"its {key} is {token}, and it has {len(names)} tokens")
    return token


def _require_readable(file: GgufFile, entries: Entries) -> None:
    """Every token that text is made of must have bytes."""
    characters = set("".join(entries.of_type(TokenType.NORMAL)))
    if not characters <= BYTE_OF.keys():
        raise file.unusable("some of its tokens are not written in the alphabet of byte-level BPE")
