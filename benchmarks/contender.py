"""One contender's process: it measures what it is told to, one line of JSON in, one line out.

    {"measure": "prefill", "tokens": 256}             -> {"seconds": 0.61}
    {"measure": "decode", "sequences": 8, "steps": 32} -> {"seconds": 1.93}

Contenders keep running side by side and are asked in turn, so that whatever else the machine does
at the time meets all of them. What is timed is the same code for all: from token ids to the next
token ids, the choice of the best logit included.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from time import perf_counter

from pieces import Computer, Piece

# Where a decode measurement begins: it attends to this many tokens at first.
DECODE_FROM_TOKENS = 128


def answer_lines(computer: Computer, text: Sequence[int]) -> None:
    """Measure until standard input ends.

    Args:
        computer: What is measured.
        text: Token ids that prompts are cut from.
    """
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["measure"] == "prefill":
            seconds = prefill_s(computer, text[: asked["tokens"]])
        else:
            seconds = decode_s(computer, text, asked["sequences"], asked["steps"])
        print(json.dumps({"seconds": seconds}), flush=True)


def prefill_s(computer: Computer, prompt: Sequence[int]) -> float:
    """Seconds from the ids of a prompt, in one piece, to the first token of its answer."""
    computer.forget()
    started = perf_counter()
    computer.forward([Piece(0, 0, prompt)]).argmax(axis=1)
    return perf_counter() - started


def decode_s(computer: Computer, text: Sequence[int], sequences: int, steps: int) -> float:
    """Seconds for `steps` steps of `sequences` sequences, all of them in each step.

    Sequences begin at different tokens of the text, so that they do not say the same.
    """
    computer.forget()
    for number in range(sequences):
        prompt = text[number : number + DECODE_FROM_TOKENS]
        computer.forward([Piece(number, 0, prompt)])
    tokens = [[text[number + DECODE_FROM_TOKENS]] for number in range(sequences)]
    started = perf_counter()
    for step in range(steps):
        start = DECODE_FROM_TOKENS + step
        pieces = [Piece(number, start, new) for number, new in enumerate(tokens)]
        tokens = computer.forward(pieces).argmax(axis=1)[:, None].tolist()
    return perf_counter() - started
