# SPDX-License-Identifier: Apache-2.0
"""Fit the rows of a code to the rows of a table, by weighted least squares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_tools.tables.row_codes import RowCode
from graph_tools.tensors import Array

_MOST_STEPS = 100
# Relative residual of the normal equations at which the fit ends.
_TOLERANCE = 1e-4
# Keeps rows small of which few keys, or none, say anything; relative to the mean weight of a key.
_RIDGE = 1e-3


@dataclass(frozen=True)
class Fit:
    """The fitted rows.

    Attributes
    ----------
    rows : ndarray [rows, dim] float32
    error : float
        Weighted sum of the squared differences, relative to that of the squares of the table's rows.
    steps : int
    """

    rows: Array
    error: float
    steps: int


def fit(code: RowCode, keys: Array, rows: Array, weights: Array | None = None) -> Fit:
    """Return the rows of a code whose sums are closest to the rows of keys.

    Parameters
    ----------
    keys : ndarray [n] of integers or object (bytes)
    rows : ndarray [n, dim] float32
    weights : ndarray [n] float32, or None
        None: each key counts alike.

    Notes
    -----
    Minimizes Σ w_k ‖r_k - Σ_j x_{j, p_j(k)}‖² + λ ‖x‖², where p_j(k) is the place of key k in block j, by conjugate
    gradients on the normal equations, preconditioned by their diagonal. All columns are solved at once.
    """
    count = max(len(keys), 1)
    mass = np.ones(len(keys), np.float32) if weights is None else weights / max(float(weights.sum()) / count, 1e-30)
    mass = mass.astype(np.float32)[:, None]
    sums = _Sums(code, keys)
    diagonal = sums.scattered(np.broadcast_to(mass, (len(keys), 1))) + np.float32(_RIDGE)

    def normal(x: Array) -> Array:
        product: Array = sums.scattered(mass * sums.gathered(x)) + np.float32(_RIDGE) * x
        return product

    target = sums.scattered(mass * rows)
    x = np.zeros_like(target)
    residual, before = target.copy(), np.linalg.norm(target, axis=0)
    step = residual / diagonal
    power = _dot(residual, step)
    taken = 0
    while taken < _MOST_STEPS and np.any(np.linalg.norm(residual, axis=0) > _TOLERANCE * before):
        image = normal(step)
        rate = _divided(power, _dot(step, image))
        x += rate * step
        residual -= rate * image
        scaled = residual / diagonal
        after = _dot(residual, scaled)
        step = scaled + _divided(after, power) * step
        power, taken = after, taken + 1
    apart = float((mass * np.square(rows - sums.gathered(x))).sum(dtype=np.float64))
    whole = float((mass * np.square(rows)).sum(dtype=np.float64))
    return Fit(x, apart / whole if whole else 0.0, taken)


def _dot(a: Array, b: Array) -> Array:
    product: Array = np.einsum("ij,ij->j", a, b, dtype=np.float64).astype(np.float32)
    return product


def _divided(a: Array, b: Array) -> Array:
    """Return a / b, and 0 where both are 0: that column is solved."""
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)


class _Sums:
    """Sums of the rows of each key's places, and the reverse: sums over the keys of each place."""

    def __init__(self, code: RowCode, keys: Array) -> None:
        self._count = sum(code.sizes)
        self._parts = []
        for place, size, offset in zip(code.places(keys), code.sizes, code.offsets, strict=True):
            order = np.argsort(place, kind="stable")
            counts = np.bincount(place, minlength=size)
            used = np.flatnonzero(counts)
            starts = (np.cumsum(counts) - counts)[used]
            self._parts.append((place + offset, order, starts, used + offset))

    def gathered(self, x: Array) -> Array:
        """Return the sums [n, dim] of the rows of x [rows, dim] at each key's places."""
        total: Array = x[self._parts[0][0]]
        for place, *_ in self._parts[1:]:
            total += x[place]
        return total

    def scattered(self, values: Array) -> Array:
        """Return for each place the sum [rows, dim] of the values [n, dim] of its keys."""
        found = np.zeros((self._count, values.shape[1]), np.float32)
        for _, order, starts, used in self._parts:
            if len(starts):
                found[used] = np.add.reduceat(values[order], starts, axis=0)
        return found
