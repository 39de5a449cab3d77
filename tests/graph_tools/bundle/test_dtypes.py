# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from graph_tools.bundle import dtypes


def test_every_type_is_that_of_tensorflow(tf) -> None:
    for number in range(1, 34):
        dtype = dtypes.numpy_dtype(number)
        if dtype == dtypes.OPAQUE:
            continue
        assert dtype == np.dtype(tf.as_dtype(number).as_numpy_dtype)
        assert dtypes.type_number(dtype) == number


@pytest.mark.parametrize("number", [0, 20, 21, 99, 101])
def test_types_without_a_numpy_form_are_opaque(number: int) -> None:
    assert dtypes.numpy_dtype(number) == dtypes.OPAQUE
    assert dtypes.type_name(number) in ("DT_RESOURCE", "DT_VARIANT", f"DataType {number}")


def test_big_endian_numbers_have_the_same_type() -> None:
    assert dtypes.type_number(np.dtype(">i8")) == dtypes.type_number(np.dtype("<i8"))
    assert dtypes.type_number(np.dtype("U3")) is None
    assert dtypes.type_number(np.dtype("M8[s]")) is None
