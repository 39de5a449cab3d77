# SPDX-License-Identifier: Apache-2.0
"""A bounded sample of a table's rows, and the distributions of their norms, counts and ages."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from elastic_training.table import FULL, RELEASED, Table

Array = np.ndarray[Any, Any]

# Times of rows count from 2020-01-01 UTC [s since 1970].
EPOCH_S = 1_577_836_800
PERCENTILES = (0, 10, 25, 50, 75, 90, 99, 100)


@dataclass(frozen=True)
class RowSample:
    """Rows of one range of hashes, which is a random sample, since hashes do not depend on what rows have.

    Attributes
    ----------
    share : float
        Share of the hashes that the sample covers.
    norms : ndarray [n] float32
        L2 norms of the weights.
    counts : ndarray [n] int64
        How often training has looked the keys up.
    idle_s : ndarray [n] int64 [s]
        Time since training last looked the key up.
    """

    share: float
    norms: Array
    counts: Array
    idle_s: Array


def sample_rows(table: Table, most: int) -> RowSample:
    """Return about `most` rows of a table, or all if it has fewer.

    One part of the table is locked for writers at a time, while its rows are copied, so training goes on.
    """
    stats = table.stats()
    parts = max(1, -(-int(stats["rows"] + stats["candidates"]) // most))
    _, rows = table.export(0, parts)
    meta = rows.meta.numpy()
    kept = (meta[:, 2] == FULL) | (meta[:, 2] == RELEASED)
    meta = meta[kept]
    norms = np.linalg.norm(rows.weights.numpy()[kept], axis=1)
    now = int(time.time()) - EPOCH_S
    return RowSample(1 / parts, norms, meta[:, 1], np.maximum(now - meta[:, 0], 0))


def percentiles(values: Array) -> dict[str, float]:
    """Return the percentiles of values by their numbers; none of no values."""
    if not values.size:
        return {}
    found = np.percentile(values, PERCENTILES)
    return {str(number): float(value) for number, value in zip(PERCENTILES, found, strict=True)}
