"""A page is as large as its slots need, rounded up for mapping, and its digest is strict."""

from collections.abc import Callable

import pytest

from kvairlock.engine.layout import LayerWidths, Layout
from kvairlock.engine.model import load

LAYERS = (LayerWidths(64, 64), LayerWidths(512, 64))


def test_page_of_the_canary_model_fills_its_mapped_pages_exactly() -> None:
    layout = load("recall").layout(16)
    assert layout.token_bytes == 2816
    assert layout.page_bytes == 16 * 2816 == 11 * 4096


@pytest.mark.parametrize(
    ("page_tokens", "page_bytes"), [(1, 4096), (2, 8192), (16, 45056), (17, 49152)]
)
def test_page_bytes_are_rounded_up_to_mapped_pages(page_tokens: int, page_bytes: int) -> None:
    assert Layout("m@1", page_tokens, LAYERS).page_bytes == page_bytes


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (16, 1), (17, 2), (900, 57)])
def test_pages_for_counts_the_partly_filled_page(tokens: int, pages: int) -> None:
    assert Layout("m@1", 16, LAYERS).pages_for(tokens) == pages


def test_spans_follow_one_another() -> None:
    spans = [
        (span.key_start, span.value_start, span.end) for span in Layout("m@1", 2, LAYERS).spans()
    ]
    assert spans == [(0, 128, 256), (256, 1280, 1408)]


def test_digest_is_the_same_for_the_same_layout() -> None:
    digest = Layout("m@1", 16, LAYERS).digest
    assert digest == Layout("m@1", 16, (LayerWidths(64, 64), LayerWidths(512, 64))).digest
    assert len(digest) == 16
    assert int(digest, 16) > 0


def test_digest_differs_in_whatever_differs() -> None:
    layouts = [
        Layout("m@1", 16, LAYERS),
        Layout("m@2", 16, LAYERS),
        Layout("m@1", 32, LAYERS),
        Layout("m@1", 16, LAYERS[::-1]),
        Layout("m@1", 16, LAYERS[:1]),
        Layout("m@1", 16, (LayerWidths(64, 64), LayerWidths(64, 512))),
    ]
    assert len({layout.digest for layout in layouts}) == len(layouts)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LayerWidths(0, 64),
        lambda: LayerWidths(64, -1),
        lambda: Layout("m@1", 0, LAYERS),
        lambda: Layout("m@1", -16, LAYERS),
        lambda: Layout("m@1", 16, ()),
        lambda: Layout("", 16, LAYERS),
        lambda: Layout("m@1", 16, LAYERS).pages_for(-1),
    ],
)
def test_nonsense_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"at least|must not|needs"):
        make()
