# SPDX-License-Identifier: Apache-2.0
"""Test that frequencies are in the order of a table's keys."""

from __future__ import annotations

import numpy as np
import pytest

from graph_tools.readers.families.frequencies import aligned_counts
from graph_tools.tensors import ArrayTensor

KEYS = np.array([5, -3, 9, 0], np.int64)


@pytest.mark.parametrize(
    ("counted", "words", "expected"),
    [
        (KEYS, np.array([1, 2, 3, 4], np.uint32), [1, 2, 3, 4]),
        (KEYS[::-1], np.array([1, 2, 3, 4], np.uint16), [4, 3, 2, 1]),
        (np.array([9, 77, 5], np.int64), np.array([(12 << 16) + 6, 1, 0xFFFF], np.uint32), [0xFFFF, 0, 6, 0]),
        (KEYS[:0], np.empty(0, np.uint32), [0, 0, 0, 0]),
        (KEYS[:1], np.array([255], np.uint8), [255, 0, 0, 0]),
    ],
)
def test_counts(counted: np.ndarray, words: np.ndarray, expected: list[int]) -> None:
    counts = aligned_counts(ArrayTensor(KEYS), ArrayTensor(counted), ArrayTensor(words))
    assert counts.shape == (4,)
    assert counts.dtype == np.uint32
    assert counts.read().tolist() == expected
    assert [len(chunk) for chunk in counts.chunks(3)] == [3, 1]


def test_counts_of_string_keys() -> None:
    keys, counted = np.array([b"b", b"a"], object), np.array([b"a"], object)
    counts = aligned_counts(ArrayTensor(keys), ArrayTensor(counted), ArrayTensor(np.array([3], np.uint32)))
    assert counts.read().tolist() == [0, 3]
