# SPDX-License-Identifier: Apache-2.0
"""Recognize activations and layer normalization in formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graph_tools.live import is_traced
from graph_tools.recognition.formulas import Atom, Factors, Formula, X, apply, close, number, the_tensor
from graph_tools.tensors import Array

#: Tolerance for numbers that must be equal: float32 numbers after a few operations.
_NEAR = 1e-5


@dataclass(frozen=True)
class Activation:
    """An activation, or the kind `layer_norm`.

    Attributes
    ----------
    kind : str
        Its name in the plans of towers.
    alpha : float or None
        The slope of `leaky_relu`, or the epsilon of `layer_norm`.
    vectors : dict of str to ndarray [] or [k] float64
        `weight`, `scale`, `shift` of `prelu` and `dice`; `gamma`, `beta` of `layer_norm`.
    """

    kind: str
    alpha: float | None = None
    vectors: dict[str, Array] | None = None


def recognize(formula: Formula) -> Activation | None:
    """Return the activation that a formula computes, or None if towers do not have it."""
    return _piecewise_linear(formula) or _smooth(formula) or _dice(formula) or _layer_norm(formula)


def _near(a: Array, b: float | Array) -> bool:
    return bool(np.allclose(a, b, rtol=_NEAR, atol=_NEAR))


def _piecewise_linear(formula: Formula) -> Activation | None:
    """Recognize a·x for x > 0 and b·x below, in terms of x, relu(x), relu(-x) and |x|."""
    above, below, bends = np.zeros(()), np.zeros(()), False
    for factors, value in formula.terms.items():
        if factors == (X,):
            above, below = above + value, below + value
            continue
        sign = _sign_of_argument(factors)
        if sign is None:
            return None
        bends = True
        if factors[0].name == "abs":
            above, below = above + value, below - value
        elif sign > 0:
            above = above + value
        else:
            below = below - value
    if not bends or not _near(above, 1.0):
        return None
    if not np.any(below):
        return Activation("relu")
    if not is_traced(below) and np.all(below == below.ravel()[0]):
        return Activation("leaky_relu", float(below.ravel()[0]))
    return Activation("prelu", vectors={"weight": below})


def _sign_of_argument(factors: Factors) -> int | None:
    """Return the sign of x in relu(x), relu(-x) or |x|, or None if a product is something else."""
    if len(factors) != 1 or factors[0].name not in {"relu", "abs"} or factors[0].argument is None:
        return None
    terms = factors[0].argument.terms
    if set(terms) != {(X,)} or is_traced(terms[(X,)]) or abs(float(terms[(X,)].ravel()[0])) != 1 or terms[(X,)].ndim:
        return None
    return int(terms[(X,)])


def _spelled(make: Callable[[Formula], Formula]) -> Formula:
    return make(the_tensor())


def _gelu_tanh(x: Formula) -> Formula:
    inner = (x + (x * x * x).scaled(0.044715)).scaled(np.sqrt(2.0 / np.pi))
    return (x * (number(1.0) + apply("tanh", inner))).scaled(0.5)


_SMOOTH = {
    "swish": _spelled(lambda x: x * apply("sigmoid", x)),
    "gelu": _spelled(lambda x: (x * (number(1.0) + apply("erf", x.scaled(np.sqrt(0.5))))).scaled(0.5)),
    "gelu_tanh": _spelled(_gelu_tanh),
    "softplus": _spelled(lambda x: apply("log", number(1.0) + apply("exp", x))),
}


def _smooth(formula: Formula) -> Activation | None:
    return next((Activation(kind) for kind, expected in _SMOOTH.items() if close(formula, expected)), None)


def _dice(formula: Formula) -> Activation | None:
    """Recognize alpha·x + (1 - alpha)·p·x with p = sigmoid(scale·x + shift)."""
    alpha = formula.terms.get((X,), np.zeros(()))
    others = [(factors, value) for factors, value in formula.terms.items() if factors != (X,)]
    if len(others) != 1:
        return None
    factors, value = others[0]
    gates = [factor for factor in factors if factor != X]
    if len(factors) != 2 or len(gates) != 1 or gates[0].name != "sigmoid" or gates[0].argument is None:
        return None
    inner = gates[0].argument.terms
    if set(inner) - {(X,), ()} or (X,) not in inner or not _near(alpha + value, 1.0):
        return None
    return Activation("dice", vectors={"weight": alpha, "scale": inner[(X,)], "shift": inner.get((), np.zeros(()))})


def _layer_norm(formula: Formula) -> Activation | None:
    """Recognize (x - mean(x)) · rsqrt(mean(x²) - mean(x)² + epsilon) · gamma + beta."""
    (mean,) = next(iter(apply("mean", the_tensor()).terms))
    for factors, gamma in formula.terms.items():
        roots = [factor for factor in factors if factor.name == "rsqrt"]
        if len(factors) != 2 or len(roots) != 1 or X not in factors or roots[0].argument is None:
            continue
        epsilon = _epsilon(roots[0].argument, mean)
        rest = [(others, value) for others, value in formula.terms.items() if others not in (factors, ())]
        if epsilon is None or len(rest) != 1 or set(rest[0][0]) != {mean, roots[0]} or not _near(rest[0][1], -gamma):
            continue
        beta = formula.terms.get((), np.zeros(()))
        return Activation("layer_norm", epsilon, {"gamma": gamma, "beta": beta})
    return None


def _epsilon(variance: Formula, mean: Atom) -> float | None:
    """Return the number that is added to a variance, or None if the formula is no variance."""
    x = the_tensor()
    expected = apply("mean", x * x) - Formula({(mean, mean): np.ones(())})
    epsilon = variance.terms.get(())
    if epsilon is None or is_traced(epsilon) or epsilon.size != 1 or not close(variance - number(epsilon), expected):
        return None
    return float(epsilon.ravel()[0]) if epsilon.ravel()[0] > 0 else None
