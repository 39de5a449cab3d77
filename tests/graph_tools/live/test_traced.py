# SPDX-License-Identifier: Apache-2.0
"""Traced arrays record what NumPy computes from variables, and never lose a dependence on one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graph_tools.live import Formulas, LiveTensor, Traced, UntracedError, as_float64, contiguous
from graph_tools.tensors import ArrayTensor

W = np.array([[0.0, -1.0, 2.0], [1.0, 1.0, 0.5]], np.float32)
B = np.array([0.0, 1.0, 4.0], np.float32)


def variables() -> tuple[Any, Any, Formulas]:
    formulas = Formulas()
    w, b = (LiveTensor.of_variable(formulas, name, ArrayTensor(value)) for name, value in (("w", W), ("b", B)))
    return w.traced, b.traced, formulas


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "arithmetic": lambda w, b: (w * b - 1.5) / (2.0 + b) + np.float32(0.5) / (b + 1),
    "float64": lambda w, b: (as_float64(w) * b.astype(np.float64)).astype(np.float32),
    "functions": lambda w, b: np.tanh(np.sqrt(b) + np.exp(-np.abs(w))),
    "bounds": lambda w, b: np.maximum(w, 0.25) - np.minimum(b, 1.0),
    "reshape": lambda w, b: w.reshape(-1) + np.broadcast_to(b.reshape(1, 3), (2, 3)).reshape(6),
    "transpose": lambda w, b: contiguous(w.T, np.float32),
    "row": lambda w, b: w[1] + w[-1].ravel(),
    "sum": lambda w, b: w.sum(axis=0) * b,
    "take": lambda w, b: w.take(np.array([2, 0]), 1),
    "concatenate": lambda w, b: np.concatenate([b, np.ones(2, np.float32), b]),
    "products": lambda w, b: (w @ b) @ as_float64(w) + np.ones(2) @ w,
    "operand on the left": lambda w, b: np.float64(2.0) * w + np.ones((2, 3)) - w,
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_formula_computes_what_numpy_computes(operation: Callable[[Any, Any], Any]) -> None:
    w, b, formulas = variables()
    made = operation(w, b)
    assert isinstance(made, Traced)
    for seed in (None, 0, 1):
        random = np.random.default_rng(seed)
        values = {"w": W, "b": B} if seed is None else {"w": random.normal(size=W.shape), "b": random.uniform(size=3)}
        values = {name: value.astype(np.float32) for name, value in values.items()}
        expected = operation(values["w"], values["b"])
        (found,) = formulas.evaluate([made.output], None if seed is None else values)
        assert found.dtype == expected.dtype == made.dtype
        assert found.shape == expected.shape == made.shape
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_equations_hold_if_they_hold_for_almost_all_values() -> None:
    w, b, _ = variables()
    assert np.all(b != 0)
    assert b.any()
    assert not np.any(w == 1)
    assert not np.array_equal(w[1], b)
    assert np.array_equal(w[1] * b, b * w[1])
    assert np.allclose(w + (1 - w), 1)
    assert np.all(np.isfinite(w))
    assert not np.any(b > 0)
    assert not np.any(b <= 0)


USES: dict[str, Callable[[Any], Any]] = {
    "array": np.asarray,
    "number": lambda b: float(b[0]),
    "integer": lambda b: int(b[0]),
    "condition": lambda b: bool(b[0]),
    "function": np.cumsum,
    "ufunc": np.sin,
    "reduction": lambda b: np.add.reduce(b),
    "index": lambda b: b[np.array([0, 1])],
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_use_without_a_formula_is_refused_with_the_variable(use: Callable[[Any], Any]) -> None:
    _, b, _ = variables()
    with pytest.raises(UntracedError, match="variable 'b'"):
        use(b)


def test_elements_of_a_followed_variable_are_not_read_by_mistake() -> None:
    tensor = LiveTensor.of_variable(Formulas(), "w", ArrayTensor(W))
    with pytest.raises(UntracedError, match="variable 'w': read without a formula"):
        tensor.read()
    with pytest.raises(UntracedError, match="variable 'w': read without a formula"):
        list(tensor.chunks(1) or ())
    np.testing.assert_array_equal(tensor.plain.read(), W)
