# SPDX-License-Identifier: Apache-2.0
"""Compute how many cores a pool needs, how to divide them into sessions, and how far its traffic can grow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from cost_model.interference import Interference
from cost_model.queueing import Member, Pool
from cost_model.queueing.pool import LATE
from cost_model.service import Floats

# Limits the utilization of a pool whose SLOs no allocation can meet, so that it is not overloaded.
_HOPELESS_UTILISATION = 0.8
_THREADS = (1, 2, 4, 8, 16)
# Growth is a whole power of this, so that it does not depend on the order of the computations.
_STEP = 1.005
_LEAST_GROWTH = 1e-9


class Sizing:
    """Compute sizes of one pool repeatedly; results are cached.

    Parameters
    ----------
    members : sequence of Member
    interference : Interference
    memory_factor : float
    most : int [cores]
        Number of cores of the machine.
    """

    def __init__(self, members: Sequence[Member], interference: Interference, memory_factor: float, most: int) -> None:
        self.members = tuple(members)
        self.pool = Pool(self.members, interference, memory_factor)
        self.most = most
        # More cores never miss what fewer meet, and neither does less traffic: keep both sides of the known border.
        self._met: list[tuple[int, float]] = []
        self._missed: list[tuple[int, float]] = []
        self._idle: dict[int, np.ndarray] = {}
        self._points: dict[int, tuple[Floats, Floats, Floats, np.ndarray]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.model.name for member in self.members)

    @property
    def is_baseline(self) -> bool:
        return any(member.model.role == "baseline" for member in self.members)

    @cached_property
    def load(self) -> float:
        """Return the cores that are busy on average, with one thread per session."""
        return self.pool.load()

    @cached_property
    def threads(self) -> tuple[int, ...]:
        """Return the useful numbers of threads per session."""
        most = min(self.most, max(member.model.service.most_threads for member in self.members))
        return tuple(count for count in _THREADS if count <= most)

    @cached_property
    def late_alone(self) -> dict[str, float]:
        """Return, for models that miss their SLO alone on idle cores, the parts of their requests that do so.

        No allocation helps these models: no number of threads meets the SLO.
        """
        return {name: float(part) for name, part in zip(self.names, self._alone, strict=True) if part > LATE}

    @cached_property
    def crowded(self) -> tuple[str, ...]:
        """Return models that miss their SLO on idle cores only because of switches between models in this pool."""
        bad = self._lost & (self._alone <= LATE)
        return tuple(name for name, is_bad in zip(self.names, bad, strict=True) if is_bad)

    @cached_property
    def _alone(self) -> Floats:
        """Return the part of each member's requests that is late alone on idle cores; 0 if all meet their SLO."""
        if not self._lost.any():
            return np.zeros(len(self.members))
        found = []
        for threads in self.threads:
            (values, weights), starts = self.pool.services(threads)
            each = self.pool.memory_factor / self.pool.factors
            alone = self.pool.cold_us + values * np.repeat(each, np.diff([*starts, len(values)]))
            found.append(np.add.reduceat(weights * (alone > self._slo_us(starts, len(values))), starts))
        return np.asarray(np.min(found, axis=0))

    @cached_property
    def _lost(self) -> np.ndarray:
        """Return members that miss their SLO in this pool with any number of cores; the others must still meet it."""
        return np.asarray(np.all([self._idle_late(threads) for threads in self.threads], axis=0))

    def _slo_us(self, starts: np.ndarray, count: int) -> Floats:
        """Return the SLO [µs] for each point of each member."""
        slo_us = np.array([member.model.slo_p99_ms * 1e3 for member in self.members])
        return np.asarray(np.repeat(slo_us, np.diff([*starts, count])))

    def _idle_late(self, threads: int) -> np.ndarray:
        """Return which members miss their SLO without any waiting."""
        if threads not in self._idle:
            _, idle, weights, starts = self._tails(threads)
            self._idle[threads] = np.add.reduceat(weights * (idle < 0), starts) > LATE
        return self._idle[threads]

    def _tails(self, threads: int) -> tuple[Floats, Floats, Floats, np.ndarray]:
        """Return how much of the SLO every point of every member leaves [µs], the weights, and where members begin.

        The first array is the time that a request can wait, the second is the remaining time if its core was idle.
        """
        if threads not in self._points:
            (values, weights), starts = self.pool.services(threads)
            slo_us = self._slo_us(starts, len(values))
            self._points[threads] = (slo_us - values, slo_us - self.pool.cold_us - values, weights, starts)
        return self._points[threads]

    def late(self, sessions: int, threads: int, scale: float = 1.0) -> Floats:
        """Return, for each member, the part of its requests that is late."""
        waiting = self.pool.waiting(sessions, threads, scale)
        if waiting.utilisation >= 1:
            return np.ones(len(self.members))
        times, idle, weights, starts = self._tails(threads)
        return np.asarray(np.add.reduceat(weights * waiting.tail(times, idle), starts))

    def meets(self, cores: int, scale: float = 1.0) -> bool:
        """Return whether this number of cores meets all SLOs, except those that no number of cores meets."""
        if any(cores >= known and scale <= at for known, at in self._met):
            return True
        if any(cores <= known and scale >= at for known, at in self._missed):
            return False
        found = any(self._meets(cores, threads, scale) for threads in self.threads if threads <= cores)
        (self._met if found else self._missed).append((cores, scale))
        return found

    def _meets(self, cores: int, threads: int, scale: float) -> bool:
        sessions = cores // threads
        utilisation = scale * self.pool.load(threads) / sessions
        if utilisation >= (_HOPELESS_UTILISATION if self._lost.any() else 1.0):
            return False
        if np.any(self._idle_late(threads) & ~self._lost):
            return False
        late = self.late(sessions, threads, scale)
        return bool(np.all((late <= LATE) | self._lost))

    def need(self, scale: float = 1.0, least: int = 1, most: int | None = None) -> int:
        """Return the fewest cores that meet all SLOs at `scale` times the rates; `most` + 1 if none do.

        Parameters
        ----------
        scale : float
        least : int
            Known lower bound.
        most : int, optional
            Upper bound; by default that of the machine.
        """
        top = self.most if most is None else most
        low = max(least, math.floor(scale * self.load * self._cheapest) + 1)
        step = max(1, round(math.sqrt(low) / 4))
        high = low
        while high <= top and not self.meets(high, scale):
            low, high = high + 1, high + step
            step *= 2
        if high > top:
            high = top + 1
            if low > top or not self.meets(top, scale):
                return top + 1
            high = top
        while low < high:
            middle = (low + high) // 2
            if self.meets(middle, scale):
                high = middle
            else:
                low = middle + 1
        return low

    @cached_property
    def _cheapest(self) -> float:
        """Return the fewest cores per unit of load over the numbers of threads: 1, as dividing never saves work."""
        return min((t * self.pool.load(t) / self.load for t in self.threads), default=1.0) if self.load > 0 else 1.0

    def growth(self, cores: int) -> float:
        """Return the largest factor of all rates at which this number of cores meets all SLOs; 0 if none does.

        It is a power of 1.005: earlier calls make the computation faster but do not change its result.
        """
        if self.load <= 0:
            return math.inf if self.meets(cores) else 0.0
        low, high = self._bracket(cores)
        # Without load only the service times count.
        if low == 0 and not self.meets(cores, _LEAST_GROWTH):
            return 0.0
        met = math.floor(_power(max(low, _LEAST_GROWTH)) + 1e-6)
        missed = math.ceil(_power(high) - 1e-6)
        while missed - met > 1:
            middle = round(_power((_STEP**met + _STEP**missed) / 2))
            middle = min(max(middle, met + 1), missed - 1)
            met, missed = (middle, missed) if self.meets(cores, _STEP**middle) else (met, middle)
        return float(_STEP**met)

    def _bracket(self, cores: int) -> tuple[float, float]:
        """Return a growth that this number of cores is known to allow, and one that it is known not to allow."""
        low = max((at for known, at in self._met if known <= cores), default=0.0)
        high = min((at for known, at in self._missed if known >= cores), default=math.inf)
        return low, min(high, cores / (self.load * self._cheapest))

    def best_sessions(self, parts: Sequence[int]) -> tuple[int, int]:
        """Return sessions and threads per session: the fewest threads that meet all SLOs, else those that miss least.

        Parameters
        ----------
        parts : sequence of int [cores]
            Number of cores on each node: no session spans two nodes.
        """
        options = [(sum(part // t for part in parts), t) for t in self.threads if t <= max(parts)]
        if len(options) == 1:
            return options[0]
        meeting = next(((s, t) for s, t in options if self._meets(s * t, t, 1.0)), None)
        return meeting or min(options, key=lambda option: float(self.late(*option).max()))


def _power(factor: float) -> float:
    """Return the exponent of a factor as a power of the step of growth."""
    return math.log(factor) / math.log(_STEP)
