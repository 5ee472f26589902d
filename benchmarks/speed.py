"""Tokens per second of kvairlock's engine beside llama.cpp: same weights, same machine, same run.

Three contenders run side by side, each in a process of its own. In each round each of them is asked
for each measurement, in an order that turns from round to round. The first round warms up and is
not counted. What is reported is the median of the others, with the slowest and the fastest.

Run it by `script/bench-llama`, which makes the environment of the reference.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import IO, Any, cast

import numpy as np

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "tests/engine/golden/smollm2.json"
REFERENCE_PYTHON = HERE.parent / ".cache/reference/bin/python"
DECODE_STEPS = 32
# A machine that does something else beside this one is no place to measure.
QUIET_LOAD = 0.5


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing to measure: what a contender is asked, and how many tokens that computes."""

    name: str
    asked: dict[str, Any]
    tokens: int


def prefill(tokens: int) -> Measure:
    asked = {"measure": "prefill", "tokens": tokens}
    return Measure(f"prompt of {tokens} tokens", asked, tokens)


def decode(sequences: int) -> Measure:
    asked = {"measure": "decode", "sequences": sequences, "steps": DECODE_STEPS}
    return Measure(f"decode, batch {sequences}", asked, sequences * DECODE_STEPS)


MEASURES = (prefill(256), prefill(512), decode(1), decode(8))
SEQUENCES_MAX = 8
KVAIRLOCK = (sys.executable, str(HERE / "contend_kvairlock.py"))
LLAMA_CPP = (str(REFERENCE_PYTHON), str(HERE / "contend_llama_cpp.py"))
CONTENDERS = {
    "kvairlock, float32": KVAIRLOCK,
    "llama.cpp, float32": (*LLAMA_CPP, "float32"),
    "llama.cpp, as published": (*LLAMA_CPP, "published"),
}


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens per second of one contender in one measurement, over all rounds."""

    contender: str
    threads: int
    measure: str
    median: float
    slowest: float
    fastest: float


class Contender:
    """A running contender."""

    def __init__(self, stdin: IO[str], stdout: IO[str]) -> None:
        self._stdin = stdin
        self._stdout = stdout

    def tokens_per_s(self, measure: Measure) -> float:
        """Have it measure once.

        Raises:
            RuntimeError: It ended instead.
        """
        print(json.dumps(measure.asked), file=self._stdin, flush=True)
        line = self._stdout.readline()
        if not line:
            raise RuntimeError("a contender ended; its own words are above")
        return measure.tokens / float(json.loads(line)["seconds"])


@contextmanager
def started(command: Sequence[str], arguments: Sequence[str]) -> Iterator[Contender]:
    """A contender, which ends when its input does."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, *arguments], stdin=pipe, stdout=pipe, text=True) as process:
        yield Contender(cast(IO[str], process.stdin), cast(IO[str], process.stdout))


def measured(weights: Path, threads: int, rounds: int) -> list[Speed]:
    """The speeds of all contenders with this number of threads."""
    with ExitStack() as stack:
        text = Path(stack.enter_context(TemporaryDirectory())) / "text.json"
        text.write_text(json.dumps(text_tokens()))
        arguments = [str(weights), str(threads), str(SEQUENCES_MAX), str(text)]
        contenders = {
            name: stack.enter_context(started(command, arguments))
            for name, command in CONTENDERS.items()
        }
        runs = run(contenders, rounds)
    return [
        speed(name, threads, measure, runs[name, measure.name][1:])
        for measure in MEASURES
        for name in CONTENDERS
    ]


def speed(contender: str, threads: int, measure: Measure, runs: Sequence[float]) -> Speed:
    return Speed(contender, threads, measure.name, median(runs), min(runs), max(runs))


def run(contenders: Mapping[str, Contender], rounds: int) -> dict[tuple[str, str], list[float]]:
    """Tokens per second by contender and measurement, the round that warms up first."""
    runs = defaultdict(list)
    order = deque(contenders.items())
    for number in range(rounds + 1):
        print(f"round {number} of {rounds}", file=sys.stderr)
        for measure in MEASURES:
            for name, contender in order:
                runs[name, measure.name].append(contender.tokens_per_s(measure))
        order.rotate()
    return runs


def text_tokens() -> list[int]:
    """The token ids that prompts are cut from: those of the long golden prompt."""
    answers = json.loads(GOLDEN.read_text())["answers"]
    tokens: list[int] = max((answer["tokens"] for answer in answers), key=len)
    return tokens


def machine() -> dict[str, Any]:
    """What the figures hold for."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(": ")[1] for line in lines if line.startswith("model name")), "?")
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "llama-cpp-python": reference_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def reference_version() -> str:
    code = "from importlib.metadata import version; print(version('llama-cpp-python'))"
    command = [str(REFERENCE_PYTHON), "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def table(speeds: Sequence[Speed]) -> str:
    """Markdown: a row for each measurement, a column for each contender."""
    rows = [
        ["threads", "tokens/s", *CONTENDERS],
        ["---:", "---", *("---:" for _ in CONTENDERS)],
    ]
    for (threads, measure), group in groupby(speeds, attrgetter("threads", "measure")):
        rows.append([str(threads), measure, *(shown(found) for found in group)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def shown(found: Speed) -> str:
    return f"{found.median:.0f} ({found.slowest:.0f}-{found.fastest:.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Tokens per second beside llama.cpp.")
    parser.add_argument("weights", type=Path, help="a GGUF file")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5, help="rounds that are counted")
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
    options = parser.parse_args()
    where = machine()
    if where["load_before"] > QUIET_LOAD:
        print(f"not quiet: load {where['load_before']} before the run", file=sys.stderr)
    each = (measured(options.weights, threads, options.rounds) for threads in options.threads)
    speeds = list(chain.from_iterable(each))
    if options.json:
        print(json.dumps({"machine": where, "speeds": [asdict(found) for found in speeds]}))
    else:
        print(table(speeds), *(f"{key}: {value}" for key, value in where.items()), sep="\n")


if __name__ == "__main__":
    main()
