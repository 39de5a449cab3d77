# SPDX-License-Identifier: Apache-2.0
"""How many cores a pool needs, how they are best cut into sessions, and how far its traffic can grow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from cost_model.interference import Interference
from cost_model.queueing import Member, Pool
from cost_model.queueing.pool import LATE
from cost_model.service import Floats

# What is left of a pool whose objectives no allocation can meet is kept from running over.
_HOPELESS_UTILISATION = 0.8
_THREADS = (1, 2, 4, 8, 16)
# Growth is a whole power of this, so that it is the same however it is come by.
_STEP = 1.005
_LEAST_GROWTH = 1e-9


class Sizing:
    """A pool, asked again and again.

    Parameters
    ----------
    members : sequence of Member
    interference : Interference
    memory_factor : float
    most : int [cores]
        That the machine has.
    """

    def __init__(self, members: Sequence[Member], interference: Interference, memory_factor: float, most: int) -> None:
        self.members = tuple(members)
        self.pool = Pool(self.members, interference, memory_factor)
        self.most = most
        # More cores never miss what fewer meet, nor does less traffic: both sides of the border, as far as it is known.
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
        """Cores that are busy on average, one thread a session."""
        return self.pool.load()

    @cached_property
    def threads(self) -> tuple[int, ...]:
        """Numbers of threads per session that make sense."""
        most = min(self.most, max(member.model.service.most_threads for member in self.members))
        return tuple(count for count in _THREADS if count <= most)

    @cached_property
    def late_alone(self) -> dict[str, float]:
        """Parts of their requests that models miss alone on idle cores, of those that miss their objective there.

        Nothing helps these: no number of threads meets it.
        """
        return {name: float(part) for name, part in zip(self.names, self._alone, strict=True) if part > LATE}

    @cached_property
    def crowded(self) -> tuple[str, ...]:
        """Models that miss their objective on idle cores only by what switches between models cost in this pool."""
        bad = self._lost & (self._alone <= LATE)
        return tuple(name for name, one in zip(self.names, bad, strict=True) if one)

    @cached_property
    def _alone(self) -> Floats:
        """Part of each member's requests that is late on idle cores without others; 0 where all meet objectives."""
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
        """Members that miss their objectives in this pool whatever its cores; the others are still to meet theirs."""
        return np.asarray(np.all([self._idle_late(threads) for threads in self.threads], axis=0))

    def _slo_us(self, starts: np.ndarray, count: int) -> Floats:
        """Return the objective [µs] of each point of each member."""
        slo_us = np.array([member.model.slo_p99_ms * 1e3 for member in self.members])
        return np.asarray(np.repeat(slo_us, np.diff([*starts, count])))

    def _idle_late(self, threads: int) -> np.ndarray:
        """Return which members miss their objectives without any wait."""
        if threads not in self._idle:
            _, idle, weights, starts = self._tails(threads)
            self._idle[threads] = np.add.reduceat(weights * (idle < 0), starts) > LATE
        return self._idle[threads]

    def _tails(self, threads: int) -> tuple[Floats, Floats, Floats, np.ndarray]:
        """Return what every point of every member has left of its objective [µs], weights, and where members begin.

        What is left is the time that it can wait and, second, what remains if its core was idle.
        """
        if threads not in self._points:
            (values, weights), starts = self.pool.services(threads)
            slo_us = self._slo_us(starts, len(values))
            self._points[threads] = (slo_us - values, slo_us - self.pool.cold_us - values, weights, starts)
        return self._points[threads]

    def late(self, sessions: int, threads: int, scale: float = 1.0) -> Floats:
        """Return for each member the part of its requests that is late."""
        waiting = self.pool.waiting(sessions, threads, scale)
        if waiting.utilisation >= 1:
            return np.ones(len(self.members))
        times, idle, weights, starts = self._tails(threads)
        return np.asarray(np.add.reduceat(weights * waiting.tail(times, idle), starts))

    def meets(self, cores: int, scale: float = 1.0) -> bool:
        """Return whether so many cores meet all objectives, those aside that no number of cores meets."""
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
        """Return the fewest cores that meet all objectives at `scale` times the rates; `most` + 1 if none do.

        Parameters
        ----------
        scale : float
        least : int
            Known lower bound.
        most : int, optional
            Upper bound; of the machine by default.
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
        """Least cores per unit of load over the numbers of threads: 1, as work divided costs at least as much."""
        return min((t * self.pool.load(t) / self.load for t in self.threads), default=1.0) if self.load > 0 else 1.0

    def growth(self, cores: int) -> float:
        """Return the largest factor of all rates with which so many cores meet all objectives; 0 if none does.

        It is a power of 1.005: what was asked before makes the answer faster, and no other.
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
        """Return a growth that so many cores are known to allow, and one that they are known not to allow."""
        low = max((at for known, at in self._met if known <= cores), default=0.0)
        high = min((at for known, at in self._missed if known >= cores), default=math.inf)
        return low, min(high, cores / (self.load * self._cheapest))

    def best_sessions(self, parts: Sequence[int]) -> tuple[int, int]:
        """Return sessions and threads of each: the fewest threads that meet all objectives, else those that miss least.

        Parameters
        ----------
        parts : sequence of int [cores]
            On each node: no session spans two.
        """
        options = [(sum(part // t for part in parts), t) for t in self.threads if t <= max(parts)]
        if len(options) == 1:
            return options[0]
        meeting = next(((s, t) for s, t in options if self._meets(s * t, t, 1.0)), None)
        return meeting or min(options, key=lambda one: float(self.late(*one).max()))


def _power(factor: float) -> float:
    """Return which power of the step of growth a factor is."""
    return math.log(factor) / math.log(_STEP)
