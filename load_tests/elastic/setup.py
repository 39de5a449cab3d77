# SPDX-License-Identifier: Apache-2.0
"""What the cases of `bench_elastic` share: sizes, keys, and the formula of their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BATCH", "DIM", "Setup", "adagrad", "batches_of", "keys_of", "one_thread", "values_of"]

DIM, BATCH = 16, 8192
RATE, ACCUMULATOR = 0.1, 0.1
# An odd number: keys are as spread as hashes are, and different.
_KEY_STEP = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Setup:
    """How much a case measures.

    Parameters
    ----------
    quick : bool
        Tiny sizes: the figures are no measurement.
    full : bool
        All seeds of `lasso`.
    """

    quick: bool
    full: bool = False

    @property
    def keys(self) -> int:
        """Number of keys of a table."""
        return 50_000 if self.quick else 2_000_000

    @property
    def rounds(self) -> int:
        return 2 if self.quick else 7

    @property
    def seconds(self) -> float:
        """CPU time of one contestant in a round [s]."""
        return 0.05 if self.quick else 1.0


def one_thread() -> None:
    """Let TensorFlow compute on one thread; call this before its first op."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def keys_of(numbers: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the keys of row numbers, [n] int64."""
    return ((numbers.astype(np.uint64) + 1) * np.uint64(_KEY_STEP)).view(np.int64)


def values_of(numbers: NDArray[np.integer[Any]], dim: int = DIM) -> NDArray[np.float32]:
    """Return the first weights of rows, [n, dim] float32 in [-0.05, 0.05): all rows differ, and all their columns."""
    spread = numbers.astype(np.int64)[:, None] * 2654435761 + np.arange(dim) * 40503
    return ((spread % 65536) / 655360 - 0.05).astype(np.float32)


def batches_of(keys: int, batch: int, count: int, seed: int = 0) -> list[NDArray[np.int64]]:
    """Return random batches of different row numbers: `count` arrays [batch] int64."""
    random = np.random.default_rng([seed, keys, batch])
    return [random.choice(keys, batch, replace=False, shuffle=False).astype(np.int64) for _ in range(count)]


def adagrad(
    weights: NDArray[np.float32], accumulator: float, gradients: NDArray[np.float32], epsilon: float
) -> NDArray[np.float32]:
    """Return the weights after a first step of Adagrad with a learning rate of RATE."""
    stepped: NDArray[np.float32] = weights - RATE * gradients / np.sqrt(accumulator + gradients * gradients + epsilon)
    return stepped
