# SPDX-License-Identifier: Apache-2.0
"""Map the element types of a bundle to numpy dtypes, without conversion."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

DT_STRING = 7

# By number in TensorFlow's types.proto, which never changes. Quantized types are structures with one field, as in
# TensorFlow.
_NUMPY: dict[int, np.dtype[Any]] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<i4"),
    4: np.dtype("u1"),
    5: np.dtype("<i2"),
    6: np.dtype("i1"),
    DT_STRING: np.dtype(object),
    8: np.dtype("<c8"),
    9: np.dtype("<i8"),
    10: np.dtype("?"),
    11: np.dtype([("qint8", "i1")]),
    12: np.dtype([("quint8", "u1")]),
    13: np.dtype([("qint32", "<i4")]),
    14: np.dtype(ml_dtypes.bfloat16),
    15: np.dtype([("qint16", "<i2")]),
    16: np.dtype([("quint16", "<u2")]),
    17: np.dtype("<u2"),
    18: np.dtype("<c16"),
    19: np.dtype("<f2"),
    22: np.dtype("<u4"),
    23: np.dtype("<u8"),
    24: np.dtype(ml_dtypes.float8_e5m2),
    25: np.dtype(ml_dtypes.float8_e4m3fn),
    26: np.dtype(ml_dtypes.float8_e4m3fnuz),
    27: np.dtype(ml_dtypes.float8_e4m3b11fnuz),
    28: np.dtype(ml_dtypes.float8_e5m2fnuz),
    29: np.dtype(ml_dtypes.int4),
    30: np.dtype(ml_dtypes.uint4),
}
_NUMBER = {dtype: number for number, dtype in _NUMPY.items()}
_NAMES = {20: "DT_RESOURCE", 21: "DT_VARIANT"}

# Stands for a type without a numpy form: such a tensor is listed but cannot be read.
OPAQUE = np.dtype(np.void)


def numpy_dtype(number: int) -> np.dtype[Any]:
    """Return the dtype of the elements: `object` for strings, `OPAQUE` for types that cannot be read."""
    return _NUMPY.get(number, OPAQUE)


def type_number(dtype: np.dtype[Any]) -> int | None:
    """Return TensorFlow's number of a dtype, or None if TensorFlow does not have it."""
    return _NUMBER.get(little_endian(dtype))


def type_name(number: int) -> str:
    """Return the name of a type for messages."""
    if number in _NUMPY:
        return "string" if number == DT_STRING else str(_NUMPY[number])
    return _NAMES.get(number, f"DataType {number}")


def little_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("<") if dtype.byteorder == ">" else dtype
