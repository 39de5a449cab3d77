# SPDX-License-Identifier: Apache-2.0
"""Formulas: what a few nodes compute from one tensor, in a normal form that is equal for all forms of an activation.

A formula is a sum of products: of numbers (one, or one for each element of the last axis), of the tensor x, and of
functions of formulas. Products of sums are multiplied out, so that `0.5 * x * (1 + erf(x / sqrt(2)))` and
`(x * 0.5) + erf(0.70710678 * x) * (0.5 * x)` are the same two terms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graph_tools.live import as_float64
from graph_tools.tensors import Array

_MOST_TERMS = 24
_MOST_FACTORS = 6


class NotAFormulaError(Exception):
    """The computation has no such form, or a long one."""


@dataclass(frozen=True)
class Atom:
    """A factor: x, or a function of a formula.

    Attributes
    ----------
    name : str
        `x`, or the name of the function.
    argument : Formula or None
    key : tuple
        Equal for equal atoms.
    """

    name: str
    argument: Formula | None = field(default=None, compare=False, repr=False)
    key: tuple[Any, ...] = ("x",)

    @property
    def is_row(self) -> bool:
        """Return whether the factor is one number for all elements of a row: a mean, or a function of means."""
        if self.name == "mean":
            return True
        return self.argument is not None and all(factor.is_row for factors in self.argument.terms for factor in factors)


Factors = tuple[Atom, ...]
X = Atom("x")


class Formula:
    """A sum of products.

    Attributes
    ----------
    terms : dict of tuple of Atom to ndarray [] or [k] float64
        The coefficient of each product, by the sorted factors of the product. `()` is the constant term.
    """

    def __init__(self, terms: dict[Factors, Array]) -> None:
        self.terms = {factors: value for factors, value in terms.items() if np.any(value != 0)}
        if len(self.terms) > _MOST_TERMS or any(len(term) > _MOST_FACTORS for term in self.terms):
            raise NotAFormulaError

    @property
    def key(self) -> tuple[Any, ...]:
        parts = [
            (tuple(factor.key for factor in factors), value.shape, value.astype(np.float32).tobytes())
            for factors, value in self.terms.items()
        ]
        return tuple(sorted(parts, key=repr))

    @property
    def number(self) -> Array | None:
        """Return the value of a constant formula, or None."""
        return self.terms.get((), np.zeros(())) if not set(self.terms) - {()} else None

    def __add__(self, other: Formula) -> Formula:
        terms = dict(self.terms)
        for factors, value in other.terms.items():
            terms[factors] = terms.get(factors, np.zeros(())) + value
        return Formula(terms)

    def __mul__(self, other: Formula) -> Formula:
        terms: dict[Factors, Array] = {}
        for term, a in self.terms.items():
            for other_term, b in other.terms.items():
                factors = tuple(sorted(term + other_term, key=repr))
                terms[factors] = terms.get(factors, np.zeros(())) + a * b
        return Formula(terms)

    def scaled(self, by: float | Array) -> Formula:
        """Multiply by numbers."""
        return Formula({factors: value * by for factors, value in self.terms.items()})

    def __sub__(self, other: Formula) -> Formula:
        return self + other.scaled(-1.0)


def number(value: Any) -> Formula:
    """Make a constant: one number, or one for each element of the last axis."""
    return Formula({(): as_float64(value)})


def the_tensor() -> Formula:
    """Make the formula x."""
    return Formula({(X,): np.ones(())})


def apply(name: str, argument: Formula) -> Formula:
    """Apply a function to a formula; the result is a number if the formula is one, else equal for equal formulas."""
    value = argument.number
    if value is not None and name in _NUMBERS:
        with np.errstate(all="ignore"):
            return number(_NUMBERS[name](value))
    special = _SPECIAL.get(name)
    return special(argument) if special else _atom(name, argument)


def _atom(name: str, argument: Formula) -> Formula:
    return Formula({(Atom(name, argument, (name, argument.key)),): np.ones(())})


def _homogeneous(name: str, argument: Formula) -> Formula:
    """Apply relu(c·y) = c·relu(y) for c > 0, and |c·y| = |c|·|y|."""
    if len(argument.terms) == 1:
        (factors, value), *_ = argument.terms.items()
        if factors and (name == "abs" or np.all(value > 0) or np.all(value < 0)):
            sign = np.ones(()) if name == "abs" or np.all(value > 0) else -np.ones(())
            return _atom(name, Formula({factors: sign})).scaled(np.abs(value))
    return _atom(name, argument)


def _odd(name: str, argument: Formula) -> Formula:
    """Apply f(-y) = -f(y)."""
    negative = len(argument.terms) == 1 and all(np.all(value < 0) for value in argument.terms.values())
    return _atom(name, argument.scaled(-1.0)).scaled(-1.0) if negative else _atom(name, argument)


def _root(argument: Formula) -> Formula:
    """Apply √max(y, 0) = √y, since the argument of a root is not negative here."""
    if len(argument.terms) == 1:
        (factors, value), *_ = argument.terms.items()
        if len(factors) == 1 and factors[0].name == "relu" and factors[0].argument is not None and np.all(value == 1):
            return _atom("sqrt", factors[0].argument)
    return _atom("sqrt", argument)


def _mean(argument: Formula) -> Formula:
    """Write the mean of a sum as a sum of means, with factors that are one number per row before them."""
    total = Formula({})
    for factors, value in argument.terms.items():
        rows, others = (
            tuple(factor for factor in factors if factor.is_row),
            tuple(factor for factor in factors if not factor.is_row),
        )
        if value.ndim:
            raise NotAFormulaError
        inner = _atom("mean", Formula({others: np.ones(())})) if others else number(1.0)
        total += inner * Formula({rows: value})
    return total


def maximum(a: Formula, b: Formula) -> Formula:
    """Return max(a, b) = b + relu(a - b)."""
    return b + apply("relu", a - b)


def minimum(a: Formula, b: Formula) -> Formula:
    """Return min(a, b) = a - relu(a - b)."""
    return a - apply("relu", a - b)


def where_positive(condition: Formula, positive: Formula, negative: Formula) -> Formula:
    """Return `where(x > 0, a·x, b·x)` = a·relu(x) - b·relu(-x)."""
    if set(condition.terms) != {(X,)} or not np.all(condition.terms[(X,)] > 0):
        raise NotAFormulaError
    if set(positive.terms) - {(X,)} or set(negative.terms) - {(X,)}:
        raise NotAFormulaError
    above, below = apply("relu", the_tensor()), apply("relu", the_tensor().scaled(-1.0))
    zero = np.zeros(())
    return above.scaled(positive.terms.get((X,), zero)) - below.scaled(negative.terms.get((X,), zero))


def divided(numerator: Formula, divisor: Formula) -> Formula:
    """Divide by numbers, by a root, or by `1 + exp(-y)`."""
    value = divisor.number
    if value is not None:
        if not np.all(value):
            raise NotAFormulaError
        return numerator.scaled(1.0 / value)
    if len(divisor.terms) == 1:
        (factors, scale), *_ = divisor.terms.items()
        if len(factors) == 1 and factors[0].name == "sqrt" and factors[0].argument is not None:
            return numerator * _atom("rsqrt", factors[0].argument).scaled(1.0 / scale)
    rest = divisor - number(1.0)
    if len(rest.terms) == 1:
        (factors, scale), *_ = rest.terms.items()
        if len(factors) == 1 and factors[0].name == "exp" and factors[0].argument is not None and np.all(scale == 1):
            return numerator * _atom("sigmoid", factors[0].argument.scaled(-1.0))
    raise NotAFormulaError


def power(base: Formula, exponent: Formula) -> Formula:
    """Raise to the power 2 or 3, written as a product."""
    value = exponent.number
    if value is None or value.size != 1 or value.ravel()[0] not in (2, 3):
        raise NotAFormulaError
    return base * base if value.ravel()[0] == 2 else base * base * base


_NUMBERS: dict[str, Callable[[Array], Array]] = {
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sqrt": np.sqrt,
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0.0),
    "abs": np.abs,
}
_SPECIAL: dict[str, Callable[[Formula], Formula]] = {
    "relu": lambda argument: _homogeneous("relu", argument),
    "abs": lambda argument: _homogeneous("abs", argument),
    "mean": _mean,
    "erf": lambda argument: _odd("erf", argument),
    "erfc": lambda argument: number(1.0) - _odd("erf", argument),
    "tanh": lambda argument: _odd("tanh", argument),
    "sqrt": _root,
}


def close(first: Formula, second: Formula, tolerance: float = 1e-5) -> bool:
    """Return whether two formulas are equal except for the rounding of their numbers."""
    left = list(second.terms.items())
    for factors, value in first.terms.items():
        for i, (others, other) in enumerate(left):
            near = np.allclose(value, other, rtol=tolerance, atol=0)
            if near and _same_factors(factors, others, tolerance):
                del left[i]
                break
        else:
            return False
    return not left


def _same_factors(first: Factors, second: Factors, tolerance: float) -> bool:
    left = list(second)
    for atom in first:
        for i, other in enumerate(left):
            if _same_atom(atom, other, tolerance):
                del left[i]
                break
        else:
            return False
    return not left


def _same_atom(first: Atom, second: Atom, tolerance: float) -> bool:
    if first.name != second.name or first.argument is None or second.argument is None:
        return first == second
    return first.key == second.key or close(first.argument, second.argument, tolerance)
