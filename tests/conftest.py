"""What tests of every part may need: the files of real models, and a checker of metrics."""

from pathlib import Path

import pytest

from kvairlock.cli.fetching import FetchFailed, obtain
from kvairlock.engine.store import PUBLISHED
from tests.promtool import Promtool, found


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    """SmolLM2 from the user's cache; the first time it is fetched (98 MB), as `serve` does it."""
    try:
        return obtain(PUBLISHED["smollm2"])
    except FetchFailed as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def promtool() -> Promtool:
    """Prometheus' own checker."""
    return found()
