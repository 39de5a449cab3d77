# SPDX-License-Identifier: Apache-2.0
"""The optimizers of elastic_training in NumPy: one class that steps rows in the order of operations of the C++ code.

With dtype float32 every operation rounds as the C++ code's does, so weights and slots must be equal bit for bit. With
float64 the same class tells how far rounding moves them. `AlgorithmOne` is the published algorithm as it is printed,
with the quantities that the C++ code does not keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[Any]
LANES = 16


@dataclass(frozen=True)
class Setting:
    """What the JSON of a table says about its optimizer."""

    kind: str
    initial_accumulator: float = 0.1
    epsilon: float = 1e-7
    beta_1: float = 0.9
    beta_2: float = 0.999
    learning_rate_power: float = -0.5
    l2_shrinkage: float = 0.0
    beta: float = 0.0
    l1: float = 0.0
    l2: float = 0.0
    l21: float = 0.0
    release_after: int = 0

    @property
    def lasso(self) -> bool:
        return self.l1 > 0 or self.l2 > 0 or self.l21 > 0


def lane_sum(values: Rows) -> Rows:
    """Sum each row as the C++ code does: element i into lane i mod 16, then lanes 8, 4, 2 and 1 apart.

    Parameters
    ----------
    values : ndarray [rows, dim] float

    Returns
    -------
    ndarray [rows], of the same dtype
    """
    rows, dim = values.shape
    lanes = np.zeros((rows, LANES), values.dtype)
    for first in range(0, dim, LANES):
        block = values[:, first : first + LANES]
        lanes[:, : block.shape[1]] += block
    for half in (8, 4, 2, 1):
        lanes = lanes[:, :half] + lanes[:, half : 2 * half]
    return lanes[:, 0]


def power(base: float, exponent: int) -> float:
    """base^exponent in float64 by repeated squaring, from the lowest bit of the exponent."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


class Formula:
    """All rows of a table under one optimizer.

    Parameters
    ----------
    setting : Setting
    weights : ndarray [rows, dim] float32 or float64
        The initial rows, whose dtype the arithmetic has.
    """

    def __init__(self, setting: Setting, weights: Rows) -> None:
        self.setting = setting
        self.type = weights.dtype.type
        self.x = weights.copy()
        rows, dim = weights.shape
        shape = (rows, dim)
        accumulator = self.type(np.float32(setting.initial_accumulator))
        self.accumulator = np.full((rows, 1) if setting.kind == "rowwise_adagrad" else shape, accumulator, self.type)
        self.momentum, self.velocity = np.zeros(shape, self.type), np.zeros(shape, self.type)
        self.count = np.zeros(rows, np.int64)
        self.residual = np.zeros(shape, self.type)  # z of FTRL, its part that regularization made of the others
        self.zero_since = np.zeros(rows, np.int64)  # 0: not zero

    def slots(self) -> Rows:
        """Return the slots [rows, k] in the order of a row, without the step since which it is zero."""
        kind = self.setting.kind
        parts = {
            "sgd": [],
            "adagrad": [self.accumulator],
            "rowwise_adagrad": [self.accumulator],
            "adam": [self.momentum, self.velocity, self.count[:, None].astype(self.type)],
            "ftrl": [self.accumulator, self.residual],
        }[kind]
        if self.setting.lasso and kind != "ftrl":
            parts = [*parts, self.residual]
        return np.concatenate(parts, axis=1) if parts else np.zeros((len(self.x), 0), self.type)

    def step(self, rows: NDArray[np.int64], gradient: Rows, rate: float, step: int = 1) -> NDArray[np.int64]:
        """Apply one update, and return the numbers of the rows that are released by it.

        Parameters
        ----------
        rows : ndarray [n] int64
            Distinct row numbers.
        gradient : ndarray [n, dim]
            Finite; cast to the dtype of the weights.
        rate : float
            The learning rate.
        step : int
            The step of the table, from 1.
        """
        g, lr = gradient.astype(self.type), self.type(np.float32(rate))
        if self.setting.kind == "ftrl":
            zero = self._ftrl(rows, g, lr)
        elif self.setting.lasso:
            zero = self._lasso(rows, *self._direction(rows, g, lr), lr)
        else:
            self._plain(rows, g, lr)
            return rows[:0]
        stays = zero & (self.zero_since[rows] > 0)
        self.zero_since[rows] = np.where(stays, self.zero_since[rows], np.where(zero, step, 0))
        return self.release(step, rows)

    def release(self, step: int, rows: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Give back the slots of those of `rows`, or of all, that are due at `step`, and return their numbers."""
        if not self.setting.release_after:
            return np.zeros(0, np.int64)
        rows = np.arange(len(self.x)) if rows is None else rows
        since = self.zero_since[rows]
        due = rows[(since > 0) & (step - since >= self.setting.release_after)]
        fresh = Formula(self.setting, self.x[due])
        for name in ("accumulator", "momentum", "velocity", "count", "residual", "zero_since"):
            getattr(self, name)[due] = getattr(fresh, name)
        return due

    def _scalar(self, value: float) -> Any:
        return self.type(np.float32(value))

    def _add_square(self, rows: NDArray[np.int64], g: Rows) -> Rows:
        square = g * g
        if self.setting.kind == "rowwise_adagrad":
            square = (lane_sum(square) / self.type(g.shape[1]))[:, None]
        self.accumulator[rows] += square
        return self.accumulator[rows]

    def _moments(self, rows: NDArray[np.int64], g: Rows) -> tuple[Rows, Rows]:
        one = self.type(1)
        m, v = self.momentum[rows], self.velocity[rows]
        m = m + (g - m) * (one - self._scalar(self.setting.beta_1))
        v = v + (g * g - v) * (one - self._scalar(self.setting.beta_2))
        self.momentum[rows], self.velocity[rows] = m, v
        self.count[rows] = np.minimum(self.count[rows] + 1, 2**24)
        return m, v

    def _corrections(self, rows: NDArray[np.int64]) -> tuple[Rows, Rows]:
        """1 - beta_1^t and sqrt(1 - beta_2^t) of each row in float64, [n, 1]."""
        first, second = (float(np.float32(beta)) for beta in (self.setting.beta_1, self.setting.beta_2))
        counts = [int(count) for count in self.count[rows]]
        return (
            np.array([[1.0 - power(first, t)] for t in counts]).reshape(-1, 1),
            np.array([[np.sqrt(1.0 - power(second, t))] for t in counts]).reshape(-1, 1),
        )

    def _plain(self, rows: NDArray[np.int64], g: Rows, lr: Any) -> None:
        x, epsilon = self.x[rows], self._scalar(self.setting.epsilon)
        if self.setting.kind == "sgd":
            self.x[rows] = x - lr * g
        elif self.setting.kind == "adam":
            m, v = self._moments(rows, g)
            first, second = self._corrections(rows)
            alpha = lr * (second / first).astype(np.float32).astype(self.type)
            self.x[rows] = x - (m * alpha) / (np.sqrt(v) + epsilon)
        elif self.setting.kind == "adagrad":
            self.x[rows] = x - (lr * g) / np.sqrt(self._add_square(rows, g) + epsilon)
        else:
            self.x[rows] = x - (lr / np.sqrt(self._add_square(rows, g) + epsilon)) * g

    def _direction(self, rows: NDArray[np.int64], g: Rows, lr: Any) -> tuple[Rows, Rows]:
        """Return m, and √V divided by the step size, which the published algorithm divides by."""
        epsilon = self._scalar(self.setting.epsilon)
        with np.errstate(divide="ignore"):
            inverse = self.type(1) / lr
        if self.setting.kind == "sgd":
            return g, np.full_like(g, inverse)
        if self.setting.kind == "adam":
            m, v = self._moments(rows, g)
            first, second = self._corrections(rows)
            scale = (1.0 / second).astype(np.float32).astype(self.type) * inverse
            return m * (1.0 / first).astype(np.float32).astype(self.type), (np.sqrt(v) + epsilon) * scale
        denominator = np.sqrt(self._add_square(rows, g) + epsilon) * inverse
        return g, np.broadcast_to(denominator, g.shape)

    def _shrink(self, z: Rows) -> tuple[Rows, Rows]:
        """Return s and the factor max(0, 1 - √d λ21 / ‖s‖) of each row."""
        l1 = self._scalar(self.setting.l1)
        s = np.clip(z, -l1, l1) - z
        norm = np.sqrt(lane_sum(s * s))[:, None]
        threshold = np.sqrt(self.type(z.shape[1])) * self._scalar(self.setting.l21)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = self.type(1) - threshold / norm
        return s, np.where(norm > threshold, factor, self.type(0))

    def _lasso(self, rows: NDArray[np.int64], m: Rows, denominator: Rows, lr: Any) -> NDArray[np.bool_]:
        if lr == 0:  # only the moments have changed
            return ~self.x[rows].any(axis=1)
        z = (self.residual[rows] + m) - denominator * self.x[rows]
        s, factor = self._shrink(z)
        two_l2 = self.type(2) * self._scalar(self.setting.l2)
        x = np.where(factor > 0, (factor * s) / (denominator + two_l2), self.type(0))
        self.x[rows] = x
        self.residual[rows] = np.where(factor > 0, z + denominator * x, z)
        return factor[:, 0] <= 0

    def _ftrl(self, rows: NDArray[np.int64], g: Rows, lr: Any) -> NDArray[np.bool_]:
        if lr == 0:
            return ~self.x[rows].any(axis=1)
        setting, two = self.setting, self.type(2)
        x, old = self.x[rows], self.accumulator[rows]
        new = old + g * g
        root_new, root_old = self._root(new), self._root(old)
        shrunk = g + (two * self._scalar(setting.l2_shrinkage)) * x
        z = self.residual[rows] + (shrunk - ((root_new - root_old) / lr) * x)
        quadratic = root_new / lr + two * (self._scalar(setting.l2) + self._scalar(setting.beta) / (two * lr))
        self.accumulator[rows], self.residual[rows] = new, z
        s, factor = self._shrink(z)
        self.x[rows] = np.where(factor > 0, (factor * s) / quadratic, self.type(0))
        return factor[:, 0] <= 0

    def _root(self, accumulator: Rows) -> Rows:
        if self.setting.learning_rate_power == -0.5:
            return np.sqrt(accumulator)
        return np.power(accumulator, -self._scalar(self.setting.learning_rate_power))


class AlgorithmOne:
    """Algorithm 1 of "Adaptive Optimizers with Sparse Group Lasso" as it is printed, in float64, with z₀ = V₀ = 0.

    Adagrad counts its initial accumulator in the denominator alone, as Keras does. Adam corrects the bias of each row
    by the row's own number of updates, which the paper, whose rows are all updated in each step, need not tell apart.
    """

    def __init__(self, setting: Setting, weights: Rows) -> None:
        self.setting = setting
        self.x = weights.astype(np.float64)
        self.first, self.second = np.zeros_like(self.x), np.zeros_like(self.x)
        self.z, self.scale = np.zeros_like(self.x), np.zeros_like(self.x)
        self.count = np.zeros(len(weights), np.int64)

    def step(self, rows: NDArray[np.int64], gradient: Rows, rate: float) -> None:
        """Apply one update to distinct rows with the step size `rate`."""
        setting, x, g = self.setting, self.x[rows], gradient.astype(np.float64)
        self.count[rows] += 1
        m, root = self._moments(rows, g, self.count[rows][:, None])
        scale = root / rate
        z = self.z[rows] + m - (scale - self.scale[rows]) * x
        s = np.where(np.abs(z) <= setting.l1, 0.0, np.sign(z) * setting.l1 - z)
        norm = np.linalg.norm(s, axis=1, keepdims=True)
        threshold = np.sqrt(z.shape[1]) * setting.l21
        factor = np.where(norm > 0, np.maximum(0.0, 1 - threshold / np.where(norm > 0, norm, 1.0)), 0.0)
        self.x[rows] = factor * s / (scale + 2 * setting.l2)
        self.z[rows], self.scale[rows] = z, scale

    def _moments(self, rows: NDArray[np.int64], g: Rows, t: NDArray[np.int64]) -> tuple[Rows, Rows]:
        setting = self.setting
        if setting.kind == "sgd":
            return g, np.ones_like(g)
        if setting.kind == "adam":
            beta_1, beta_2 = float(np.float32(setting.beta_1)), float(np.float32(setting.beta_2))
            self.first[rows] = beta_1 * self.first[rows] + (1 - beta_1) * g
            self.second[rows] = beta_2 * self.second[rows] + (1 - beta_2) * g**2
            corrected = np.sqrt(self.second[rows]) + setting.epsilon
            return self.first[rows] / (1 - beta_1**t), corrected / np.sqrt(1 - beta_2**t)
        square = g**2 if setting.kind == "adagrad" else np.mean(g**2, axis=1, keepdims=True)
        self.second[rows] += square
        return g, np.sqrt(self.second[rows] + setting.initial_accumulator + setting.epsilon)
