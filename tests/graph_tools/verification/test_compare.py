# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from graph_tools.errors import UsageError
from graph_tools.verification.compare import OutputComparison, Tolerance, Worst, different_bits


def _compared(a: object, b: object, tolerance: Tolerance | None = None, dtype: object = np.float32) -> OutputComparison:
    compared = OutputComparison("s", "y", "float32")
    compared.add(np.asarray(a, dtype), np.asarray(b, dtype), tolerance or Tolerance(), "request")
    compared.finish()
    return compared


def test_difference_and_place_of_the_worst() -> None:
    compared = _compared([[1, 2], [4, 8]], [[1, 2.5], [4, 8.5]])
    assert (compared.elements, compared.beyond, compared.different) == (4, 2, 2)
    assert compared.max_abs_difference == 0.5
    assert compared.max_rel_difference == pytest.approx(0.2)
    assert compared.worst == Worst("request", [0, 1], 2.0, 2.5)


def test_tolerance_is_of_the_second_model() -> None:
    assert _compared([1.0], [2.0], Tolerance(0, 0.5)).equal
    assert not _compared([2.0], [1.0], Tolerance(0, 0.5)).equal


def test_infinities_of_one_sign_are_equal() -> None:
    assert _compared([np.inf, -np.inf], [np.inf, -np.inf]).bit_exact
    assert _compared([np.inf, 1e30], [-np.inf, np.inf], Tolerance(1e38, 1)).beyond == 2


def test_nan_equals_nan_only() -> None:
    assert _compared([np.nan, 1], [np.nan, 1]).equal
    compared = _compared([np.nan, 1], [1, np.nan], Tolerance(1e9, 1e9))
    assert (compared.beyond, compared.nan_a, compared.nan_b) == (2, 1, 1)


def test_zeros_of_either_sign_are_equal_and_not_bit_exact() -> None:
    compared = _compared([0.0], [-0.0])
    assert compared.equal
    assert not compared.bit_exact


def test_integers_and_strings_are_compared_exactly() -> None:
    assert _compared([10**9], [10**9 + 1], Tolerance(0, 1), np.int64).beyond == 1
    assert _compared([b"a", b"b"], [b"a", b"c"], dtype=object).worst == Worst("request", [1], "b", "c")
    assert _compared([True], [True], dtype=bool).bit_exact


def test_shapes_and_dtypes_that_differ() -> None:
    assert _compared([1.0], [[1.0]]).shapes == 1
    compared = OutputComparison("s", "y", "float32")
    compared.add(np.ones(2, np.float32), np.ones(2, np.float64), Tolerance(), "request")
    assert compared.dtype == "float32 != float64"
    assert not compared.equal


def test_bfloat16_is_compared_as_numbers() -> None:
    import ml_dtypes

    compared = _compared([1.0, 2.0], [1.0, 2.015625], Tolerance(0, 0.01), ml_dtypes.bfloat16)
    assert compared.equal
    assert compared.different == 1


def test_empty_answers_are_equal() -> None:
    compared = _compared(np.empty((0, 3)), np.empty((0, 3)))
    assert compared.bit_exact
    assert compared.rank_correlation is None


def test_labels_give_the_auc_of_both() -> None:
    compared = OutputComparison("s", "y", "float32")
    labels = np.array([0, 1, 0, 1])
    for _ in range(2):
        compared.add(
            np.array([[0.1], [0.9], [0.2], [0.8]]), np.array([[0.1], [0.9], [0.85], [0.8]]), Tolerance(), "", labels
        )
    compared.finish()
    assert (compared.auc_a, compared.auc_b) == (1.0, 0.75)


def test_bits_of_other_dtypes_all_differ() -> None:
    assert different_bits(np.ones(3, np.float32), np.ones(3, np.float64)) == 3


@pytest.mark.parametrize(("text", "expected"), [("1e-3", (1e-3, 0)), ("0,1e-2", (0, 1e-2)), ("1,2", (1, 2))])
def test_tolerance_is_read(text: str, expected: tuple[float, float]) -> None:
    assert Tolerance.parse(text) == Tolerance(*expected)


@pytest.mark.parametrize("text", ["", "x", "1,2,3", "-1", "nan", "1,inf"])
def test_a_wrong_tolerance_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected ABS"):
        Tolerance.parse(text)
