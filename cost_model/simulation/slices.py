# SPDX-License-Identifier: Apache-2.0
"""Simulate models that share cores as processes do: each has its own session, and the kernel schedules all of them.

This is how a host runs a pool of models. A request waits only for its own model's session, first come first served; the
busy sessions take turns on the cores, for one time slice each. The planner and the policies of `cost-model simulate`
assume one queue for all models. Compared with that, requests of a model with little traffic wait less here, and those
of a busy model wait longer.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_model.interference import Interference
from cost_model.service import Floats
from cost_model.workload import Tenant

# If other threads wait, Linux lets a thread run for some milliseconds: its slice (0.7 ms, times 1 + log2 of the CPUs,
# up to 8) is checked at timer ticks, every 4 ms in most server kernels, or when a thread wakes.
SLICE_US = 3000.0


@dataclass
class _Worker:
    """Track a thread of a model's session, with the request that it runs."""

    model: int
    due_us: float = 0.0
    left_us: float = 0.0


def simulate_sessions(
    models: Sequence[Tenant],
    cores: int,
    seconds: float,
    seed: int,
    interference: Interference,
    slice_us: float = SLICE_US,
) -> list[Floats]:
    """Return the response times [µs] of the requests of each model, with Poisson arrivals at `qps`.

    Each model has a session that runs as many requests at once as there are cores. If another model has just run on the
    core, a request that starts or resumes takes longer, by `switch` times the mean time of its model's requests (the
    data to bring back into caches does not depend on the remaining work). On a core that slept it takes `idle_start_us`
    longer. Memory bandwidth is not limited.
    """
    rng = np.random.default_rng(seed)
    due, which, work = _arrivals(models, seconds, rng)
    counts, sums = (np.bincount(which, weights, minlength=len(models)) for weights in (None, work))
    refill_us = (interference.switch * sums / np.maximum(counts, 1)).tolist()
    sessions = _Sessions(cores, refill_us, interference.idle_start_us, slice_us)
    for at_us, model, work_us in zip(due.tolist(), which.tolist(), work.tolist(), strict=True):
        sessions.run_until(at_us)
        sessions.arrive(model, at_us, work_us)
    sessions.run_until(math.inf)
    return [np.array(times) for times in sessions.response_us]


class _Sessions:
    """Let the sessions of models take turns on cores.

    Parameters
    ----------
    cores : int
    refill_us : sequence of float [models] [µs]
        Additional work of a request after another model has run on its core.
    idle_start_us, slice_us : float [µs]

    Attributes
    ----------
    response_us : list of list of float [models, requests] [µs]
        Response times of the completed requests.
    """

    def __init__(self, cores: int, refill_us: Sequence[float], idle_start_us: float, slice_us: float) -> None:
        models = len(refill_us)
        self.response_us: list[list[float]] = [[] for _ in range(models)]
        self._refill_us, self._idle_start_us, self._slice_us = refill_us, idle_start_us, slice_us
        self._waiting: list[deque[tuple[float, float]]] = [deque() for _ in range(models)]
        self._asleep = [[_Worker(place) for _ in range(cores)] for place in range(models)]
        self._ready: deque[_Worker] = deque()
        self._running: list[_Worker | None] = [None] * cores
        # For each core: the model that ran last, the used time of the slice, and the length of its current part.
        self._last, self._used_us, self._part_us = [-1] * cores, [0.0] * cores, [0.0] * cores
        self._ends: list[tuple[float, int]] = []

    def run_until(self, end_us: float) -> None:
        """Process all ends of slices and requests up to a time."""
        ends = self._ends
        while ends and ends[0][0] <= end_us:
            now_us, core = heapq.heappop(ends)
            self._end_part(core, now_us)

    def arrive(self, model: int, now_us: float, work_us: float) -> None:
        """Accept a request, and start it if a worker of its session and a core are free."""
        if not self._asleep[model]:
            self._waiting[model].append((now_us, work_us))
            return
        worker = self._asleep[model].pop()
        worker.due_us, worker.left_us = now_us, work_us
        free = next((core for core, running in enumerate(self._running) if running is None), None)
        if free is None:
            self._ready.append(worker)
        else:
            self._begin(worker, free, now_us, idle=True)

    def _begin(self, worker: _Worker, core: int, now_us: float, idle: bool) -> None:
        if self._last[core] not in (-1, worker.model):
            worker.left_us += self._refill_us[worker.model]
        if idle:
            worker.left_us += self._idle_start_us
        self._running[core], self._last[core], self._used_us[core] = worker, worker.model, 0.0
        self._continue(worker, core, now_us)

    def _continue(self, worker: _Worker, core: int, now_us: float) -> None:
        part_us = self._part_us[core] = min(worker.left_us, self._slice_us - self._used_us[core])
        heapq.heappush(self._ends, (now_us + part_us, core))

    def _end_part(self, core: int, now_us: float) -> None:
        """End a request or a slice, and let the next worker run."""
        worker = self._running[core]
        assert worker is not None
        worker.left_us -= self._part_us[core]
        self._used_us[core] += self._part_us[core]
        runs = True
        if worker.left_us <= 1e-6:
            self.response_us[worker.model].append(now_us - worker.due_us)
            if self._waiting[worker.model]:
                worker.due_us, worker.left_us = self._waiting[worker.model].popleft()
            else:
                self._asleep[worker.model].append(worker)
                runs = False
        if runs and self._used_us[core] >= self._slice_us - 1e-6:
            self._used_us[core] = 0.0
            if self._ready:
                self._ready.append(worker)
                runs = False
        if runs:
            self._continue(worker, core, now_us)
            return
        self._running[core] = None
        if self._ready:
            self._begin(self._ready.popleft(), core, now_us, idle=False)


def _arrivals(models: Sequence[Tenant], seconds: float, rng: np.random.Generator) -> tuple[Floats, np.ndarray, Floats]:
    """Return the due time [µs], the model and the work [µs] of every request."""
    due, which, work = [], [], []
    for place, model in enumerate(models):
        count = int(rng.poisson((model.qps or 0.0) * seconds))
        due.append(rng.uniform(0.0, seconds * 1e6, count))
        which.append(np.full(count, place))
        work.append(model.service.sample(rng, model.rows.sample(rng, count)))
    order = np.argsort(np.concatenate(due), kind="stable")
    return np.concatenate(due)[order], np.concatenate(which)[order], np.concatenate(work)[order]
