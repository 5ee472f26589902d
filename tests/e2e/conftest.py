"""The stack that tests share that break nothing: no drill mode, all guards on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .served import Served, serving

PLAIN = """
[gateway]

[commitment]
context_tokens = 1024

[[prefill]]
name = "prefill-0"
pages = 128
prefix_share = 0

[[decode]]
name = "decode-0"
pages = 256

[limits]
beat_ms = 50
"""


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A stack that advertises 1024 tokens; its tenants are no operators."""
    folder = tmp_path_factory.mktemp("plain")
    with serving(folder, PLAIN, {"acme": "private", "bravo": "private"}) as stack:
        yield stack
        stack.baseline()
