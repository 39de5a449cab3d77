# SPDX-License-Identifier: Apache-2.0
"""Compare the outputs of two models."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def assert_same_outputs(
    actual: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    *,
    exact: bool = False,
    atol: float = 1e-5,
    label: str = "",
) -> None:
    """Check names, dtypes, shapes and values: |actual - expected| <= atol + 1e-5 * |expected|.

    Only floating-point and complex numbers may differ, and with `exact` they may not differ either.
    """
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        message = f"{name} {label}".rstrip()
        assert (actual[name].dtype, actual[name].shape) == (value.dtype, value.shape), message
        if exact or value.dtype.kind not in "fc":
            np.testing.assert_array_equal(actual[name], value, err_msg=message)
        else:
            np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=atol, err_msg=message)
