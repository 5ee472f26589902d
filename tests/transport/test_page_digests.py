from __future__ import annotations

import numpy as np
import pytest
import xxhash

from kvairlock.core.errors import Misuse
from kvairlock.transport.checksums import page_digests

PAGES = np.array([2, 0], dtype=np.int32)


def test_digests_are_those_of_xxh3_in_the_order_asked() -> None:
    array = np.random.default_rng(7).integers(0, 256, (3, 4096), dtype=np.uint8)
    expected = tuple(xxhash.xxh3_64_intdigest(array[page].tobytes(), seed=11) for page in (2, 0))
    assert page_digests(array, PAGES, 11) == expected


def test_one_bit_or_another_seed_changes_a_digest() -> None:
    array = np.zeros((3, 4096), dtype=np.uint8)
    before = page_digests(array, PAGES, 11)
    assert before[0] == before[1]
    assert page_digests(array, PAGES, 12)[0] != before[0]
    array[2, 4095] = 1
    after = page_digests(array, PAGES, 11)
    assert after[0] != before[0]
    assert after[1] == before[1]


@pytest.mark.parametrize("seed", [-1, 1 << 64])
def test_a_seed_that_would_be_cut_is_refused(seed: int) -> None:
    with pytest.raises(Misuse):
        page_digests(np.zeros((3, 4096), dtype=np.uint8), PAGES, seed)
