# SPDX-License-Identifier: Apache-2.0
"""Numbers on their way to the library: arrays as they are, Python's own numbers in the dtype of the signature."""

from __future__ import annotations

from typing import Any

import numpy as np

from processor.errors import InvalidArgumentError

# From which kinds of dtype Python numbers may come, by the kind that is wanted. V is bfloat16.
_SOURCES = {"b": "b", "i": "bui", "u": "bui", "f": "buif", "V": "buif", "c": "buifc"}


def from_python(name: str, value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return Python scalars or nested lists as an array of that dtype.

    Parameters
    ----------
    name : str
        For the message.
    value : number, or nested lists of numbers
    dtype : dtype
        Floating point is rounded to it; nothing else is lost.

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
