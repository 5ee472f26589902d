"""The earlier release, taken from the history of this checkout, in an environment of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from kvairlock.drills.stack import Keys, make_keys
from kvairlock.drills.versions.release import Release, release_at, this_release
from kvairlock.drills.versions.sights import TENANTS
from kvairlock.drills.versions.table import Build

ROOT = Path(__file__).resolve().parents[2]
VERSION = "0.1.0"
LOCK = "requirements.lock"


def git(*words: str) -> str:
    """What git says of this checkout; nothing if it has nothing to say."""
    program = shutil.which("git")
    if program is None:
        return ""
    done = subprocess.run(
        [program, "-C", str(ROOT), *words], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def commit() -> str:
    """The commit of the release: by its tag, or else by its message."""
    tagged = git("rev-parse", "--verify", "--quiet", f"v{VERSION}^{{commit}}")
    message = f"^Release {VERSION.replace('.', '[.]')}$"
    return tagged or git("log", "--max-count=1", "--format=%H", f"--grep={message}")


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source tree of the release."""
    found = commit()
    if not found:
        pytest.skip(f"this checkout has no history that reaches back to {VERSION}")
    folder = tmp_path_factory.mktemp("release")
    packed = folder / "tree.tar"
    assert git("archive", "--format=tar", f"--output={packed}", found) == ""
    with tarfile.open(packed) as archive:
        archive.extractall(folder / "tree", filter="data")
    return folder / "tree"


@pytest.fixture(scope="session")
def earlier(tree: Path) -> Path:
    """The release, as `run_versions` takes it.

    With the same lock its environment would hold the same packages as this one: then the tree is
    run beside them. With another lock it gets an environment of its own.
    """
    if (tree / LOCK).read_bytes() == (ROOT / LOCK).read_bytes():
        return tree
    place = tree.parent / "environment"
    python = place / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    try:
        subprocess.run([*pip, "--require-hashes", "-r", str(tree / LOCK)], check=True)
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", str(tree)], check=True)
    except subprocess.CalledProcessError:
        pytest.skip(f"the packages that {VERSION} was locked to cannot be had here")
    return python


@pytest.fixture(scope="session")
def releases(earlier: Path) -> dict[Build, Release]:
    """Both releases."""
    found = {Build.OLD: release_at(earlier), Build.NEW: this_release()}
    assert found[Build.OLD].version == VERSION
    assert found[Build.NEW].version != VERSION
    return found


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Keys of the tenants."""
    return make_keys(tmp_path_factory.mktemp("keys"), TENANTS)
