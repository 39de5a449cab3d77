# SPDX-License-Identifier: Apache-2.0
"""A table with known rows, and its ops as training calls them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from load_tests.elastic.setup import ACCUMULATOR, DIM, RATE, adagrad, keys_of, values_of

__all__ = ["OwnRows"]

EPSILON = 1e-7
_PART = 100_000


class OwnRows:
    """A table of `keys` rows with the weights of `values_of`, trained by Adagrad.

    Parameters
    ----------
    keys : int
    table : Table or None
        Instead of such a table.
    fields : dict
        Further members of the table's JSON.
    """

    def __init__(self, keys: int, table: Any = None, **fields: Any) -> None:
        import tensorflow as tf

        import elastic_training as et
        from elastic_training import _library

        optimizer = {"kind": "adagrad", "initial_accumulator": ACCUMULATOR, "epsilon": EPSILON}
        config = {"version": 1, "name": "rows", "key": "int64", "dim": DIM, "seed": 1, "optimizer": optimizer}
        self.table = et.Table(config | fields) if table is None else table
        self._ops = _library.ops()
        self._splits, self._weights = [tf.constant([], tf.int64)], [tf.constant([], tf.float32)]
        self._rate = [tf.constant([RATE], tf.float32)]
        for start in range(0, keys, _PART):
            numbers = np.arange(start, min(start + _PART, keys))
            self.table.insert(keys_of(numbers), values_of(numbers))

    def look_up(self, keys: Any, *, training: bool) -> Any:
        """Return the rows of keys, and in training their places and first positions."""
        return self._ops.elastic_table_lookup(
            tables=[self.table.handle],
            keys=[keys],
            row_splits=self._splits,
            weights=self._weights,
            combiners=["none"],
            mask_zero=[False],
            training=training,
            dims=[DIM],
        )

    def step(self, keys: Any, gradients: Any) -> Any:
        """Look keys up in training, and apply their gradients [n, DIM] float32."""
        _, places, firsts = self.look_up(keys, training=True)
        return self._ops.elastic_table_update(
            tables=[self.table.handle],
            keys=[keys],
            places=places,
            firsts=firsts,
            row_splits=self._splits,
            weights=self._weights,
            gradients=[gradients],
            hyper=self._rate,
            combiners=["none"],
            mask_zero=[False],
        )

    def wrong_rows(self, numbers: NDArray[np.int64]) -> int:
        """Return how many rows of a lookup differ from those that were inserted, in any bit."""
        rows = self.look_up(keys_of(numbers), training=False)[0][0].numpy()
        return int((rows != values_of(numbers)).any(axis=1).sum())

    def wrong_steps(self, numbers: NDArray[np.int64], gradients: NDArray[np.float32]) -> int:
        """Make the first step of rows, and return how many of them differ from the formula in NumPy by over 1e-6."""
        self.step(keys_of(numbers), gradients)
        expected = adagrad(values_of(numbers), ACCUMULATOR, gradients, EPSILON)
        found = self.look_up(keys_of(numbers), training=False)[0][0].numpy()
        return int((np.abs(found - expected) > 1e-6).any(axis=1).sum())
