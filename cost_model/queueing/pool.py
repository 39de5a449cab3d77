# SPDX-License-Identifier: Apache-2.0
"""Predict several models that share the sessions of a pool; a single model is a pool of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from cost_model.interference import Interference
from cost_model.queueing.waiting import Renewal, Waiting
from cost_model.service import Floats, Points
from cost_model.workload import Tenant

# Cumulative weights that the values of each coarse point reach: finer in the range of SLOs.
_LEVELS: Floats = np.concatenate(
    [np.linspace(0, 0.9, 25)[1:], np.linspace(0.9, 0.985, 18)[1:], np.linspace(0.985, 0.9955, 22)[1:], [0.998, 1.0]],
    dtype=np.float64,
)
LATE = 0.01


@dataclass(frozen=True)
class Prediction:
    """Contain the predicted values of a model in its allocation.

    Parameters
    ----------
    qps : float [requests/s]
    utilisation : float
        Of the sessions that it runs in, by all models there.
    mean_wait_ms, p50_ms, p99_ms : float [ms]
        Infinite in overload.
    late : float
        Part of its requests that take longer than its SLO.
    slo_p99_ms : float [ms]
    """

    qps: float
    utilisation: float
    mean_wait_ms: float
    p50_ms: float
    p99_ms: float
    late: float
    slo_p99_ms: float

    @property
    def meets(self) -> bool:
        return self.late <= LATE


@dataclass(frozen=True)
class Member:
    """Describe a model in a pool: its rate, its SLO, and its service time without other models."""

    model: Tenant
    qps: float

    @cached_property
    def _points(self) -> dict[int, Points]:
        return {}

    def points(self, threads: int) -> Points:
        """Return few points that represent its service time [µs]; each call returns the same object."""
        if threads not in self._points:
            self._points[threads] = _coarse_service(self.model, threads)
        return self._points[threads]


def coarse(points: Points) -> Points:
    """Return a distribution with few points and the same mean, fine in the upper tail."""
    if len(points.values) <= len(_LEVELS):
        return points
    order = np.argsort(points.values)
    values, weights = points.values[order], points.weights[order]
    # A point belongs to the first level that reaches its middle.
    bins = np.minimum(np.searchsorted(_LEVELS, np.cumsum(weights) - weights / 2), len(_LEVELS) - 1)
    return _merge_bins(values, weights, bins)


def _merge_bins(values: Floats, weights: Floats, bins: NDArray[np.intp]) -> Points:
    """Replace the points of each bin by one point with their mean."""
    mass = np.asarray(np.bincount(bins, weights), dtype=np.float64)
    total = np.asarray(np.bincount(bins, weights * values), dtype=np.float64)
    kept = mass > 0
    return Points(total[kept] / mass[kept], mass[kept] / mass.sum())


@lru_cache(maxsize=4096)
def _coarse_service(model: Tenant, threads: int) -> Points:
    return coarse(model.points(threads))


@dataclass(frozen=True, eq=False)
class Pool:
    """Describe models that share sessions; each session is a server with `threads` cores.

    Parameters
    ----------
    members : sequence of Member
    interference : Interference
        The slow-down by switches between models is applied here.
    memory_factor : float
        Slow-down of every request by memory contention.
    """

    members: Sequence[Member]
    interference: Interference
    memory_factor: float = 1.0

    @cached_property
    def qps(self) -> float:
        return sum(member.qps for member in self.members)

    def factor(self, place: int) -> float:
        """Return the slow-down of the member at an index."""
        return float(self.factors[place])

    @cached_property
    def factors(self) -> Floats:
        """Return the slow-down of each member: memory contention and switches between models [members]."""
        parts = np.array([member.qps for member in self.members]) / self.qps if self.qps > 0 else np.ones(1)
        each = self.memory_factor * self.interference.switch_factor(parts)
        return np.broadcast_to(each, len(self.members))

    def member_service(self, place: int, threads: int = 1) -> Points:
        """Return the service time [µs] of a member, including slow-downs."""
        points, starts = self.services(threads)
        end = starts[place + 1] if place + 1 < len(starts) else len(points.values)
        return Points(points.values[starts[place] : end], points.weights[starts[place] : end])

    def services(self, threads: int = 1) -> tuple[Points, NDArray[np.intp]]:
        """Return the service times [µs] of all members, one after the other, and where each member begins.

        The weights of each member have the sum 1.
        """
        if threads not in self._stacked:
            each = [member.points(threads) for member in self.members]
            lengths = [len(points.values) for points in each]
            values = np.concatenate([points.values for points in each]) * np.repeat(self.factors, lengths)
            starts = np.cumsum([0, *lengths[:-1]])
            self._stacked[threads] = Points(values, np.concatenate([points.weights for points in each])), starts
        return self._stacked[threads]

    @cached_property
    def _stacked(self) -> dict[int, tuple[Points, NDArray[np.intp]]]:
        return {}

    @cached_property
    def _cache(self) -> dict[int, Points]:
        return {}

    @cached_property
    def _renewals(self) -> dict[int, tuple[Renewal, Renewal | None]]:
        return {}

    def service(self, threads: int = 1) -> Points:
        """Return the service time [µs] of the next request of any model."""
        if threads not in self._cache:
            points, starts = self.services(threads)
            count = len(self.members)
            parts = [member.qps / self.qps if self.qps > 0 else 1 / count for member in self.members]
            lengths = np.diff([*starts, len(points.values)])
            mixed = Points(points.values, points.weights * np.repeat(parts, lengths))
            self._cache[threads] = mixed if count == 1 else _merge_mixture(mixed)
        return self._cache[threads]

    def load(self, threads: int = 1) -> float:
        """Return the sessions that are busy on average [erlang] at the rates of the members."""
        return self.qps / 1e6 * self.service(threads).mean

    def waiting(self, sessions: int, threads: int = 1, scale: float = 1.0) -> Waiting:
        """Return the waiting time for a number of sessions when all rates are multiplied by `scale`."""
        if threads not in self._renewals:
            service = self.service(threads)
            cold = Points(service.values + self.cold_us, service.weights)
            self._renewals[threads] = (Renewal(service), Renewal(cold) if self.cold_us > 0 else None)
        renewal, first = self._renewals[threads]
        return Waiting(renewal, scale * self.qps / 1e6, sessions, first)

    @property
    def cold_us(self) -> float:
        """Return how much longer requests take if their core was idle [µs]."""
        return self.interference.idle_start_us

    def late(self, place: int, waiting: Waiting, threads: int = 1) -> float:
        """Return the part of a member's requests that take longer than its SLO."""
        own = self.member_service(place, threads)
        time_us = self.members[place].model.slo_p99_ms * 1e3
        return float(waiting.tail(time_us - own.values, time_us - self.cold_us - own.values) @ own.weights)

    def predict(self, sessions: int, threads: int = 1, scale: float = 1.0) -> dict[str, Prediction]:
        """Predict every member."""
        waiting = self.waiting(sessions, threads, scale)
        predictions = {}
        for place, member in enumerate(self.members):
            own = self.member_service(place, threads)
            predictions[member.model.name] = Prediction(
                qps=scale * member.qps,
                utilisation=waiting.utilisation,
                mean_wait_ms=waiting.mean_us / 1e3,
                p50_ms=response_quantile_us(waiting, own, 0.5, self.cold_us) / 1e3,
                p99_ms=response_quantile_us(waiting, own, 0.99, self.cold_us) / 1e3,
                late=self.late(place, waiting, threads),
                slo_p99_ms=member.model.slo_p99_ms,
            )
        return predictions


def _merge_mixture(points: Points) -> Points:
    """Return few points for a mixture, fine in the tail of its *work*, which determines how long others wait."""
    if len(points.values) <= 256:
        return points
    order = np.argsort(points.values)
    values, weights = points.values[order], points.weights[order]
    work = np.cumsum(weights * values)
    bins = np.minimum((256 * (0.5 * np.cumsum(weights) + 0.5 * work / work[-1])).astype(int), 255)
    return _merge_bins(values, weights, bins)


def response_quantile_us(waiting: Waiting, service: Points, level: float, cold_us: float = 0.0) -> float:
    """Return the time [µs] that a request exceeds with probability 1 - level; infinity in overload."""
    low, high = float(service.values.min()), cold_us + float(service.values.max()) + waiting.longest_us
    if not np.isfinite(high):
        return float("inf")
    at = low
    for steps in (24, 24):
        times = low * (high / low) ** np.linspace(0.0, 1.0, steps)
        left = times[:, None] - service.values[None, :]
        beyond = waiting.tail(left, left - cold_us) @ service.weights
        right = int(np.argmax(beyond <= 1 - level))
        if right == 0:
            return low
        low, high = float(times[right - 1]), float(times[right])
        part = (beyond[right - 1] - (1 - level)) / (beyond[right - 1] - beyond[right])
        at = low + (high - low) * float(part)
    return at


def bandwidth_bytes_per_s(members: Sequence[Member]) -> float:
    """Return the memory traffic of models [bytes/s]."""
    return sum(member.qps * member.model.rows.mean * member.model.bytes_per_row for member in members)
