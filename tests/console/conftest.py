"""A real browser, and what tests ask of the page in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .pages import Tab, tab

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """One Chromium for all tests of a module.

    Not of a session: while it runs, playwright's event loop counts as running in this thread, and
    no test that has a loop of its own could.
    """
    if not CHROMIUM.exists():
        pytest.skip(f"there is no browser at {CHROMIUM} (script/packages installs it)")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(QUIET))
        yield launched
        launched.close()


@pytest.fixture
def opened(browser: object) -> Iterator[Tab]:
    """A tab that has to end without a word on its console and without asking another host."""
    with tab(browser) as opened:
        yield opened
        opened.must_be_clean()
