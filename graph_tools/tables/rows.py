# SPDX-License-Identifier: Apache-2.0
"""Rows in fewer bytes: halves, and 8 or 4 bits an element with a scale and a bias for each row.

A row x [dim] of 8 or 4 bits is stored as codes q and two fp16, `x ≈ q · scale + bias`. The bias is the smallest
element, rounded down to fp16; the scale is what is left of the range divided by the largest code, rounded up to fp16,
so that no element is cut off and the error is at most half a scale. A row of one value has codes 0 and, if fp16 holds
the value, scale 1; a row of zeros is exactly zero again. Two codes of 4 bits share a byte, the first in the low half.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from graph_tools.tensors import Array

#: Largest absolute value that fp16 holds; scales and biases are fp16 too.
LARGEST_HALF = 65504.0

_HALVES: dict[str, np.dtype[Any]] = {"bf16": np.dtype(ml_dtypes.bfloat16), "fp16": np.dtype(np.float16)}
_BITS = {"int8": 8, "int4": 4}
# Part of the range that the codes of a row may cover: cutting off the outermost element lowers the error of all others.
_SHRINKS = (1.0, 0.92, 0.84, 0.76)
_STEP_ROWS = 8192


def row_bytes(row_type: str, dim: int, source: np.dtype[Any]) -> int:
    """Return the bytes of a stored row; `source` is the dtype of `fp32`, which means as exported."""
    if row_type in _HALVES:
        return 2 * dim
    if row_type in _BITS:
        return codes_width(row_type, dim) + 4
    return dim * source.itemsize


def codes_width(row_type: str, dim: int) -> int:
    """Return the bytes of a row's codes."""
    return (dim * _BITS[row_type] + 7) // 8


def is_quantised(row_type: str) -> bool:
    return row_type in _BITS


def stored_dtype(row_type: str, source: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of rows, or of their codes."""
    return _HALVES.get(row_type, np.dtype(np.uint8) if row_type in _BITS else source)


def refusal(row_type: str, dim: int, source: np.dtype[Any], largest: float) -> str | None:
    """Return why a table's rows stay as exported although another type is asked for, or None."""
    if row_type == "fp32":
        return None
    wanted, now = row_bytes(row_type, dim, source), dim * source.itemsize
    if wanted >= now:
        return f"{row_type} rows of dim {dim} take {wanted} bytes, those of {source} {now}: kept as {source}"
    if row_type != "bf16" and largest > LARGEST_HALF:
        return f"{row_type} rows need values up to {LARGEST_HALF:g}, found {largest:g}: kept as {source}"
    return None


@dataclass(frozen=True)
class Quantised:
    """Rows with a scale and a bias each.

    Attributes
    ----------
    codes : ndarray [n, width] uint8
    scale_bias : ndarray [n, 2] float16
    """

    codes: Array
    scale_bias: Array


def halve(rows: Array, row_type: str) -> Array:
    """Return rows [n, dim] in bf16 or fp16, rounded to the nearest."""
    return rows.astype(_HALVES[row_type])


def quantise(rows: Array, row_type: str) -> Quantised:
    """Quantise rows [n, dim]; every row by itself, so that blocks may be of any size."""
    bits = _BITS[row_type]
    codes = np.empty((len(rows), codes_width(row_type, rows.shape[1])), np.uint8)
    scale_bias = np.empty((len(rows), 2), np.float16)
    for begin in range(0, len(rows), _STEP_ROWS):
        part = np.ascontiguousarray(rows[begin : begin + _STEP_ROWS], np.float32)
        found, scale_bias[begin : begin + len(part)] = _encode(part, (1 << bits) - 1)
        codes[begin : begin + len(part)] = found if bits == 8 else pack(found)
    return Quantised(codes, scale_bias)


def scales(rows: Array, row_type: str) -> Array:
    """Return what `quantise` gives as scale_bias [n, 2] float16."""
    if _BITS[row_type] < 8:
        return quantise(rows, row_type).scale_bias
    made = np.empty((len(rows), 2), np.float16)
    for begin in range(0, len(rows), _STEP_ROWS):
        part = np.ascontiguousarray(rows[begin : begin + _STEP_ROWS], np.float32)
        made[begin : begin + len(part)] = _scale_bias(part.min(axis=1), part.max(axis=1), 255)
    return made


def dequantise(quantised: Quantised, row_type: str, dim: int) -> Array:
    """Return rows [n, dim] float32, with the operations of the graph in their order."""
    codes = quantised.codes if _BITS[row_type] == 8 else unpack(quantised.codes, dim)
    wide = quantised.scale_bias.astype(np.float32)
    rows: Array = codes.astype(np.float32) * wide[:, :1] + wide[:, 1:]
    return rows


def _scale_bias(low: Array, high: Array, largest: int) -> Array:
    """Return [n, 2] float16 for rows between low [n] and high [n] float32."""
    bias = _rounded(low, np.float32(-np.inf))
    scale = _rounded((high - bias.astype(np.float32)) / np.float32(largest), np.float32(np.inf))
    scale[scale == 0] = 1
    return np.stack([bias, scale], axis=1)[:, ::-1]


def _rounded(values: Array, towards: np.float32) -> Array:
    """Return values [n] float32 in fp16, rounded towards one end."""
    half = values.astype(np.float16)
    wide = half.astype(np.float32)
    wrong = wide > values if towards < 0 else wide < values
    half[wrong] = np.nextafter(half[wrong], np.float16(towards))
    return half


def _codes(rows: Array, scale_bias: Array, largest: int) -> Array:
    wide = scale_bias.astype(np.float32)
    found = rows - wide[:, 1:]
    found /= wide[:, :1]
    np.rint(found, out=found)
    np.clip(found, 0, largest, out=found)
    return found.astype(np.uint8)


def _encode(rows: Array, largest: int) -> tuple[Array, Array]:
    """Return codes [n, dim] uint8 and scale_bias [n, 2] for rows [n, dim] float32."""
    low, high = rows.min(axis=1), rows.max(axis=1)
    chosen = _scale_bias(low, high, largest)
    codes = _codes(rows, chosen, largest)
    # Eight bits need no search: their error is far below that of bf16 anyway.
    if largest > 15 or rows.shape[1] < 3:
        return codes, chosen
    error = _error(rows, codes, chosen)
    for shrink in _SHRINKS:
        for cut_low in (True, False):
            for cut_high in (True, False):
                if shrink == 1.0 or not (cut_low or cut_high):
                    continue
                cut = (high - low) * np.float32(1 - shrink) * np.float32(0.5 if cut_low and cut_high else 1)
                tried = _scale_bias(low + cut if cut_low else low, high - cut if cut_high else high, largest)
                tried_codes = _codes(rows, tried, largest)
                tried_error = _error(rows, tried_codes, tried)
                better = tried_error < error
                chosen[better], codes[better], error[better] = tried[better], tried_codes[better], tried_error[better]
    return codes, chosen


def _error(rows: Array, codes: Array, scale_bias: Array) -> Array:
    wide = scale_bias.astype(np.float32)
    difference = codes * wide[:, :1] + wide[:, 1:] - rows
    error: Array = np.einsum("ij,ij->i", difference, difference)
    return error


def pack(codes: Array) -> Array:
    """Return codes [n, dim] of four bits as [n, ceil(dim / 2)] uint8, the first of two in the low half."""
    packed = codes[:, ::2].copy()
    packed[:, : codes.shape[1] // 2] |= codes[:, 1::2] << np.uint8(4)
    return packed


def unpack(packed: Array, dim: int) -> Array:
    """Return codes [n, dim] of packed ones."""
    both = np.stack([packed & np.uint8(15), packed >> np.uint8(4)], axis=2)
    return both.reshape(len(packed), -1)[:, :dim]
