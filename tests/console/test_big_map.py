"""A node of a hundred thousand pages: what crosses, and what drawing takes in a real browser.

Times are asserted with room for a slow and busy machine; the figures are printed.
"""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import numpy as np
import pytest

from kvairlock.core.memory.page import PageStage
from kvairlock.core.memory.page_map import PageView
from kvairlock.core.messages import PageMap, Watch
from kvairlock.runtime.link import Link
from tests.gateway.fake_nodes import DECODE_TOKENS, FakeNodes
from tests.gateway.stacks import Stack, stack

from .pages import Tab

PAGES = 100_000
CHURN = 2_000
"""Pages that change between two maps: eight thousand a second."""

SEED = 20261202
FRAME_MS_MAX = 250
DRAW_MS_MAX = 1_000

FRAMES = """() => new Promise(done => {
  const gaps = []; let last = performance.now();
  const step = now => {
    gaps.push(now - last); last = now;
    if (gaps.length < 180) requestAnimationFrame(step);
    else done(gaps.sort((a, b) => a - b));
  };
  requestAnimationFrame(step);
})"""


class Busy:
    """A pool whose pages change all the time, as a node tells of it."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(SEED)
        self.stage = np.zeros(PAGES, np.int8)
        self.generation = np.zeros(PAGES, np.int64)
        self.views: set[str] = set()

    def churn(self) -> None:
        first = int(self.random.integers(0, PAGES - CHURN))
        some = np.arange(first, first + CHURN, 2 if first % 2 else 1)
        self.stage[some] = self.random.integers(0, len(PageStage), len(some))
        self.generation[some] += 1

    async def watched(self, link: Link, watch: Watch) -> None:
        """Tell of it at the pace that was asked for; one task for each view."""
        if watch.view in self.views or not watch.lease_ms:
            return
        self.views.add(watch.view)
        view, number = PageView(PAGES), 0
        while True:
            changes = view.changes(self.stage, self.generation, 65_536)
            packed = changes.pack()
            parts = packed.spans, packed.stages, packed.generations
            await link.send(PageMap(watch.view, number, PAGES, *parts, changes.rest))
            number += 1
            self.churn()
            await anyio.sleep(watch.every_ms / 1000)


@pytest.fixture(scope="module")
def big() -> Iterator[Stack]:
    busy = Busy()

    def start(nodes: FakeNodes) -> None:
        nodes.start("prefill-0", 256)
        nodes.start("decode-0", DECODE_TOKENS, ["prefill-0"]).watched = busy.watched

    with stack(start=start) as running:
        yield running


def test_a_hundred_thousand_pages_stay_smooth(opened: Tab, big: Stack) -> None:
    print(f"seed {SEED}")
    opened.enter(big.url, big.operator_key)
    opened.page.wait_for_selector("canvas[data-whole-ms]")
    whole_ms = float(opened.page.get_attribute("canvas[data-whole-ms]", "data-whole-ms"))
    gaps = opened.page.evaluate(FRAMES)
    drawn = opened.text("#instrument")
    middle, late, worst = gaps[len(gaps) // 2], gaps[int(len(gaps) * 0.95)], gaps[-1]
    print(f"first drawing {whole_ms:.0f} ms; {drawn}")
    print(f"frames: median {middle:.1f} ms, 95 of 100 within {late:.1f} ms, worst {worst:.0f} ms")
    assert whole_ms < DRAW_MS_MAX
    assert late < FRAME_MS_MAX
    assert int(drawn.split()[2].replace(",", "")) <= 2 * CHURN, "only what changed is drawn"


def test_a_viewer_gets_differences_not_maps(big: Stack) -> None:
    headers = big.headers(big.operator_key)
    sizes = []
    with big.http.stream("GET", "/console/live", headers=headers) as response:
        event = ""
        for line in response.iter_lines():
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("data: ") and event == "pages":
                sizes.append(len(line))
                if len(sizes) == 6:
                    break
    print(f"sizes of events: {sizes} characters")
    assert sum(sizes[:2]) > 13 * PAGES, "all pages at first"
    assert max(sizes[3:]) < sizes[0] / 5
