# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from graph_tools.store.rows import (
    Quantized,
    codes_width,
    dequantize,
    halve,
    pack,
    quantize,
    refusal,
    row_bytes,
    unpack,
)

F32 = np.dtype(np.float32)
ROW_SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=9)


@pytest.mark.parametrize(
    ("dim", "expected"),
    [(64, (256, 128, 128, 68, 36)), (16, (64, 32, 32, 20, 12)), (8, (32, 16, 16, 12, 8)), (1, (4, 2, 2, 5, 5))],
)
def test_bytes_of_a_row(dim: int, expected: tuple[int, ...]) -> None:
    assert tuple(row_bytes(row_type, dim, F32) for row_type in ("fp32", "bf16", "fp16", "int8", "int4")) == expected


@pytest.mark.parametrize("row_type", ["int8", "int4"])
@given(hnp.arrays(np.float32, ROW_SHAPES, elements=st.floats(-60000, 60000, width=32)))
def test_error_is_at_most_half_a_step(row_type: str, rows: np.ndarray) -> None:
    quantized = quantize(rows, row_type)
    assert quantized.codes.shape == (len(rows), codes_width(row_type, rows.shape[1]))
    found = dequantize(quantized, row_type, rows.shape[1])
    wide = rows.astype(np.float64)
    low, high = wide.min(axis=1, keepdims=True), wide.max(axis=1, keepdims=True)
    # fp16 rounds the ends of the range outwards by a part in 1,024 of their size, or its smallest number.
    ends = np.maximum(np.abs(low), np.abs(high)) / 1024 + 6e-8
    steps = {"int8": 255, "int4": 15}[row_type]
    step = (high - low + ends) / steps * (1 + 1 / 1024) + 6e-8
    assert (np.abs(found - wide) <= step * 0.5 + ends * 2**-10 + np.abs(wide) * 2**-22).all()


@pytest.mark.parametrize("row_type", ["int8", "int4"])
@pytest.mark.parametrize("dim", [1, 2, 3, 16])
def test_zero_rows_are_zero_again(row_type: str, dim: int) -> None:
    rows = np.zeros((3, dim), np.float32)
    rows[1] = np.float32(-0.0)
    quantized = quantize(rows, row_type)
    assert not quantized.codes.any()
    np.testing.assert_array_equal(quantized.scale_bias[:, 0], 1)
    assert not dequantize(quantized, row_type, dim).any()


def test_range_of_four_bits_is_chosen_for_a_lower_error() -> None:
    rows = np.random.default_rng(0).normal(size=(2000, 32)).astype(np.float32)
    low, high = rows.min(axis=1, keepdims=True), rows.max(axis=1, keepdims=True)
    plain = np.rint((rows - low) / (high - low) * 15) * (high - low) / 15 + low
    found = dequantize(quantize(rows, "int4"), "int4", 32)
    assert ((found - rows) ** 2).mean() < 0.93 * ((plain - rows) ** 2).mean()


def test_blocks_of_any_size_give_the_same() -> None:
    rows = np.random.default_rng(1).normal(size=(5000, 5)).astype(np.float32)
    whole = quantize(rows, "int4")
    parts = [quantize(rows[begin : begin + 777], "int4") for begin in range(0, 5000, 777)]
    np.testing.assert_array_equal(whole.codes, np.concatenate([part.codes for part in parts]))
    np.testing.assert_array_equal(whole.scale_bias, np.concatenate([part.scale_bias for part in parts]))


@given(hnp.arrays(np.uint8, ROW_SHAPES, elements=st.integers(0, 15)))
def test_first_of_two_codes_is_in_the_low_half(codes: np.ndarray) -> None:
    packed = pack(codes.T).T
    assert packed[0, 0] & 15 == codes[0, 0]
    np.testing.assert_array_equal(unpack(packed, codes.shape[1]), codes)


def test_halves_round_to_the_nearest() -> None:
    rows = np.array([[1.0, 1.00390625, 65504.0]], np.float32)
    assert halve(rows, "bf16").astype(np.float32).tolist() == [[1.0, 1.0, 65536.0]]
    assert halve(rows, "fp16").astype(np.float32).tolist() == [[1.0, 1.00390625, 65504.0]]


@pytest.mark.parametrize(
    ("row_type", "dim", "dtype", "largest", "refused"),
    [
        ("fp32", 1, np.float32, 1e9, False),
        ("int8", 1, np.float32, 1.0, True),
        ("int8", 2, np.float32, 1.0, False),
        ("int4", 1, np.float32, 1.0, True),
        ("bf16", 1, np.float32, 1e9, False),
        ("fp16", 8, np.float32, 1e9, True),
        ("int8", 8, np.float32, 1e9, True),
        ("bf16", 8, np.float16, 1.0, True),
        ("int8", 8, np.float16, 1.0, False),
    ],
)
def test_unsuitable_row_types_are_refused(row_type: str, dim: int, dtype: type, largest: float, refused: bool) -> None:
    assert (refusal(row_type, dim, np.dtype(dtype), largest) is not None) == refused


def test_dequantize_is_codes_times_scale_plus_bias() -> None:
    quantized = Quantized(np.array([[0x21]], np.uint8), np.array([[0.5, -1.0]], np.float16))
    assert dequantize(quantized, "int4", 2).tolist() == [[-0.5, 0.0]]
    assert dequantize(quantized, "int8", 1).tolist() == [[15.5]]
