# SPDX-License-Identifier: Apache-2.0
"""Convert between the library's numbers of element types and NumPy's dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from processor._ffi import ffi
from processor.errors import UnimplementedError

_NUMPY = {
    "FLOAT": "f4",
    "DOUBLE": "f8",
    "INT32": "i4",
    "UINT8": "u1",
    "INT16": "i2",
    "INT8": "i1",
    "COMPLEX64": "c8",
    "INT64": "i8",
    "BOOL": "?",
    "UINT16": "u2",
    "COMPLEX128": "c16",
    "HALF": "f2",
    "UINT32": "u4",
    "UINT64": "u8",
}

STRING: int = ffi.integer_const("PROCESSOR_STRING")
BFLOAT16: int = ffi.integer_const("PROCESSOR_BFLOAT16")

# Strings are excluded: their layout depends on more than the dtype.
NUMPY_DTYPES: dict[int, np.dtype[Any]] = {
    ffi.integer_const(f"PROCESSOR_{name}"): np.dtype(text) for name, text in _NUMPY.items()
}
_CODES: dict[np.dtype[Any], int] = {dtype: code for code, dtype in NUMPY_DTYPES.items()}
_NAMES: dict[str, int] = {f"DT_{name}": ffi.integer_const(f"PROCESSOR_{name}") for name in _NUMPY} | {
    "DT_STRING": STRING,
    "DT_BFLOAT16": BFLOAT16,
}


def code_of_name(name: str) -> int:
    """Return the number of a type name such as "DT_FLOAT"; 0 if no dense tensor of a request can have the type."""
    return _NAMES.get(name, 0)


def code_of_dtype(dtype: np.dtype[Any]) -> int:
    """Return the number of a numeric dtype in native byte order; 0 if the library has no such type."""
    code = _CODES.get(dtype, 0)
    # NumPy has no bfloat16; the dtype of ml_dtypes is recognized by its name, without an import.
    return BFLOAT16 if code == 0 and dtype.name == "bfloat16" else code


def dtype_of_code(code: int) -> np.dtype[Any]:
    """Return the dtype that belongs to a number; `object` for strings.

    Raises
    ------
    UnimplementedError
        If the number has no dtype, or is that of bfloat16 and ml_dtypes is not installed.
    """
    if code == STRING:
        return np.dtype(object)
    if code == BFLOAT16:
        return _bfloat16()
    try:
        return NUMPY_DTYPES[code]
    except KeyError:
        raise UnimplementedError(f"element type: {code}, expected one that NumPy has") from None


def _bfloat16() -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError as error:
        raise UnimplementedError(f"element type: bfloat16 needs ml_dtypes ({error}), expected that package") from error
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype
