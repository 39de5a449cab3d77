# SPDX-License-Identifier: Apache-2.0
"""Pass strings to the library: in NumPy's fixed-width layout if they have it, otherwise joined, with offsets.

All joined strings of a request share one block of bytes and one array of offsets, because a single join of 26 lists
costs a third of 26 joins, and this time is spent under the GIL.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from processor.errors import InvalidArgumentError


def as_fixed_width(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return the array in the "S" layout, or None if the conversion costs more than joining.

    Parameters
    ----------
    array : ndarray, dtype kind S or U
    """
    if array.dtype.itemsize == 0:
        return None
    if array.dtype.kind == "S":
        return array if array.flags.c_contiguous else array.copy(order="C")
    # ASCII text uses one byte in four of UCS-4. Other text is handled as lists.
    points = np.ravel(array).view(np.uint32)
    if points.size and points.max() > 0x7F:
        return None
    width = array.dtype.itemsize // 4
    return points.astype(np.uint8).view(f"S{width}").reshape(array.shape)


def as_list(name: str, value: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Return the elements in row-major order, and the shape of the value.

    Parameters
    ----------
    name : str
        Name of the input, for error messages.
    value : bytes, str, nested lists of them, or ndarray
    """
    if type(value) is list and value and isinstance(value[0], bytes | str):
        return value, (len(value),)
    if isinstance(value, bytes | str):
        return [value], ()
    if not isinstance(value, np.ndarray):
        try:
            value = np.array(value, dtype=object)
        except ValueError as error:
            raise InvalidArgumentError(f"input {name!r}: lists of unequal length, expected a dense array") from error
    return value.reshape(-1).tolist(), value.shape


def join(columns: list[tuple[str, list[Any]]]) -> tuple[bytes, np.ndarray[Any, Any]]:
    """Join strings end to end.

    Parameters
    ----------
    columns : list of (name of the input, elements)

    Returns
    -------
    block : bytes
    offsets : ndarray [elements of all columns + 1] int64
        Where each element begins in `block`, and where the last one ends.

    Raises
    ------
    InvalidArgumentError
        If an element is neither bytes nor str; the message names its input.
    """
    flat = columns[0][1] if len(columns) == 1 else list(chain.from_iterable(elements for _, elements in columns))
    try:
        marked = "\0".join(flat).encode() if flat and type(flat[0]) is str else b"\0".join(flat)
    except (TypeError, UnicodeEncodeError):
        flat = [_encoded(name, element) for name, elements in columns for element in elements]
        marked = b"\0".join(flat)
    offsets = np.zeros(len(flat) + 1, np.int64)
    # Finding the separators costs half of reading the length of every element.
    separators = np.flatnonzero(np.frombuffer(marked, np.uint8) == 0)
    if separators.size != max(len(flat) - 1, 0):  # an element contains a zero byte
        flat = [_encoded(name, element) for name, elements in columns for element in elements]
        np.cumsum(np.fromiter(map(len, flat), np.int64, len(flat)), out=offsets[1:])
        return b"".join(flat), offsets
    if flat:
        offsets[1:-1] = separators
        offsets[-1] = len(marked)
        offsets[1:] -= np.arange(len(flat))
    return marked.translate(None, b"\0"), offsets


def _encoded(name: str, element: Any) -> bytes:
    if isinstance(element, bytes | bytearray | memoryview):
        return bytes(element)
    if not isinstance(element, str):
        raise InvalidArgumentError(f"input {name!r}: element of type {type(element).__name__}, expected bytes or str")
    try:
        return element.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"input {name!r}: {error}, expected text that can be encoded as UTF-8") from error
