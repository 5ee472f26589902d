"""llama.cpp as a contender, with its default settings; see `contender.py`.

Usage: contend_llama_cpp.py published|float32 WEIGHTS.gguf THREADS SEQUENCES TEXT.json
"""

import json
import sys
from contextlib import nullcontext
from pathlib import Path

from contender import answer_lines
from llama_cpp_model import LlamaCpp, in_float32


def main() -> None:
    precision, weights, threads, sequences, text = sys.argv[1:]
    published = Path(weights)
    with in_float32(published) if precision == "float32" else nullcontext(published) as file:
        model = LlamaCpp(file, threads=int(threads), sequences=int(sequences))
        answer_lines(model, json.loads(Path(text).read_text()))


if __name__ == "__main__":
    main()
