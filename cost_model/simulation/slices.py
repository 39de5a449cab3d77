# SPDX-License-Identifier: Apache-2.0
"""Simulate models that share cores as processes do: each has its own session, and the kernel schedules all of them.

This is how a host runs a pool of models. A request waits only for its own model's session, first come first served; the
busy sessions take turns on the cores, for one time slice each. The planner and the policies of `cost-model simulate`
assume one queue for all models. Compared with that, requests of a model with little traffic wait less here, and those
of a busy model wait longer.
"""

from __future__ import annotations

import heapq
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


def play_slices(
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
    response: list[list[float]] = [[] for _ in models]
    waiting: list[deque[tuple[float, float]]] = [deque() for _ in models]
    asleep = [[_Worker(place) for _ in range(cores)] for place in range(len(models))]
    ready: deque[_Worker] = deque()
    running: list[_Worker | None] = [None] * cores
    last, used, ran = [-1] * cores, [0.0] * cores, [0.0] * cores
    ends: list[tuple[float, int]] = []

    def go_on(core: int, now_us: float) -> None:
        worker = running[core]
        assert worker is not None
        ran[core] = min(worker.left_us, slice_us - used[core])
        heapq.heappush(ends, (now_us + ran[core], core))

    def begin(worker: _Worker, core: int, now_us: float, idle: bool) -> None:
        if last[core] not in (-1, worker.model):
            worker.left_us += refill_us[worker.model]
        if idle:
            worker.left_us += interference.idle_start_us
        running[core], last[core], used[core] = worker, worker.model, 0.0
        go_on(core, now_us)

    def end_of_slice(core: int, now_us: float) -> None:
        worker = running[core]
        assert worker is not None
        worker.left_us -= ran[core]
        used[core] += ran[core]
        if worker.left_us <= 1e-6:
            response[worker.model].append(now_us - worker.due_us)
            if not waiting[worker.model]:
                asleep[worker.model].append(worker)
                running[core] = None
            else:
                worker.due_us, worker.left_us = waiting[worker.model].popleft()
        if running[core] and used[core] >= slice_us - 1e-6:
            used[core] = 0.0
            if ready:
                ready.append(worker)
                running[core] = None
        if running[core]:
            go_on(core, now_us)
        elif ready:
            begin(ready.popleft(), core, now_us, idle=False)

    def arrive(model: int, now_us: float, work_us: float) -> None:
        if not asleep[model]:
            waiting[model].append((now_us, work_us))
            return
        worker = asleep[model].pop()
        worker.due_us, worker.left_us = now_us, work_us
        free = next((core for core, worker in enumerate(running) if worker is None), None)
        if free is None:
            ready.append(worker)
        else:
            begin(worker, free, now_us, idle=True)

    for at_us, model, work_us in zip(due.tolist(), which.tolist(), work.tolist(), strict=True):
        while ends and ends[0][0] <= at_us:
            now_us, core = heapq.heappop(ends)
            end_of_slice(core, now_us)
        arrive(model, at_us, work_us)
    while ends:
        now_us, core = heapq.heappop(ends)
        end_of_slice(core, now_us)
    return [np.array(times) for times in response]


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
