"""Models by path: a file that is whole and understood is served, any other is refused with why."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kvairlock.engine.model import load
from tests.engine.generating import answer
from tests.engine.tiny_llama import Tiny

from .served import serving
from .smollm2 import expected, seen

START_S = 30
SMALL = (
    '[[prefill]]\nname = "p"\npages = 8\n[[decode]]\nname = "d"\npages = 8\ntenant_share = 1.0\n'
)

Make = Callable[[Path, Path], object]


def cut(path: Path, smollm2_file: Path) -> None:
    """SmolLM2 as far as a broken download has it: the head is whole, and the tensors are not."""
    with smollm2_file.open("rb") as whole:
        path.write_bytes(whole.read(4_000_000))


def text(path: Path, smollm2_file: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\n")


def other(path: Path, smollm2_file: Path) -> None:
    """A model whose architecture is another."""
    Tiny(layers=1).write(path)
    path.write_bytes(
        path.read_bytes().replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0gemma")
    )


def none(path: Path, smollm2_file: Path) -> None:
    pass


def serve(model: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `kvairlock serve` with a model that does not start."""
    words = ["serve", "--model", model, "--port", "0", "--state", folder]
    command = [sys.executable, "-m", "kvairlock", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (none, "No such file or directory"),
        (text, "it is not a GGUF file"),
        (cut, "it is torn: a tensor ends at byte"),
        (other, "its architecture is 'gemma', and only 'llama' is understood"),
    ],
)
def test_a_file_that_cannot_be_served_is_one_line_that_says_why(
    smollm2_file: Path, tmp_path: Path, make: Make, reason: str
) -> None:
    file = tmp_path / "own.gguf"
    make(file, smollm2_file)
    done = serve(file, tmp_path)
    said = [line for line in done.stderr.splitlines() if line.startswith("kvairlock: ")]
    assert (done.returncode, len(said)) == (2, 1), done.stderr
    assert f"{file} can't be served: {reason}" in said[0]
    assert "Traceback" not in done.stderr
    assert "is up at" not in done.stdout


def test_a_name_that_no_model_has_is_one_line_that_lists_those_there_are(tmp_path: Path) -> None:
    done = serve("smollm3", tmp_path)
    said = [line for line in done.stderr.splitlines() if line.startswith("kvairlock: ")]
    assert (done.returncode, len(said)) == (2, 1), done.stderr
    assert "unknown model 'smollm3'; known models: recall, smollm2, or the path of a" in said[0]
    assert "Traceback" not in done.stderr


def test_a_file_is_served_under_its_own_name_and_with_its_own_window(tmp_path: Path) -> None:
    file = Tiny().write(tmp_path / "own.gguf")
    model = load(str(file))
    prompt = "hello hello world, 1234"
    tokens = model.tokenizer.encode(prompt)
    with serving(tmp_path, f'model = "own.gguf"\n{SMALL}', {"acme": "none"}) as stack:
        (listed,) = stack.http.get("/v1/models", headers=stack.auth("acme")).json()["data"]
        body = {"model": "own", "prompt": prompt, "max_tokens": 12, "logprobs": 0}
        given = stack.http.post("/v1/completions", headers=stack.auth("acme"), json=body).json()
    assert (listed["id"], listed["max_model_len"]) == ("own", 96)
    (choice,) = given["choices"]
    assert seen(choice) == expected(model.tokenizer, answer(model, np.array(tokens), 12))
