# SPDX-License-Identifier: Apache-2.0
"""Simulate runs of a machine with a known disturbance: a queue, request by request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cost_model.calibration import Run, Served, Times
from cost_model.profiling.profile import LEVELS, Profile

CPU = "Example CPU"


def make_profile(name: str, times_us: dict[int, float]) -> Profile:
    """Return a profile with some spread around each time, and the few late requests of every real measurement."""
    rng = np.random.default_rng(5)
    made = Profile(name, CPU, interference={"switch": 0.5, "shared_cache": 0.2, "side_by_side": 0.1})
    for rows, time_us in times_us.items():
        times = time_us * rng.normal(1.0, 0.03, 4000).clip(0.9, 1.1)
        times[:40] *= 4
        made.points[1, rows] = [float(quantile) for quantile in np.quantile(times, LEVELS)]
    return made


def simulate_run(
    models: Sequence[tuple[Profile, dict[int, float], float]],
    seed: int,
    seconds: float,
    *,
    overhead_us: float = 0.0,
    factor: float = 1.0,
    stall_us: float = 0.0,
    stalls_per_s: float = 0.0,
    idle_start_us: float = 0.0,
    spread: float = 0.03,
    switch: float = 0.0,
) -> Run:
    """Simulate models (profile, weights of rows, requests/s) on one core, first come first served."""
    rng = np.random.default_rng(seed)
    rates = np.array([qps for _, _, qps in models])
    count = int(rates.sum() * seconds)
    which = rng.choice(len(models), count, p=rates / rates.sum())
    due = np.cumsum(rng.exponential(1e6 / rates.sum(), count))
    rows, work = np.empty(count, int), np.empty(count)
    for place, (profile, weights, _) in enumerate(models):
        own = which == place
        total = sum(weights.values())
        rows[own] = rng.choice(list(weights), int(own.sum()), p=[weight / total for weight in weights.values()])
        usual = {size: profile.points[1, size][LEVELS.index(0.5)] for size in weights}
        base = np.array([usual[size] for size in rows[own].tolist()])
        base *= rng.normal(1.0, spread, int(own.sum())).clip(0.3)
        work[own] = overhead_us + factor * base
    work += stall_us * rng.poisson(work * stalls_per_s / 1e6)
    free, last, busy = 0.0, -1, 0.0
    done, idle = np.empty(count), np.empty(count, bool)
    for place in range(count):
        idle[place] = due[place] >= free
        slower = 1 + switch * (last not in (-1, which[place]))
        begin = max(due[place], free)
        free = begin + work[place] * slower + idle_start_us * idle[place]
        busy += free - begin
        done[place] = free
        last = int(which[place])
    began = np.maximum(due, np.concatenate(([0.0], done[:-1])))
    served = []
    for place, (profile, weights, qps) in enumerate(models):
        own = which == place
        by_rows: list[tuple[tuple[int, Times], ...]] = [(), ()]
        if len(models) == 1:
            by_rows = [
                tuple((size, Times.of((done - began)[some & (rows == size)])) for size in weights)
                for some in (~idle, idle)
            ]
        total = sum(weights.values())
        pairs = tuple((size, weight / total) for size, weight in weights.items())
        latency = Times.of((done - due)[own])
        served.append(
            Served(profile.fingerprint, profile.fingerprint, pairs, qps, int(own.sum()), 0, latency, *by_rows)
        )
    return Run(1, float(due[-1]) / 1e6, seed, busy / float(due[-1]), 10.0, 0.0, 0.0, tuple(served))
