# SPDX-License-Identifier: Apache-2.0
"""Encode rows as a file contains them, and decode them; `cut` quantizes in the same way, so that all values agree."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from graph_tools.errors import ConversionError
from graph_tools.store.row_sizes import row_size
from graph_tools.store.rows import Quantized, codes_width, dequantize, halve, is_quantized, quantize
from graph_tools.tensors import Array

_HALVES = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp16": np.dtype(np.float16)}


def encode(rows: Array, row_type: str) -> Array:
    """Return the bytes [n, row_size] uint8 of rows [n, dim] of any float type.

    Raises
    ------
    ConversionError
        The type cannot represent a value: the largest value of fp16, and of the scale and bias of int8 and int4, is
        65504.
    """
    size = row_size(row_type, rows.shape[1])
    if row_type == "fp32":
        return _bytes(rows, np.dtype("<f4"), size)
    with np.errstate(over="ignore", invalid="ignore"):
        if not is_quantized(row_type):
            half = rows if rows.dtype == _HALVES[row_type] else halve(np.asarray(rows, np.float32), row_type)
            if row_type == "fp16" and not _as_finite(half, rows):
                raise _too_large(row_type)
            return _bytes(half, _HALVES[row_type], size)
        found = quantize(np.asarray(rows, np.float32), row_type)
    if not np.isfinite(found.scale_bias).all():
        raise _too_large(row_type)
    made = np.empty((len(rows), size), np.uint8)
    made[:, :4] = found.scale_bias.view(np.uint8)
    made[:, 4:] = found.codes
    return made


def decode(encoded: Array, row_type: str, dim: int) -> Array:
    """Return the rows [n, dim] float32 of bytes [n, row_size or more] uint8."""
    size = row_size(row_type, dim)
    packed = np.ascontiguousarray(encoded[:, :size])
    if row_type == "fp32":
        rows: Array = packed.view("<f4")
        return rows
    if not is_quantized(row_type):
        wide: Array = packed.view(_HALVES[row_type]).astype(np.float32)
        return wide
    pairs = np.ascontiguousarray(packed[:, :4]).view("<f2")
    return dequantize(Quantized(packed[:, 4 : 4 + codes_width(row_type, dim)], pairs), row_type, dim)


def _bytes(rows: Array, dtype: np.dtype[np.generic], size: int) -> Array:
    return np.ascontiguousarray(rows, dtype).view(np.uint8).reshape(len(rows), size)


def _as_finite(half: Array, rows: Array) -> bool:
    """Return whether no finite number became infinite."""
    infinite = np.isinf(half)
    return not infinite.any() or bool(np.isinf(np.asarray(rows[infinite], np.float32)).all())


def _too_large(row_type: str) -> ConversionError:
    return ConversionError(
        f"rows in {row_type}: a value that is not finite or exceeds the range of fp16, expected smaller values"
    )
