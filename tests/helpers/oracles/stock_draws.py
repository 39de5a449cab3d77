# SPDX-License-Identifier: Apache-2.0
"""Generate parts of random graphs of fused ops: a case, and tensors with NaN, infinities, -0 and denormals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Random = np.random.Generator

SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-45, 1e-38], np.float32)
INTEGERS = np.array([-1, -(2**63), 2**63 - 1, 2**31 - 1, -(2**31), 0, 2**40], np.int64)


@dataclass
class Case:
    """Contain one op, its inputs, and the equivalent with stock ops.

    Attributes
    ----------
    inputs : list of ndarray
        Values of a request, including weights.
    stock : callable
        Called with TensorFlow and the inputs as tensors; returns the outputs.
    tables : list of ndarray [rows, dim] float32
        Tables of a `RecEmbeddingGroup`; for `stock`, inputs come first, then tables.
    """

    op: str
    inputs: list[Array]
    attributes: dict[str, Any]
    stock: Callable[..., list[Any]]
    outputs: int = 1
    tables: list[Array] = field(default_factory=list)


def floats(random: Random, *shape: int) -> Array:
    """Draw numbers; in half of all tensors a few are special values."""
    made = random.uniform(-1, 1, shape).astype(np.float32)
    if random.random() < 0.5 and made.size:
        kinds = random.choice(SPECIAL, random.integers(1, 3))
        chosen = random.random(shape) < min(0.5, 2 / made.size + 0.02)
        made[chosen] = random.choice(kinds, int(chosen.sum()))
    return made


def plain(random: Random, *shape: int) -> Array:
    """Draw weights, all finite."""
    return random.uniform(-1, 1, shape).astype(np.float32)


def some_rows(random: Random) -> int:
    return int(random.choice([0, 1, 2, 5, 33]))


def small(random: Random, most: int = 6) -> int:
    return int(random.integers(1, most + 1))
