"""One tab of a browser with the console in it, and what it has complained about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

WAIT_MS = 15_000
LOUD = {"error", "warning"}


class Tab:
    """A tab.

    Args:
        page: Playwright's page.
    """

    def __init__(self, page: Any) -> None:
        self.page = page
        self.url = ""
        self.said: list[str] = []
        self.asked: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))

    def _heard(self, message: Any) -> None:
        if message.type in LOUD:
            self.said.append(f"{message.type}: {message.text}")

    def go(self, url: str) -> None:
        """Open the console of a gateway."""
        self.url = url
        self.page.goto(f"{url}/console")

    def enter(self, url: str, key: str) -> None:
        """Open it, give a key, and wait until the first figures are there."""
        self.go(url)
        self.give(key)
        self.page.wait_for_selector("#tiles dd")

    def give(self, key: str) -> None:
        """Type a key, as somebody without a mouse does."""
        self.page.fill("#key", key)
        self.page.keyboard.press("Enter")

    def text(self, selector: str) -> str:
        """Return what an element says."""
        said: str = self.page.inner_text(selector)
        return said

    def rows(self, table: str) -> list[list[str]]:
        """Return the cells of a table's body."""
        cells: list[list[str]] = self.page.eval_on_selector(
            f"#{table} tbody", "body => [...body.rows].map(r => [...r.cells].map(c => c.innerText))"
        )
        return cells

    def until(self, condition: str, argument: object = None) -> None:
        """Wait until an expression of JavaScript holds."""
        self.page.wait_for_function(condition, arg=argument)

    def until_row(self, table: str, *cells: str) -> None:
        """Wait until a table has a row that begins so."""
        self.until(
            "([id, cells]) => [...document.querySelectorAll(`#${id} tbody tr`)].some(row =>"
            " cells.every((text, at) => row.cells[at]?.innerText === text))",
            [table, list(cells)],
        )

    def must_be_clean(self) -> None:
        """Fail if the page complained, or asked anybody else but its gateway."""
        assert not self.said
        hosts = {urlsplit(asked).netloc for asked in self.asked}
        assert hosts <= {urlsplit(self.url).netloc}, hosts


@contextmanager
def tab(browser: Any, **options: object) -> Iterator[Tab]:
    """A tab of its own, with nothing kept from others.

    Args:
        browser: Playwright's browser.
        options: Of its context: size, colours, motion.
    """
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    try:
        yield Tab(context.new_page())
    finally:
        context.close()
