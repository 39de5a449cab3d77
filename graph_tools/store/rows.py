# SPDX-License-Identifier: Apache-2.0
"""Store rows in fewer bytes: as bf16 or fp16, or in 8 or 4 bits per element with a scale and a bias for each row.

A row x [dim] of 8 or 4 bits is stored as codes q and two fp16, `x ≈ q · scale + bias`. The bias is the smallest
element, rounded down to fp16. The scale is the rest of the range divided by the largest code, rounded up to fp16, so
that no element is cut off and the error is at most half a step of the range. A row of equal values has codes 0 and, if
fp16 can represent the value, scale 1; a row of zeros is decoded to exact zeros. Two codes of 4 bits share a byte, the
first in the low half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from graph_tools.tensors import Array

#: Largest absolute value of fp16; scales and biases are fp16 too.
LARGEST_HALF = 65504.0

_HALVES: dict[str, np.dtype[Any]] = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp16": np.dtype(np.float16)}
_BITS = {"int8": 8, "int4": 4}
# Parts of the range of a row of 4 bits that may be cut off below and above: half a step. The error of a cut-off element
# is then no larger than that of any other element, while the steps between codes are smaller.
_CUTS = ((1 / 30, 0.0), (0.0, 1 / 30))
# Bytes of a block that stays in the second-level cache with all its temporary arrays.
_STEP_BYTES = 128 << 10


def row_bytes(row_type: str, dim: int, source: np.dtype[Any]) -> int:
    """Return the bytes of a stored row; `source` is the dtype of `fp32` rows, which are stored as exported."""
    if row_type in _HALVES:
        return 2 * dim
    if row_type in _BITS:
        return codes_width(row_type, dim) + 4
    return dim * source.itemsize


def codes_width(row_type: str, dim: int) -> int:
    """Return the bytes of a row's codes."""
    return (dim * _BITS[row_type] + 7) // 8


def is_quantized(row_type: str) -> bool:
    return row_type in _BITS


def stored_dtype(row_type: str, source: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of rows, or of their codes."""
    return _HALVES.get(row_type, np.dtype(np.uint8) if row_type in _BITS else source)


def refusal(row_type: str, dim: int, source: np.dtype[Any], largest: float) -> str | None:
    """Return why a table's rows stay as exported although another type is requested, or None."""
    if row_type == "fp32":
        return None
    wanted, now = row_bytes(row_type, dim, source), dim * source.itemsize
    if wanted >= now:
        return f"{row_type} rows of dim {dim} take {wanted} bytes, those of {source} {now}: kept as {source}"
    if row_type != "bf16" and largest > LARGEST_HALF:
        return f"{row_type} rows need values up to {LARGEST_HALF:g}, found {largest:g}: kept as {source}"
    return None


@dataclass(frozen=True)
class Quantized:
    """Rows with a scale and a bias each.

    Attributes
    ----------
    codes : ndarray [n, width] uint8
    scale_bias : ndarray [n, 2] float16
    """

    codes: Array
    scale_bias: Array


def halve(rows: Array, row_type: str) -> Array:
    """Return rows [n, dim] in bf16 or fp16, rounded to the nearest value."""
    return rows.astype(_HALVES[row_type])


def quantize(rows: Array, row_type: str) -> Quantized:
    """Quantize rows [n, dim]; rows are independent of each other, so that blocks may have any size."""
    bits = _BITS[row_type]
    codes = np.empty((len(rows), codes_width(row_type, rows.shape[1])), np.uint8)
    scale_bias = np.empty((len(rows), 2), np.float16)
    step = max(64, _STEP_BYTES // (4 * rows.shape[1]))
    for begin in range(0, len(rows), step):
        # In columns, operations over rows access long contiguous stretches of memory.
        columns = np.ascontiguousarray(rows[begin : begin + step].T, np.float32)
        found, scale_bias[begin : begin + step] = _encode(columns, (1 << bits) - 1)
        codes[begin : begin + step] = found.T if bits == 8 else pack(found).T
    return Quantized(codes, scale_bias)


def dequantize(quantized: Quantized, row_type: str, dim: int) -> Array:
    """Return rows [n, dim] float32, computed with the operations of the graph in the same order."""
    codes = quantized.codes if _BITS[row_type] == 8 else unpack(quantized.codes, dim)
    wide = quantized.scale_bias.astype(np.float32)
    rows: Array = codes.astype(np.float32) * wide[:, :1] + wide[:, 1:]
    return rows


def _scale_bias(low: Array, high: Array, largest: int) -> Array:
    """Return scale and bias [n, 2] float16 for rows between low [n] and high [n] float32."""
    found = np.empty((len(low), 2), np.float16)
    found[:, 1] = bias = _round_toward(low, np.float32(-np.inf))
    found[:, 0] = _round_toward((high - bias.astype(np.float32)) / np.float32(largest), np.float32(np.inf))
    found[found[:, 0] == 0, 0] = 1
    return found


def _round_toward(values: Array, toward: np.float32) -> Array:
    """Return values [n] float32 in fp16, rounded toward negative or positive infinity."""
    half = values.astype(np.float16)
    wide = half.astype(np.float32)
    wrong = wide > values if toward < 0 else wide < values
    half[wrong] = np.nextafter(half[wrong], np.float16(toward))
    return half


def _levels(columns: Array, scale_bias: Array, largest: int) -> Array:
    """Return codes [dim, n] float32 of columns [dim, n]."""
    wide = scale_bias.astype(np.float32)
    found = columns - wide[:, 1]
    found *= 1 / wide[:, 0]
    np.rint(found, out=found)
    np.clip(found, 0, largest, out=found)
    return found


def _encode(columns: Array, largest: int) -> tuple[Array, Array]:
    """Return codes [dim, n] uint8 and scale_bias [n, 2] of columns [dim, n] float32."""
    low, high = columns.min(axis=0), columns.max(axis=0)
    chosen = _scale_bias(low, high, largest)
    levels = _levels(columns, chosen, largest)
    # Eight bits need no search: their error is far below that of bf16 anyway.
    if largest > 15 or len(columns) < 3:
        return levels.astype(np.uint8), chosen
    error = _error(columns, levels, chosen)
    spread = high - low
    for cut_low, cut_high in _CUTS:
        tried = _scale_bias(low + spread * np.float32(cut_low), high - spread * np.float32(cut_high), largest)
        tried_levels = _levels(columns, tried, largest)
        tried_error = _error(columns, tried_levels, tried)
        better = np.flatnonzero(tried_error < error)
        chosen[better], error[better] = tried[better], tried_error[better]
        levels[:, better] = tried_levels[:, better]
    return levels.astype(np.uint8), chosen


def _error(columns: Array, levels: Array, scale_bias: Array) -> Array:
    """Return the squared error [n] of rows, given in columns."""
    wide = scale_bias.astype(np.float32)
    difference = levels * wide[:, 0]
    difference += wide[:, 1]
    difference -= columns
    difference *= difference
    error: Array = difference.sum(axis=0)
    return error


def pack(codes: Array) -> Array:
    """Return codes [dim, n] of four bits as [ceil(dim / 2), n] uint8, the first of two in the low half."""
    packed = codes[::2].copy()
    packed[: len(codes) // 2] |= codes[1::2] << np.uint8(4)
    return packed


def unpack(packed: Array, dim: int) -> Array:
    """Return codes [n, dim] of packed codes [n, ceil(dim / 2)]."""
    both = np.stack([packed & np.uint8(15), packed >> np.uint8(4)], axis=2)
    return both.reshape(len(packed), -1)[:, :dim]
