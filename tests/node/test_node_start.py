"""A node takes what it may of the machine, and says so before it takes what is not there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvairlock.core.terms import LandingPolicy
from kvairlock.engine.layout import LayerWidths, Layout
from kvairlock.node.measuring import NodeSettings, require_memory
from kvairlock.runtime.settings import DecodeSettings, PrefillSettings, SettingsWrong
from kvairlock.sink.reading import files
from tests.engine.tiny_llama import STRANGE, STRANGE_REASONS

MIB = 1024 * 1024
LAYOUT = Layout("model of 30 layers", 16, (LayerWidths(192, 192),) * 30)

PREFILL = PrefillSettings(name="p", pages=512)
DECODE = DecodeSettings(name="d", pages=1024)
NARROW = DecodeSettings(name="d", pages=1024, landing_pages=64)
SEAL = DecodeSettings(name="d", pages=1024, landing=LandingPolicy.SEAL)
DIRECT = DecodeSettings(name="d", pages=1024, landing=LandingPolicy.DIRECT)


@pytest.mark.parametrize(
    ("node", "pages"),
    [(PREFILL, 512), (DECODE, 2048), (NARROW, 1088), (SEAL, 2048), (DIRECT, 1024)],
)
def test_pool_and_windows_must_fit(node: NodeSettings, pages: int) -> None:
    enough = pages * 737_280
    require_memory(node, LAYOUT, enough)
    with pytest.raises(SettingsWrong):
        require_memory(node, LAYOUT, enough - 1)


def test_the_message_has_the_figures_and_what_to_lower() -> None:
    with pytest.raises(SettingsWrong) as decode:
        require_memory(DECODE, LAYOUT, 1000 * MIB)
    assert str(decode.value) == (
        "1024 pages and 1024 pages in windows of 720 KiB take 1440 MiB, but only 1000 MiB of "
        "memory are free; lower pages or landing_pages of d"
    )
    with pytest.raises(SettingsWrong) as prefill:
        require_memory(PREFILL, LAYOUT, 100 * MIB)
    assert str(prefill.value) == (
        "512 pages of 720 KiB take 360 MiB, but only 100 MiB of memory are free; lower pages of p"
    )


def start(folder: Path, node: str, stack: str = "") -> subprocess.CompletedProcess[str]:
    """Run a node whose standard input has ended: once it is ready it stops in order."""
    (folder / "s.toml").write_text(
        f'{stack}\n[[prefill]]\nname = "p"\n{node}\n[[decode]]\nname = "d"\n'
    )
    words = ["--settings", "s.toml", "--name", "p", "--run", ".", "--evidence", "."]
    return subprocess.run(
        [sys.executable, "-m", "kvairlock.node", *words],
        cwd=folder,
        env={**os.environ, "KVAIRLOCK_CLUSTER_KEY": "one " + "ab" * 32},
        input="",
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_node_computes_with_the_threads_of_its_settings(tmp_path: Path) -> None:
    ran = start(tmp_path, "pages = 16\nthreads = 3")
    assert ran.returncode == 0, ran.stderr
    assert "event='node computes' model='recall' threads=3\n" in ran.stderr


def test_a_pool_that_no_machine_has_ends_the_start_with_a_line(tmp_path: Path) -> None:
    ran = start(tmp_path, "pages = 2000000000")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("p: 2000000000 pages of ")
    assert ran.stderr.endswith(" MiB of memory are free; lower pages of p\n")
    assert not files(tmp_path), "nothing was opened"


@pytest.mark.parametrize("kind", STRANGE)
def test_a_model_file_that_there_is_no_room_for_is_one_line(tmp_path: Path, kind: str) -> None:
    STRANGE[kind].write(tmp_path / "own.gguf")
    ran = start(tmp_path, "pages = 16", 'model = "own.gguf"')
    assert (ran.returncode, ran.stdout) == (2, ""), ran.stderr
    (line,) = ran.stderr.splitlines()
    assert line.startswith("p: ")
    assert f"own.gguf can't be served: {STRANGE_REASONS[kind]}" in line
