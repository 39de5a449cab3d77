# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import processor
from processor._numbers import from_python


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        ([1, 2], "f4", [1.0, 2.0]),
        ([1, 2], "i4", [1, 2]),
        (7, "i1", 7),
        ([[1.5], [2.5]], "f4", [[1.5], [2.5]]),
        ([True, False], "?", [True, False]),
        ([True, False], "i8", [1, 0]),
        (2**63, "u8", 2**63),
        ([1, 2.5], "c8", [1, 2.5]),
        ([1j], "c16", [1j]),
        ([1.5], ml_dtypes.bfloat16, [1.5]),
        ([float("inf"), float("-inf")], "f4", [float("inf"), float("-inf")]),
        ([], "i4", []),
        ([[], []], "f4", [[], []]),
    ],
)
def test_python_numbers_are_converted_to_the_dtype(value: object, dtype: object, expected: object) -> None:
    array = from_python("x", value, np.dtype(dtype))  # type: ignore[call-overload]
    assert array.dtype == np.dtype(dtype)  # type: ignore[call-overload]
    assert array.tolist() == expected


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1.5], "i4"),
        ([1j], "f4"),
        ([1], "?"),
        ([128], "i1"),
        ([-1], "u1"),
        ([2**31], "i4"),
        ([2**64], "u8"),
        ([1e39], "f4"),
        ([70000.0], "f2"),
        ([[1], [2, 3]], "i4"),
        (["1"], "f4"),
        ([None], "f4"),
        ([object()], "i4"),
    ],
)
def test_number_that_the_dtype_cannot_represent_is_refused(value: object, dtype: str) -> None:
    with pytest.raises(processor.InvalidArgumentError, match="input 'height': "):
        from_python("height", value, np.dtype(dtype))
