# SPDX-License-Identifier: Apache-2.0
"""Test the encoding of rows as bytes, and its inverse."""

import ml_dtypes
import numpy as np
import pytest

from graph_tools.errors import ConversionError
from graph_tools.store.layout import ROW_TYPES
from graph_tools.store.quantize import decode, encode
from graph_tools.store.row_sizes import row_size
from graph_tools.store.rows import dequantize, quantize
from helpers.models.embedding_tables import rows_of


@pytest.mark.parametrize("dim", [1, 2, 5, 16, 33])
@pytest.mark.parametrize("row_type", ROW_TYPES)
def test_rows_keep_their_values(row_type: str, dim: int) -> None:
    rows = rows_of(101, dim)
    encoded = encode(rows, row_type)
    assert encoded.shape == (101, row_size(row_type, dim))
    assert encoded.dtype == np.uint8
    step = {"fp32": 0.0, "bf16": 1 / 256, "fp16": 1 / 2048, "int8": 1 / 255, "int4": 1 / 15}[row_type]
    spread = np.abs(rows).max(axis=1, keepdims=True) * 2
    found = decode(encoded, row_type, dim)
    assert found.dtype == np.float32
    assert (np.abs(found - rows) <= step * spread + 1e-7).all()
    assert not found[1].any()


@pytest.mark.parametrize("row_type", ["int8", "int4"])
def test_quantized_rows_are_those_of_cut(row_type: str) -> None:
    rows = rows_of(57, 9)
    by_cut = dequantize(quantize(rows, row_type), row_type, 9)
    np.testing.assert_array_equal(decode(encode(rows, row_type), row_type, 9), by_cut)


def test_bytes_are_the_documented_ones() -> None:
    rows = np.array([[0.0, 17.0, 85.0, 255.0, 34.0]], np.float32)
    assert encode(rows, "int8").tolist() == [[0, 0x3C, 0, 0, 0, 17, 85, 255, 34]]
    rows = np.array([[0.0, 1.0, 5.0, 15.0, 2.0]], np.float32)
    assert encode(rows, "int4").tolist() == [[0, 0x3C, 0, 0, 0x10, 0xF5, 0x02]]
    assert encode(np.array([[1.0, -2.0]], np.float32), "bf16").tolist() == [[0x80, 0x3F, 0x00, 0xC0]]
    assert encode(np.array([[1.0, -2.0]], np.float32), "fp16").tolist() == [[0x00, 0x3C, 0x00, 0xC0]]


def test_sources_of_other_floats() -> None:
    rows = rows_of(7, 3)
    for dtype in (np.float64, np.float16, ml_dtypes.bfloat16):
        source = rows.astype(dtype)
        np.testing.assert_array_equal(decode(encode(source, "fp32"), "fp32", 3), source.astype(np.float32))
    halves = rows.astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(decode(encode(halves, "bf16"), "bf16", 3), halves.astype(np.float32))


@pytest.mark.parametrize("row_type", ["fp16", "int8", "int4"])
def test_values_that_do_not_fit_are_refused(row_type: str) -> None:
    with pytest.raises(ConversionError, match="exceeds the range"):
        encode(np.array([[1.0, 1e8]], np.float32), row_type)


def test_only_floats_store_infinity_and_nan() -> None:
    rows = np.array([[np.inf, np.nan, -np.inf]], np.float32)
    for row_type in ("fp32", "bf16", "fp16"):
        np.testing.assert_array_equal(decode(encode(rows, row_type), row_type, 3), rows)
    for row_type in ("int8", "int4"):
        with pytest.raises(ConversionError, match="not finite"):
            encode(rows, row_type)
