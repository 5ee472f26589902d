"""Writes the golden answers: what a reference that is not kvairlock makes of the same weights.

    prompts.py -> llama.cpp, float32 -> ids of the prompt, greedy tokens, the best logits

llama.cpp tokenises, renders no more than the file's own chat template (through its Python binding),
and computes in float32 throughout, on one thread. The same machine writes the same file each time;
another one may differ in the last digits of the logits.

Usage: golden.py WEIGHTS.gguf TARGET.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp.llama_chat_format import Jinja2ChatFormatter
from llama_cpp_model import IN_FLOAT32, PACKAGE, LlamaCpp, in_float32
from numpy.typing import NDArray
from pieces import Piece
from prompts import CONVERSATIONS, PROMPTS, TEXTS, Conversation

STEPS = 32
SCORED_EVERY = 8
SCORED_BEST = 5
# Float32 sums in another order move logits by about 1e-4: what is this far apart is no tie.
MARGIN_MIN = 0.02


def main() -> None:
    weights, target = map(Path, sys.argv[1:])
    with in_float32(weights) as file:
        model = LlamaCpp(file, threads=1, attention=IN_FLOAT32)
        answers = list(answer_all(model))
        texts = [{"text": text, "tokens": model.tokenize(text)} for text in TEXTS]
    golden = {
        "reference": f"llama.cpp in float32 ({PACKAGE})",
        "weights_sha256": sha256(weights.read_bytes()).hexdigest(),
        "vocab_size": model.vocab_size,
        "texts": texts,
        "answers": answers,
    }
    target.write_text(in_lines(golden) + "\n")


def answer_all(model: LlamaCpp) -> Iterator[dict[str, Any]]:
    """Every prompt and conversation with what the model answers."""
    for name, prompt in PROMPTS.items():
        yield {"name": name, "prompt": prompt, **answer(model, name, model.tokenize(prompt))}
    for name, messages in CONVERSATIONS.items():
        tokens = model.tokenize(rendered(model, messages))
        yield {"name": name, "messages": messages, **answer(model, name, tokens)}


def rendered(model: LlamaCpp, messages: Conversation) -> str:
    """A conversation as the file's chat template writes it, up to the assistant's turn."""
    template = model.metadata("tokenizer.chat_template")
    formatter = Jinja2ChatFormatter(template, eos_token="", bos_token="")
    prompt: str = formatter(messages=messages).prompt
    return prompt


def answer(model: LlamaCpp, name: str, prompt: list[int]) -> dict[str, Any]:
    """Greedy tokens until the model ends, at most STEPS, with margins and the best logits.

    Raises:
        SystemExit: Two tokens are so near to each other that the answer is not golden.
    """
    model.forget()
    greedy: list[int] = []
    margins: list[float] = []
    scores: dict[str, list[tuple[int, float]]] = {}
    new, start = prompt, 0
    while len(greedy) < STEPS and not (greedy and model.ends(greedy[-1])):
        ranked = best(model.forward([Piece(0, start, new)])[0])
        if len(greedy) % SCORED_EVERY == 0:
            scores[str(len(greedy))] = ranked
        margins.append(round(ranked[0][1] - ranked[1][1], 4))
        start += len(new)
        new = [ranked[0][0]]
        greedy += new
    if min(margins) < MARGIN_MIN:
        raise SystemExit(f"prompt {name!r} has a near tie ({min(margins)}): use another one")
    return {
        "tokens": prompt,
        "greedy": greedy,
        "margin": min(margins),
        "scores": scores,
    }


def best(logits: NDArray[np.float32]) -> list[tuple[int, float]]:
    """The ids and logits of the best tokens, the best first."""
    ids = np.argsort(-logits, kind="stable")[:SCORED_BEST]
    return [(int(token), round(float(logits[token]), 4)) for token in ids]


def in_lines(value: Any, indent: str = "") -> str:
    """JSON with a line for each entry of an object and each object in a list."""
    deeper = f"{indent} "
    if isinstance(value, dict):
        entries = [f"{json.dumps(key)}: {in_lines(part, deeper)}" for key, part in value.items()]
        opened, closed = "{}"
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        entries = [in_lines(part, deeper) for part in value]
        opened, closed = "[]"
    else:
        return json.dumps(value)
    lines = f",\n{deeper}".join(entries)
    return f"{opened}\n{deeper}{lines}\n{indent}{closed}"


if __name__ == "__main__":
    main()
