# SPDX-License-Identifier: Apache-2.0
"""Compute the outputs that the systems would return for an export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from load_tests.workloads.sparse_exports.export import Array, dense_weights

__all__ = ["rows_for", "score_for"]


def rows_for(ids: Sequence[Any], keys: Array, rows: Array, absent: Callable[[Any], Any] = lambda key: 0.0) -> Array:
    """Look ids up one by one: [n, dim]."""
    table = dict(zip(keys.tolist(), rows, strict=True))
    dim = rows.shape[1]
    found = [table.get(key) if key in table else np.broadcast_to(absent(key), dim) for key in ids]
    return np.array(found, np.float32).reshape(-1, dim)


def score_for(rows: Array) -> Array:
    """Compute the score of `Export.finish` from the rows: [n, 1]."""
    result: Array = 1.0 / (1.0 + np.exp(-(rows @ dense_weights(rows.shape[1]))))
    return result
