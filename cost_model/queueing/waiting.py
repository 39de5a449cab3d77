# SPDX-License-Identifier: Apache-2.0
r"""Waiting time in an M/G/k queue, first come first served, from the whole distribution of the service time.

**Approximation.** While all k servers are busy, the queue behaves like an M/G/1 queue whose server is k times as fast,
and a wait begins with what the first server to become free has left (H. C. Tijms, M. H. van Hoorn and
A. Federgruen, Advances in Applied Probability 13, 1981, 186-206; M. H. van Hoorn and H. C. Tijms, Performance
Evaluation 2, 1982):

.. math::

    P(W > t) = C(k, a)\; P(R + V > t), \quad
    P(R > t) = (1 - G_e(t))^k, \quad
    G_e(t) = \frac{1}{E S}\int_0^t P(S > x)\,dx, \quad
    \hat V(s) = \frac{1 - \rho}{1 - \rho\,\hat G_e(s/k)}

with Erlang's :math:`C`, the load :math:`a = \lambda E S` and :math:`\rho = a/k`; V is the wait of that M/G/1 queue
(Pollaczek and Khinchine), computed on a grid by the fast Fourier transform.

**Range.** Exact for k = 1 (any service time) and for exponential service times (any k). Against a discrete-event
simulation (`tests/cost_model/queueing/test_pool.py`; k from 1 to 60, utilisation from 0.3 to 0.95, models alone and in
mixtures with squared coefficients of variation of service to 35) the p99 of the response is within 7 %; short requests
in large pools with much longer ones are overestimated, by up to half. Arrivals are Poisson: bursts are covered by taking
the rate of the burst.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_model.queueing.erlang import erlang_c
from cost_model.service import Floats, Points

_GRID = 1024
_REACH = 20.0


def mean_wait_allen_cunneen(servers: int, rate: float, mean: float, second_moment: float) -> float:
    r"""Return the mean wait by the formula of two moments, for a check in one line.

    :math:`E W = \frac{C(k, a)}{k (1 - \rho)} E S \frac{1 + c^2}{2}`; rate and moments in the same unit of time.

    Source: A. O. Allen, Probability, Statistics and Queueing Theory, 1990, section 5.3.
    """
    load = rate * mean
    if load >= servers:
        return float("inf")
    squared_cv = second_moment / mean**2 - 1
    return erlang_c(servers, load) / (servers - load) * mean * (1 + squared_cv) / 2


@dataclass(frozen=True, eq=False)
class Waiting:
    """Distribution of the wait of an arrival.

    Parameters
    ----------
    service : Points [µs]
        Of all requests that come, of whatever model.
    rate : float [requests/µs]
    servers : int
    """

    service: Points
    rate: float
    servers: int

    @cached_property
    def load(self) -> float:
        """Servers that are busy on average [erlang]."""
        return self.rate * self.service.mean

    @property
    def utilisation(self) -> float:
        return self.load / self.servers

    @cached_property
    def probability(self) -> float:
        """Probability of waiting at all."""
        return erlang_c(self.servers, self.load)

    @property
    def mean_us(self) -> float:
        """Mean wait [µs], of those who do not wait too."""
        if self.utilisation >= 1:
            return float("inf")
        grid, tail = self._conditional
        step = grid[1] / self.servers
        return self.probability * float(tail.sum() - tail[0] / 2) * step

    def tail(self, times_us: Floats) -> Floats:
        """Return the probability of waiting longer than each of these times [µs]; 1 for times below 0."""
        if self.utilisation >= 1:
            return np.ones_like(times_us)
        if self.load <= 0:
            return (times_us < 0).astype(np.float64)
        grid, tail = self._conditional
        waits = self.probability * np.interp(times_us * self.servers, grid, tail, right=0.0)
        return np.asarray(np.where(times_us < 0, 1.0, waits))

    @property
    def longest_us(self) -> float:
        """Time that no wait reaches [µs]; infinity in overload."""
        if self.utilisation >= 1:
            return float("inf")
        return float(self._conditional[0][-1]) / self.servers if self.load > 0 else 0.0

    @cached_property
    def _conditional(self) -> tuple[Floats, Floats]:
        """Return a grid of k times the wait [µs], and P(k·wait > grid) of those who wait."""
        order = np.argsort(self.service.values)
        values, weights = self.service.values[order], self.service.weights[order]
        mean, rho = self.service.mean, self.utilisation
        residual = self.service.second_moment / (2 * mean)
        step = _REACH * max(residual, mean) / (1 - rho) / _GRID
        grid = step * np.arange(_GRID)
        below = np.concatenate(([0.0], np.cumsum(weights)))
        partial = np.concatenate(([0.0], np.cumsum(weights * values)))

        def equilibrium(times: Floats) -> Floats:
            at = np.searchsorted(values, times, side="right")
            return np.asarray((partial[at] + times * (1 - below[at])) / mean)

        # Masses on the grid, each of the step around its point.
        edges = step * (np.arange(_GRID + 1) - 0.5)
        edges[0] = 0.0
        masses = np.diff(np.minimum(equilibrium(edges), 1.0))
        left = np.maximum(1 - equilibrium(edges / self.servers), 0.0) ** self.servers
        first = -np.diff(left)
        size = 2 * _GRID
        transformed = np.fft.rfft(masses, size)
        density = np.fft.irfft(np.fft.rfft(first, size) * (1 - rho) / (1 - rho * transformed), size)[:_GRID]
        # A point stands for the step around it: half of its mass lies beyond it.
        tail = 1 - np.cumsum(density) + density / 2
        tail[0] = 1.0
        return grid, np.clip(tail, 0.0, 1.0)
