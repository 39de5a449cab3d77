# SPDX-License-Identifier: Apache-2.0
"""Convert Python's own numbers to arrays that have the dtype of the signature."""

from __future__ import annotations

from typing import Any

import numpy as np

from processor.errors import InvalidArgumentError

# For each kind of dtype that is wanted: the kinds that Python numbers may have. V is bfloat16.
_SOURCES = {"b": "b", "i": "bui", "u": "bui", "f": "buif", "V": "buif", "c": "buifc"}


def from_python(name: str, value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Convert Python scalars or nested lists to an array of a dtype.

    Parameters
    ----------
    name : str
        Name of the input, for error messages.
    value : number, or nested lists of numbers
    dtype : dtype
        Floating-point values are rounded to it; no other information is lost.

    Raises
    ------
    InvalidArgumentError
        For ragged lists, numbers of another kind, and numbers that the dtype cannot hold.
    """
    try:
        array = np.array(value)
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"input {name!r}: {error}, expected a dense array of {dtype}") from error
    if array.dtype == dtype:
        return array
    if array.size == 0:
        return np.empty(array.shape, dtype)
    if array.dtype.kind not in _SOURCES.get(dtype.kind, ""):
        raise InvalidArgumentError(f"input {name!r}: values of type {array.dtype}, expected {dtype}")
    if dtype.kind in "iu":
        _check_range(name, array, dtype)
    with np.errstate(over="ignore"):
        result = array.astype(dtype)
    if dtype.kind in "fcV" and np.any(np.isfinite(array) & ~np.isfinite(result)):
        raise InvalidArgumentError(f"input {name!r}: a number is too large, expected {dtype}")
    return result


def _check_range(name: str, array: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> None:
    limits = np.iinfo(dtype)
    for number in (int(array.min()), int(array.max())):
        if not limits.min <= number <= limits.max:
            raise InvalidArgumentError(f"input {name!r}: {number} is out of range, expected {dtype}")
