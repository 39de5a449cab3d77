# SPDX-License-Identifier: Apache-2.0
r"""Define distributions of service time and of rows per request.

Both distributions return *points*: values and weights that represent the whole distribution. A lognormal
:math:`X = e^{\mu + \sigma Z}` is taken at equidistant :math:`z` with weights :math:`\varphi(z)`: the trapezoidal rule,
which converges faster than any power of the step for such integrands (Trefethen and Weideman, SIAM Review 56, 2014).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class Points(NamedTuple):
    """Represent a distribution by values and their weights, whose sum is 1."""

    values: Floats
    weights: Floats

    @property
    def mean(self) -> float:
        return float(self.values @ self.weights)

    @property
    def second_moment(self) -> float:
        return float((self.values * self.values) @ self.weights)

    def quantile(self, level: float) -> float:
        """Return the first value up to which the weights reach a level."""
        order = np.argsort(self.values)
        place = int(np.searchsorted(np.cumsum(self.weights[order]), level))
        return float(self.values[order][min(place, len(order) - 1)])


@cache
def normal_points(count: int, reach: float) -> Points:
    """Return points of the normal distribution with mean 0 and deviation 1, up to `reach` deviations."""
    z = np.linspace(-reach, reach, count)
    weights = np.exp(-0.5 * z * z)
    return Points(z, weights / weights.sum())


def lognormal(mean: float, cv: float) -> tuple[float, float]:
    """Return mu and sigma of the lognormal with this mean and coefficient of variation."""
    variance = math.log1p(cv * cv)
    return math.log(mean) - variance / 2, math.sqrt(variance)


@dataclass(frozen=True)
class RowDistribution:
    """Describe rows per request: constant, lognormal (rounded, from 1 to `maximum`), or a table of values and weights.

    Parameters
    ----------
    kind : "constant", "lognormal" or "table"
    nominal_mean : float [rows]
        Mean of the lognormal before it is cut; the value of the constant.
    cv : float
        Coefficient of variation of the lognormal before it is cut.
    maximum : int [rows]
    table : tuple of (rows, weight)
    """

    kind: str
    nominal_mean: float = 1.0
    cv: float = 0.0
    maximum: int = 1 << 30
    table: tuple[tuple[int, float], ...] = ()

    @staticmethod
    def constant(rows: int) -> RowDistribution:
        return RowDistribution("constant", float(rows), maximum=rows)

    @staticmethod
    def lognormal(mean: float, cv: float, maximum: int = 1 << 30) -> RowDistribution:
        return RowDistribution("lognormal", mean, cv, maximum) if cv > 0 else RowDistribution("constant", round(mean))

    def points(self, count: int = 25, reach: float = 4.8) -> Points:
        """Return values [rows] and weights."""
        if self.kind == "constant":
            return Points(np.array([self.nominal_mean]), np.ones(1))
        if self.kind == "table":
            rows, weights = np.array(self.table, dtype=np.float64).T
            return Points(rows, weights / weights.sum())
        z, weights = normal_points(count, reach)
        mu, sigma = lognormal(self.nominal_mean, self.cv)
        return Points(np.clip(np.rint(np.exp(mu + sigma * z)), 1, self.maximum), weights)

    @cached_property
    def _fine(self) -> Points:
        return self.points(1001, 7.0)

    @property
    def mean(self) -> float:
        """Return the mean after rounding and cutting [rows]."""
        return self._fine.mean

    @property
    def second_moment(self) -> float:
        """Return the second moment after rounding and cutting [rows²]."""
        return self._fine.second_moment

    def sample(self, rng: np.random.Generator, count: int) -> Floats:
        """Draw the rows of `count` requests [count] float64; values are whole numbers."""
        if self.kind == "constant":
            return np.full(count, self.nominal_mean)
        if self.kind == "table":
            rows, weights = np.array(self.table, dtype=np.float64).T
            return rng.choice(rows, size=count, p=weights / weights.sum())
        mu, sigma = lognormal(self.nominal_mean, self.cv)
        return np.clip(np.rint(np.exp(rng.normal(mu, sigma, count))), 1, self.maximum)


class Service(Protocol):
    """Define the methods of service times; `ServiceTime` and `ServiceTable` implement them."""

    @property
    def most_threads(self) -> int:
        """Return the number of threads per session beyond which a request gets no faster, as far as known."""

    def mean_us(self, rows: ArrayLike, threads: int = 1) -> Floats:
        """Return the mean service time [µs] of requests with these numbers of rows."""

    def sample(self, rng: np.random.Generator, rows: Floats, threads: int = 1) -> Floats:
        """Draw one service time [µs] for each request."""

    def points(self, rows: RowDistribution, threads: int = 1) -> Points:
        """Return the distribution over requests of all sizes, as values [µs] and weights."""

    def outside(self, rows: RowDistribution) -> float:
        """Return the part of requests whose number of rows is below or above the measured range."""

    @property
    def disturbed(self) -> float:
        """Return the share of CPU time that other processes used during measurement; 0 if it was small."""


@dataclass(frozen=True)
class ServiceTime:
    r"""Compute service time on dedicated cores: :math:`S = (f + r\,d\,(1 - p + p/t))\,N`.

    :math:`r` is the number of rows, :math:`t` the number of threads, and :math:`N` is lognormal with mean 1.

    Parameters
    ----------
    fixed_us : float [µs]
        Time of every request (f).
    per_row_us : float [µs]
        Time of each row (d).
    cv : float
        Coefficient of variation of the noise N, which multiplies everything.
    parallel : float
        Share of the work per row that a session's threads divide (p); 0: threads do not help.
    """

    fixed_us: float
    per_row_us: float
    cv: float
    parallel: float = 0.0

    @property
    def most_threads(self) -> int:
        return 64 if self.parallel > 0 and self.per_row_us > 0 else 1

    def mean_us(self, rows: ArrayLike, threads: int = 1) -> Floats:
        of_rows = self.per_row_us * (1 - self.parallel + self.parallel / threads)
        return np.asarray(self.fixed_us + of_rows * np.asarray(rows, dtype=np.float64), dtype=np.float64)

    def sample(self, rng: np.random.Generator, rows: Floats, threads: int = 1) -> Floats:
        mean = self.mean_us(rows, threads)
        if self.cv == 0:
            return mean
        mu, sigma = lognormal(1.0, self.cv)
        return mean * np.exp(rng.normal(mu, sigma, mean.shape))

    def points(self, rows: RowDistribution, threads: int = 1) -> Points:
        return _service_points(self, rows, threads)

    def outside(self, rows: RowDistribution) -> float:
        return 0.0

    @property
    def disturbed(self) -> float:
        return 0.0


@lru_cache(maxsize=4096)
def _service_points(service: ServiceTime, rows: RowDistribution, threads: int) -> Points:
    sizes = rows.points()
    mean = service.mean_us(sizes.values, threads)
    if service.cv == 0:
        return Points(mean, sizes.weights)
    z, weights = normal_points(25 if len(mean) > 1 else 201, 4.8)
    mu, sigma = lognormal(1.0, service.cv)
    values = np.outer(mean, np.exp(mu + sigma * z)).ravel()
    return Points(values, np.outer(sizes.weights, weights).ravel())


@dataclass(frozen=True)
class ServiceTable:
    """Interpolate measured service times: quantiles for some numbers of threads and rows.

    Times are linear in rows between measured numbers. Beyond these, the outermost distribution is scaled as a whole so
    that its median follows the slope of the outermost two. A falling slope is ignored, and no time is below half of the
    shortest measured time. For threads, the largest measured number that is not above the requested one is used.

    Parameters
    ----------
    threads : tuple of int
        Increasing, from 1.
    rows : tuple of int
        Increasing.
    levels : tuple of float
        Probabilities of the quantiles, increasing, from 0 to 1.
    quantiles_us : nested tuple [threads, rows, levels] of float [µs]
    disturbed : float
        Share of CPU time that other processes used during measurement; 0 if it was small.
    graph : str
        Fingerprint of the measured graph, by which a calibration identifies it.
    """

    threads: tuple[int, ...]
    rows: tuple[int, ...]
    levels: tuple[float, ...]
    quantiles_us: tuple[tuple[tuple[float, ...], ...], ...]
    disturbed: float = 0.0
    graph: str = ""

    @property
    def most_threads(self) -> int:
        return self.threads[-1]

    @cached_property
    def _cube(self) -> Floats:
        return np.array(self.quantiles_us, dtype=np.float64)

    @cached_property
    def _steps(self) -> tuple[Floats, Floats]:
        """Return the matrix from quantiles to values in the middle of each step, and the weights of the steps."""
        levels = np.array(self.levels)
        count = len(levels) - 1
        middle = np.zeros((len(levels), count))
        middle[np.arange(count), np.arange(count)] = middle[np.arange(1, count + 1), np.arange(count)] = 0.5
        return middle, np.diff(levels)

    def _quantiles(self, rows: Floats, threads: int) -> Floats:
        """Return quantiles [requests, levels] for requests with these numbers of rows."""
        table = self._cube[max(0, int(np.searchsorted(self.threads, threads, side="right")) - 1)]
        known = np.array(self.rows, dtype=np.float64)
        if len(known) == 1:
            return np.repeat(table, len(rows), axis=0)
        left = np.clip(np.searchsorted(known, rows, side="right") - 1, 0, len(known) - 2)
        part = ((rows - known[left]) / (known[left + 1] - known[left])).clip(0, 1)[:, None]
        medians = np.array([np.interp(0.5, self.levels, quantiles) for quantiles in table])
        slopes = np.maximum(0.0, np.diff(medians) / np.diff(known))
        longer = np.maximum(0.0, rows - known[-1]) * slopes[-1] / medians[-1]
        shorter = np.maximum(0.0, known[0] - rows) * slopes[0] / medians[0]
        beyond = np.maximum(0.5, 1 + longer - shorter)[:, None]
        return np.asarray((table[left] * (1 - part) + table[left + 1] * part) * beyond)

    def outside(self, rows: RowDistribution) -> float:
        sizes = rows.points()
        return float(sizes.weights[(sizes.values < self.rows[0]) | (sizes.values > self.rows[-1])].sum())

    def mean_us(self, rows: ArrayLike, threads: int = 1) -> Floats:
        asked = np.asarray(rows, dtype=np.float64)
        middle, weights = self._steps
        return np.asarray((self._quantiles(asked.ravel(), threads) @ middle @ weights).reshape(asked.shape))

    def sample(self, rng: np.random.Generator, rows: Floats, threads: int = 1) -> Floats:
        quantiles = self._quantiles(rows, threads)
        levels = np.array(self.levels)
        at = rng.random(len(rows))
        left = np.clip(np.searchsorted(levels, at, side="right") - 1, 0, len(levels) - 2)
        part = (at - levels[left]) / (levels[left + 1] - levels[left])
        each = np.arange(len(rows))
        return np.asarray(quantiles[each, left] * (1 - part) + quantiles[each, left + 1] * part)

    def points(self, rows: RowDistribution, threads: int = 1) -> Points:
        return _table_points(self, rows, threads)


@lru_cache(maxsize=4096)
def _table_points(service: ServiceTable, rows: RowDistribution, threads: int) -> Points:
    sizes = rows.points()
    middle, weights = service._steps
    values = service._quantiles(sizes.values, threads) @ middle
    return Points(values.ravel(), np.outer(sizes.weights, weights).ravel())
