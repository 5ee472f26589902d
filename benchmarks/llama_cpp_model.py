"""llama.cpp as a function from tokens to logits: the reference for results, and for speed.

It is used through the C interface that llama-cpp-python binds, so that what is compared are logits,
and nothing of anybody's sampling. It runs in the environment that `script/golden` makes.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import llama_cpp
import numpy as np
from numpy.typing import NDArray
from pieces import Piece

PACKAGE = f"llama-cpp-python {llama_cpp.__version__}"
logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Attention:
    """How llama.cpp attends, in its own constants.

    Args:
        cache_type: How keys and values are kept.
        flash: Whether its fused kernel is used, which sums in half precision in part.
    """

    cache_type: int
    flash: int


BY_DEFAULT = Attention(llama_cpp.GGML_TYPE_F16, llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO)
IN_FLOAT32 = Attention(llama_cpp.GGML_TYPE_F32, llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED)


class LlamaCpp:
    """A GGUF file, computed by llama.cpp.

    Args:
        file: The weights.
        threads: Threads for prompts and for single steps.
        sequences: How many sequences its cache holds at once.
        tokens_max: The tokens of one sequence, and of one call.
        attention: How it attends.

    Raises:
        RuntimeError: The file can't be loaded.
    """

    def __init__(
        self,
        file: Path,
        *,
        threads: int,
        sequences: int = 1,
        tokens_max: int = 1024,
        attention: Attention = BY_DEFAULT,
    ) -> None:
        self._model = llama_cpp.llama_model_load_from_file(
            str(file).encode(), llama_cpp.llama_model_default_params()
        )
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = sequences * tokens_max
        settings.n_batch = tokens_max
        settings.n_seq_max = sequences
        settings.n_threads = settings.n_threads_batch = threads
        settings.type_k = settings.type_v = attention.cache_type
        settings.flash_attn_type = attention.flash
        self._context = llama_cpp.llama_init_from_model(self._model, settings)
        if not self._context:
            raise RuntimeError(f"llama.cpp can't load {file}")
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self._batch = llama_cpp.llama_batch_init(tokens_max, 0, 1)
        self.vocab_size: int = llama_cpp.llama_vocab_n_tokens(self._vocab)

    def forget(self) -> None:
        """Drop what the cache holds."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)

    def forward(self, pieces: Sequence[Piece]) -> NDArray[np.float32]:
        """The logits of the last token of each piece: (len(pieces), vocabulary).

        Raises:
            RuntimeError: llama.cpp refused them.
        """
        last = self._fill(pieces)
        failed = llama_cpp.llama_decode(self._context, self._batch)
        if failed:
            raise RuntimeError(f"llama_decode returned {failed}")
        return np.stack([self._logits(slot) for slot in last])

    def tokenize(self, text: str) -> list[int]:
        """The ids of a text; names of control tokens become these; BOS as the file says."""
        raw = text.encode()
        ids = (llama_cpp.llama_token * (len(raw) + 2))()
        count = llama_cpp.llama_tokenize(self._vocab, raw, len(raw), ids, len(ids), True, True)
        return list(ids[:count])

    def ends(self, token: int) -> bool:
        """Whether the model ends its answer with this token."""
        return bool(llama_cpp.llama_vocab_is_eog(self._vocab, token))

    def metadata(self, key: str) -> str:
        """One text of the file's metadata.

        Raises:
            KeyError: There is none with this key.
        """
        size = 1 << 16
        buffer = ctypes.create_string_buffer(size)
        if llama_cpp.llama_model_meta_val_str(self._model, key.encode(), buffer, size) < 0:
            raise KeyError(key)
        return buffer.value.decode()

    def _fill(self, pieces: Sequence[Piece]) -> list[int]:
        """Put the pieces into the batch; return the slots of their last tokens."""
        batch, slot, last = self._batch, 0, []
        for piece in pieces:
            for position, token in enumerate(piece.tokens, piece.start):
                batch.token[slot], batch.pos[slot] = token, position
                batch.n_seq_id[slot], batch.seq_id[slot][0] = 1, piece.sequence
                batch.logits[slot] = False
                slot += 1
            batch.logits[slot - 1] = True
            last.append(slot - 1)
        batch.n_tokens = slot
        return last

    def _logits(self, slot: int) -> NDArray[np.float32]:
        pointer = llama_cpp.llama_get_logits_ith(self._context, slot)
        return np.ctypeslib.as_array(pointer, (self.vocab_size,))


@contextmanager
def in_float32(file: Path) -> Iterator[Path]:
    """The same weights with every tensor in float32, converted by llama.cpp, while it is needed.

    With the quantised file llama.cpp rounds activations to 8 bits as well. With this one, and
    attention `IN_FLOAT32`, it computes in float32 throughout.

    Raises:
        RuntimeError: The file can't be converted.
    """
    how = llama_cpp.llama_model_quantize_default_params()
    how.ftype = llama_cpp.LLAMA_FTYPE_ALL_F32
    how.allow_requantize = True
    with TemporaryDirectory(prefix="kvairlock-f32-") as folder:
        target = Path(folder) / f"{file.stem}.F32.gguf"
        if llama_cpp.llama_model_quantize(str(file).encode(), str(target).encode(), how):
            raise RuntimeError(f"llama.cpp can't convert {file}")
        yield target
