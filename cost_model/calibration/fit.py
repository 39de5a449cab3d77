# SPDX-License-Identifier: Apache-2.0
r"""Fit what a machine at work adds to profiles, from a trace of models alone on a core and of models that share one.

* **Overhead and factor**: the median service time of each number of rows in each run, of requests that waited, against
  the profile's, by least squares of relative errors; with the factor alone where the medians do not differ enough (less
  than twofold) to tell both. An overhead below 0 is none.
* **Stalls**: what the slowest requests of a number of rows take beyond their 90th percentile. A step of the quantiles
  of weight w and excess e is w stalls of length e per request; those of all runs are gathered by length, in octaves.
* **Idle start**: the median of requests that found the core idle over that of those that waited, in the same run.
* **Switch**: how much longer a core is busy with several models than the models alone say, over the part of requests
  that follow another model's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from cost_model.calibration.calibration import Calibration
from cost_model.calibration.check import rows_of
from cost_model.calibration.service import UNDISTURBED, CalibratedService, Disturbance
from cost_model.calibration.trace import LEVELS, Run, Trace
from cost_model.errors import ProfileError
from cost_model.interference import Interference, default_interference
from cost_model.profiling.profile import Profile
from cost_model.service import ServiceTable

# Medians of service times that tell an overhead from a factor differ at least as much.
_APART = 2.0
# Shorter ones are part of every request.
_SHORTEST_STALL_US = 20.0
# Requests whose median counts.
_ENOUGH = 50


def calibrate(profiles: Sequence[Profile], trace: Trace) -> Calibration:
    """Fit a calibration.

    Parameters
    ----------
    profiles : sequence of Profile
        Of every graph in the trace.
    trace : Trace
        With at least one run of a model alone.

    Raises
    ------
    ProfileError
        A graph has no profile, a profile is from another CPU model, requests failed, or no model runs alone.
    """
    tables = _tables(profiles, trace)
    alone = [run for run in trace.runs if len(run.models) == 1 and run.models[0].service]
    if not alone:
        raise ProfileError("trace: no run of a model alone on its core found, expected one at least")
    overhead_us, factor = _linear(alone, tables)
    disturbance = Disturbance(overhead_us, factor, _stalls(alone))
    shared = [run for run in trace.runs if len(run.models) > 1]
    interference, switches = _interference(profiles, shared, tables, disturbance, _idle_start(alone))
    fitted = {
        "runs_alone": len(alone),
        "runs_shared": len(shared),
        "stalls_per_s": round(disturbance.stall_rate, 3),
        "stalled": round(disturbance.stalled, 5),
        "switch_of_each_run": [round(one, 4) for one in switches],
    }
    return Calibration(trace.cpu_model, disturbance, interference, fitted, trace.environment)


def _tables(profiles: Sequence[Profile], trace: Trace) -> dict[str, ServiceTable]:
    for profile in profiles:
        if profile.cpu_model != trace.cpu_model:
            raise ProfileError(
                f"profile {profile.fingerprint}: one from '{profile.cpu_model}' found, "
                f"expected one from the trace's '{trace.cpu_model}'"
            )
    tables = {profile.fingerprint: profile.service for profile in profiles}
    for number, run in enumerate(trace.runs):
        for one in run.models:
            if one.fingerprint not in tables:
                raise ProfileError(
                    f"trace: runs[{number}] of {one.name}: a graph without a profile found, "
                    f"expected a profile of {one.fingerprint}"
                )
            if one.failed:
                raise ProfileError(
                    f"trace: runs[{number}] of {one.name}: {one.failed} failed requests found, expected none"
                )
    return tables


def _linear(runs: Sequence[Run], tables: Mapping[str, ServiceTable]) -> tuple[float, float]:
    """Return overhead [µs] and factor."""
    known, found, weights = [], [], []
    for run in runs:
        one = run.models[0]
        for rows, times in one.service:
            known.append(_median(tables[one.fingerprint], rows))
            found.append(times.at(0.5))
            weights.append(times.count / one.requests)
    x, y, w = (np.array(values) for values in (known, found, weights))
    factor = float(np.average(y / x, weights=w))
    if x.max() / x.min() < _APART:
        return 0.0, factor
    # Of relative errors: (o + f x - y)/y.
    root = np.sqrt(w) / y
    (overhead, slope), *_ = np.linalg.lstsq(np.stack([root, root * x], axis=1), root * y, rcond=None)
    return (float(overhead), float(slope)) if overhead > 0 and slope > 0 else (0.0, factor)


def _median(table: ServiceTable, rows: int) -> float:
    quantiles = table._quantiles(np.array([float(rows)]), 1)[0]
    return float(quantiles[table.levels.index(0.5)])


def _stalls(runs: Sequence[Run]) -> tuple[tuple[float, float], ...]:
    """Return lengths [µs] and rates [1/s of work] of stalls."""
    count: dict[int, float] = {}
    length: dict[int, float] = {}
    worked_s = 0.0
    for times in (times for run in runs for _, times in (*run.models[0].service, *run.models[0].idle_service)):
        usual = times.at(UNDISTURBED)
        worked_s += times.count * times.mean_us / 1e6
        for (low, begin), (high, end) in pairwise(zip(LEVELS, times.quantiles_us, strict=True)):
            excess = (begin + end) / 2 - usual
            if low < UNDISTURBED or excess < _SHORTEST_STALL_US:
                continue
            octave = math.floor(math.log2(excess))
            count[octave] = count.get(octave, 0.0) + (high - low) * times.count
            length[octave] = length.get(octave, 0.0) + (high - low) * times.count * excess
    return tuple((length[one] / count[one], count[one] / worked_s) for one in sorted(count))


def _idle_start(runs: Sequence[Run]) -> float:
    """Return how much longer a request takes that finds its core idle."""
    ratios, weights = [], []
    for run in runs:
        one = run.models[0]
        waited = dict(one.service)
        for rows, times in one.idle_service:
            if rows in waited and min(times.count, waited[rows].count) >= _ENOUGH:
                ratios.append(times.at(0.5) / waited[rows].at(0.5) - 1)
                weights.append(times.count)
    return max(0.0, float(np.average(ratios, weights=weights))) if ratios else 0.0


def _interference(
    profiles: Sequence[Profile],
    runs: Sequence[Run],
    tables: Mapping[str, ServiceTable],
    disturbance: Disturbance,
    idle_start: float,
) -> tuple[Interference, list[float]]:
    """Return the coefficients, and the switch that each run of several models shows."""
    made = default_interference()
    measured = {
        name: float(np.median([one.interference[name] for one in profiles if name in one.interference]))
        for name in ("switch", "shared_cache")
        if any(name in one.interference for one in profiles)
    }
    measured["idle_start"] = idle_start
    switches = [_switch(run, tables, disturbance, idle_start) for run in runs]
    if switches:
        measured["switch"] = max(0.0, float(np.median(switches)))
    return replace(made, guessed=made.guessed, **measured), switches


def _switch(run: Run, tables: Mapping[str, ServiceTable], disturbance: Disturbance, idle_start: float) -> float:
    r"""Return the switch that makes the core as busy as it was.

    Of all requests a part of :math:`1 - u` finds the core idle at the utilisation u, and takes longer for it.
    """
    expected = sum(
        one.requests
        / run.seconds
        / 1e6
        * CalibratedService(tables[one.fingerprint], disturbance).points(rows_of(one)).mean
        for one in run.models
    )
    expected *= 1 + idle_start * (1 - run.utilisation)
    total = sum(one.requests for one in run.models)
    followed = sum(one.requests / total * (1 - one.requests / total) for one in run.models)
    return (run.utilisation / expected - 1) / followed
