# SPDX-License-Identifier: Apache-2.0
"""Align frequencies that are saved with separate keys to the order of a table's keys."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graph_tools.tables.evaluate import paired_chunks
from graph_tools.tensors import CHUNK_BYTES, Array, StreamTensor, TensorSource, rows_per_chunk


def aligned_counts(keys: TensorSource, counted: TensorSource, words: TensorSource) -> TensorSource:
    """Return how often each key [n] was seen, as uint32 [n]; 0 for keys that were not counted.

    Parameters
    ----------
    keys : TensorSource [n]
    counted : TensorSource [m]
        Distinct keys, in any order.
    words : TensorSource [m] uint8, uint16 or uint32
        In words of 32 bits, the low 16 bits are the count and the others the day of the last update.

    Notes
    -----
    Data is read only when the counts are read. If both orders are equal, this takes one pass over each; otherwise the
    counted keys are sorted in memory.
    """

    def make(rows: int) -> Iterator[Array]:
        if counted.shape == keys.shape and _same(keys, counted):
            for chunk in words.chunks(rows):
                yield _count(chunk)
            return
        held, values = counted.read(), _count(words.read())
        order = np.argsort(held)
        held, values = held[order], values[order]
        for chunk in keys.chunks(rows):
            if not len(held):
                yield np.zeros(len(chunk), np.uint32)
                continue
            at = np.minimum(np.searchsorted(held, chunk), len(held) - 1)
            yield np.where(held[at] == chunk, values[at], np.uint32(0)).astype(np.uint32)

    return StreamTensor(np.dtype(np.uint32), keys.shape, make)


def _same(first: TensorSource, second: TensorSource) -> bool:
    rows = rows_per_chunk(first, CHUNK_BYTES // 4)
    return first.dtype == second.dtype and all((a == b).all() for a, b in paired_chunks(first, second, rows))


def _count(words: Array) -> Array:
    counts: Array = words.astype(np.uint32) & np.uint32(0xFFFF)
    return counts
