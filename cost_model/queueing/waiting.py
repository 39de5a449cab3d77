# SPDX-License-Identifier: Apache-2.0
r"""Compute waiting time in an M/G/k queue (first come, first served) from the distribution of the service time.

**Approximation.** While all k servers are busy, the queue behaves like an M/G/1 queue whose server is k times as fast,
and a wait begins with the remaining time of the first server that becomes free (H. C. Tijms, M. H. van Hoorn and
A. Federgruen, Advances in Applied Probability 13, 1981, 186-206; M. H. van Hoorn and H. C. Tijms, Performance
Evaluation 2, 1982):

.. math::

    P(W > t) = C(k, a)\; P(R + V > t), \quad
    P(R > t) = (1 - G_e(t))^k, \quad
    G_e(t) = \frac{1}{E S}\int_0^t P(S > x)\,dx, \quad
    \hat V(s) = \frac{1 - \rho}{1 - \rho\,\hat G_e(s/k)}

with Erlang's :math:`C`, the load :math:`a = \lambda E S` and :math:`\rho = a/k`; V is the wait of that M/G/1 queue
(Pollaczek and Khinchine), computed on a grid by the fast Fourier transform.

A request that finds its server idle may take longer, :math:`S_0` instead of S (cold caches). Then R is the remaining
time of :math:`S_0`, because a busy period begins with it, and the probability p of waiting solves
:math:`p = C(k, \lambda(p\,E S + (1 - p)\,E S_0))`; for k = 1 :math:`p = \rho_0/(1 - \rho + \rho_0)`, which is exact
(P. D. Welch, Operations Research 12, 1964, 736-752).

**Range.** Exact for k = 1 (any service time) and for exponential service times (any k). Against a discrete-event
simulation (`tests/cost_model/queueing/test_pool.py`; k from 1 to 60, utilisation from 0.3 to 0.8) p50 and p99 of the
response are within 8 % for a single model and within 12 % in mixtures of similar models. Short requests in pools with
requests a hundred times as long are overestimated, by up to 1.8 times. Arrivals are Poisson: to cover bursts, use the
rate of the burst.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cost_model.queueing.erlang import erlang_c
from cost_model.service import Floats, Points

_GRID = 512
_REACH = 20.0
_POINTS = np.arange(_GRID, dtype=np.float64)
# Edges of the steps around the points; the first step begins at 0.
_EDGES = np.maximum(np.arange(_GRID + 1) - 0.5, 0.0)
Complexes = NDArray[np.complex128]


def mean_wait_allen_cunneen(servers: int, rate: float, mean: float, second_moment: float) -> float:
    r"""Return the mean wait by the formula of two moments, as a simple check.

    :math:`E W = \frac{C(k, a)}{k (1 - \rho)} E S \frac{1 + c^2}{2}`; rate and moments use the same unit of time.

    Source: A. O. Allen, Probability, Statistics and Queueing Theory, 1990, section 5.3.
    """
    load = rate * mean
    if load >= servers:
        return float("inf")
    squared_cv = second_moment / mean**2 - 1
    return erlang_c(servers, load) / (servers - load) * mean * (1 + squared_cv) / 2


class Renewal:
    """Prepare the distribution of the remaining service time that an arrival finds, for many evaluations.

    Parameters
    ----------
    service : Points [µs]
        Service times of all arriving requests, of any model.
    """

    def __init__(self, service: Points) -> None:
        order = np.argsort(service.values)
        self.values, weights = service.values[order], service.weights[order]
        self.mean, self.second_moment = service.mean, service.second_moment
        # Scale of residuals; for constant service times it is twice the mean remaining time.
        self.scale = max(self.second_moment / self.mean / 2, self.mean)
        self._above = 1 - np.concatenate(([0.0], np.cumsum(weights)))
        self._work = np.concatenate(([0.0], np.cumsum(weights * self.values)))
        self._squares = np.concatenate(([0.0], np.cumsum(weights * self.values**2)))
        self._transforms: dict[float, Complexes] = {}

    def below(self, times: Floats) -> Floats:
        """Return the equilibrium distribution G_e at times [µs]."""
        at = np.searchsorted(self.values, times, side="right")
        return np.asarray((self._work[at] + times * self._above[at]) / self.mean, dtype=np.float64)

    def transform(self, step: float) -> Complexes:
        """Return the Fourier transform of G_e on a grid with this step [µs].

        Mass between two points is divided between them in proportion (second differences of the integral of G_e), which
        keeps the mean for any step.
        """
        if step not in self._transforms:
            times = step * np.arange(_GRID + 1)
            at = np.searchsorted(self.values, times, side="right")
            above = self._above[at]
            integral = (times * self._work[at] - self._squares[at] / 2 + above * times * times / 2) / self.mean
            masses = np.concatenate((integral[1:2], np.diff(integral, 2))) / step
            self._transforms[step] = np.fft.rfft(np.maximum(masses, 0.0), 2 * _GRID)
        return self._transforms[step]


@dataclass(frozen=True, eq=False)
class Waiting:
    """Describe the distribution of the waiting time of an arrival.

    Parameters
    ----------
    service : Renewal
    rate : float [requests/µs]
    servers : int
    first : Renewal, optional
        For requests that find a server idle, if these take longer.
    """

    service: Renewal
    rate: float
    servers: int
    first: Renewal | None = None

    @cached_property
    def load(self) -> float:
        """Return the servers that are busy on average [erlang]."""
        return self.rate * self.service.mean

    @property
    def utilisation(self) -> float:
        return self.load / self.servers

    @cached_property
    def probability(self) -> float:
        """Return the probability of waiting at all."""
        if self.first is None or self.load >= self.servers:
            return erlang_c(self.servers, self.load)
        low, high = 0.0, 1.0
        for _ in range(30):
            middle = (low + high) / 2
            load = self.rate * (middle * self.service.mean + (1 - middle) * self.first.mean)
            low, high = (middle, high) if erlang_c(self.servers, load) > middle else (low, middle)
        return (low + high) / 2

    @property
    def mean_us(self) -> float:
        """Return the mean wait [µs], including requests that do not wait."""
        if self.utilisation >= 1:
            return float("inf")
        grid, tail = self._conditional
        step = grid[1] / self.servers
        return self.probability * float(tail.sum() - tail[0] / 2) * float(step)

    def tail(self, times_us: Floats, idle_us: Floats | None = None) -> Floats:
        """Return the probability of waiting longer than each of these times [µs]; 1 for times below 0.

        With `idle_us`, return the probability of being late: `times_us` are the allowed waits, and `idle_us` the
        remaining time of a request that finds a server idle.
        """
        if self.utilisation >= 1:
            return np.ones_like(times_us)
        idle = times_us if idle_us is None else idle_us
        if self.load <= 0:
            return (idle < 0).astype(np.float64)
        grid, tail = self._conditional
        waits = np.where(times_us < 0, 1.0, np.interp(times_us * self.servers, grid, tail, right=0.0))
        return np.asarray(self.probability * waits + (1 - self.probability) * (idle < 0))

    @property
    def longest_us(self) -> float:
        """Return a time that no wait reaches [µs]; infinity in overload."""
        if self.utilisation >= 1:
            return float("inf")
        return float(self._conditional[0][-1]) / self.servers if self.load > 0 else 0.0

    @cached_property
    def _conditional(self) -> tuple[Floats, Floats]:
        """Return a grid of k times the wait [µs], and P(k·wait > grid) for requests that wait."""
        rho = self.utilisation
        # Only a few step sizes are used, so that the transform is often cached.
        step = _REACH * self.service.scale * 2 ** (np.ceil(-2 * np.log2(1 - rho)) / 2) / _GRID
        begun = self.first or self.service
        left = np.maximum(1 - begun.below(step / self.servers * _EDGES), 0.0) ** self.servers
        first = np.fft.rfft(left[:-1] - left[1:], 2 * _GRID)
        density = np.fft.irfft(first * ((1 - rho) / (1 - rho * self.service.transform(step))), 2 * _GRID)[:_GRID]
        # A point represents the step around it: half of its mass is beyond it.
        tail = 1 - np.cumsum(density) + density / 2
        tail[0] = 1.0
        return step * _POINTS, np.clip(tail, 0.0, 1.0)
