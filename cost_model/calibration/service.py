# SPDX-License-Identifier: Apache-2.0
r"""Compute service times under load on a machine from those of a profile.

A profile is taken with one caller that waits for each response. Under traffic, a request costs more or less, because
the contents of caches differ, the session may not have slept since the previous request, the speed of the core varies,
and the kernel or the hypervisor sometimes takes the core away:

.. math::

    S' = W + \sum_{j=1}^{N} D_j, \qquad W = (o + f\,S)\,J, \qquad N \sim \mathrm{Poisson}(\nu\,W)

with an overhead o, a factor f, a lognormal J with mean 1 and coefficient of variation c, and stalls of the core that
last D and come at the rate :math:`\nu` while requests run. The overhead may be below 0: a caller that waits for each
response pays for waking the session each time, and requests that have waited do not.
That is the *completion time* of a queue whose server breaks down (B. Avi-Itzhak and P. Naor, Operations Research 11,
1963, model A; D. P. Gaver, Journal of the Royal Statistical Society B 24, 1962). Stalls of idle cores are omitted:
they delay few requests, because they end while no request waits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from cost_model.queueing.pool import coarse
from cost_model.service import Floats, Points, RowDistribution, ServiceTable, ServiceTime, lognormal, normal_points

# Beyond this level, the requests of a profile were disturbed while it was taken; stalls represent them.
UNDISTURBED = 0.9
# A negative overhead leaves at least this part of the time that remains after the factor.
_LEAST = 0.25


@dataclass(frozen=True)
class Disturbance:
    """Describe what a machine adds to the service times of a profile.

    Parameters
    ----------
    overhead_us : float [µs]
        Overhead of every request (o); below 0 if the profile has costs that requests under traffic do not have. It
        removes at most three quarters of the time that remains after the factor.
    factor : float
        f.
    cv : float
        Coefficient of variation c of the random multiplier of both.
    stalls : tuple of (duration [µs], rate [1/s])
        Lengths of stalls, with the number of stalls of each length per second of work.
    """

    overhead_us: float = 0.0
    factor: float = 1.0
    cv: float = 0.0
    stalls: tuple[tuple[float, float], ...] = ()

    @property
    def stall_rate(self) -> float:
        """Return the number of stalls of any length [1/s]."""
        return sum(rate for _, rate in self.stalls)

    @property
    def stalled(self) -> float:
        """Return the seconds of stalls per second of work."""
        return sum(duration * rate for duration, rate in self.stalls) / 1e6


@dataclass(frozen=True)
class CalibratedService:
    """Service times of a profile or a workload file, on a machine under load; see `cost_model.service.Service`."""

    base: ServiceTime | ServiceTable
    disturbance: Disturbance

    @property
    def most_threads(self) -> int:
        return self.base.most_threads

    @property
    def undisturbed(self) -> ServiceTime | ServiceTable:
        return undisturbed(self.base)

    def _work_us(self, times_us: Floats) -> Floats:
        scaled = self.disturbance.factor * times_us
        return np.asarray(np.maximum(self.disturbance.overhead_us + scaled, _LEAST * scaled))

    def mean_us(self, rows: ArrayLike, threads: int = 1) -> Floats:
        return self._work_us(self.undisturbed.mean_us(rows, threads)) * (1 + self.disturbance.stalled)

    def sample(self, rng: np.random.Generator, rows: Floats, threads: int = 1) -> Floats:
        worked = self._work_us(self.undisturbed.sample(rng, rows, threads))
        if self.disturbance.cv > 0:
            worked = worked * np.exp(rng.normal(*lognormal(1.0, self.disturbance.cv), len(worked)))
        stalls = self.disturbance.stalls
        for duration, rate in stalls:
            worked = worked + duration * rng.poisson(worked * (rate / 1e6))
        return np.asarray(worked)

    def points(self, rows: RowDistribution, threads: int = 1) -> Points:
        return _points(self, rows, threads)

    def outside(self, rows: RowDistribution) -> float:
        return self.base.outside(rows)

    @property
    def disturbed(self) -> float:
        return self.base.disturbed


@lru_cache(maxsize=64)
def undisturbed(service: ServiceTime | ServiceTable) -> ServiceTime | ServiceTable:
    """Return service times without the disturbances that were present during measurement; formulas have none."""
    if not isinstance(service, ServiceTable):
        return service
    last = max(place for place, level in enumerate(service.levels) if level <= UNDISTURBED)
    quantiles = tuple(
        tuple(each[: last + 1] + (each[last],) * (len(each) - last - 1) for each in of_threads)
        for of_threads in service.quantiles_us
    )
    return replace(service, quantiles_us=quantiles)


@lru_cache(maxsize=4096)
def _points(service: CalibratedService, rows: RowDistribution, threads: int) -> Points:
    base = coarse(service.undisturbed.points(rows, threads))
    worked, usual = service._work_us(base.values), base.weights
    if service.disturbance.cv > 0:
        z, weights = normal_points(25, 4.8)
        mu, sigma = lognormal(1.0, service.disturbance.cv)
        varied = Points(np.outer(worked, np.exp(mu + sigma * z)).ravel(), np.outer(usual, weights).ravel())
        worked, usual = coarse(varied)
    stalls = service.disturbance.stalls
    if not stalls:
        return Points(worked, usual)
    durations, rates = np.array(stalls, dtype=np.float64).T
    expected = worked * (rates.sum() / 1e6)
    stalled = -np.expm1(-expected)
    # Model stalls as one stall, longer by so much that the mean stays the same: two stalls in one request are rare.
    several = expected / stalled
    late = worked[:, None] + several[:, None] * durations[None, :]
    weights = (usual * stalled)[:, None] * (rates / rates.sum())[None, :]
    return Points(
        np.concatenate([worked, late.ravel()]),
        np.concatenate([usual * (1 - stalled), weights.ravel()]),
    )
