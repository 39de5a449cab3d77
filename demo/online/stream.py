# SPDX-License-Identifier: Apache-2.0
"""MovieLens-100K as a stream: its ratings in the order of their timestamps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from demo import movielens
from demo.movielens import Rows


@dataclasses.dataclass(frozen=True)
class Batch:
    """Contain some ratings in a row; `end` is the position in the stream after them."""

    rows: Rows
    end: int


def read(wheel: Path, share: float) -> Rows:
    """Return the first `share` of the stream; ratings of the same second keep the order of the file.

    Raises
    ------
    DataError
        As of `movielens.read`.
    """
    rows, times = movielens.read(wheel).rows, movielens.read_times(wheel)
    order = np.argsort(times, kind="stable")
    return rows.take(order[: round(share * len(order))])


def batches(rows: Rows, size: int, start: int = 0) -> Iterator[Batch]:
    """Yield the stream from a position in batches; the last one may be smaller."""
    for begin in range(start, len(rows), size):
        end = min(begin + size, len(rows))
        yield Batch(rows.take(np.arange(begin, end)), end)


def auc_by_window(
    clicks: NDArray[np.float32], scores: NDArray[np.float32], window: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the AUC of each window: the position at its end, and the AUC."""
    from demo.train import auc

    ends = np.arange(window, len(clicks) + 1, window)
    return ends, np.array([auc(clicks[end - window : end], scores[end - window : end]) for end in ends])
