# SPDX-License-Identifier: Apache-2.0
"""Functions of NumPy that would turn a traced array into an ordinary one, for both kinds of arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_tools.live.traced import Traced, generic_of
from graph_tools.tensors import Array


def is_traced(value: Any) -> bool:
    """Return whether an array depends on a variable that a trainer may change."""
    return isinstance(value, Traced)


def generic(value: Array) -> Array:
    """Return ordinary elements for a decision that only changes the rounding of scores."""
    found: Array = generic_of(value)
    return found


def as_float64(value: Any) -> Array:
    """Return a number or an array as float64."""
    found: Array = value.astype(np.float64) if is_traced(value) else np.asarray(value, np.float64)
    return found


def contiguous(value: Any, dtype: Any = None) -> Array:
    """Return an array whose elements are stored row by row, in the given dtype."""
    if is_traced(value):
        found: Array = value if dtype is None else value.astype(dtype)
        return found
    return np.ascontiguousarray(value, dtype)
