# SPDX-License-Identifier: Apache-2.0
r"""Fit how much a machine under load adds to profiles; the trace has models alone on a core and models that share one.

* **Overhead and factor**, for each graph and for all together: least squares of relative errors, between the profile
  and the median service time of requests that waited, for each number of rows in each run. Only the factor is fitted if
  the medians do not differ enough to determine both.
* **Variation**: how much more the logarithms of the same times vary than those of the profile, from the 10th to the
  90th percentile, assuming normal distributions.
* **Stalls**: how much longer the slowest requests of a number of rows take than a lognormal of that variation predicts
  beyond their 90th percentile. A step of the quantiles of weight w and excess e is w stalls of length e per request;
  the stalls of all runs are grouped by length, in octaves.
* **Idle start**: the mean of requests that found the core idle minus the mean of those that waited, in the same run.
* **Switch**: how much longer a core is busy with several models than the models alone predict, divided by the part of
  this work that follows the work of another model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from cost_model.calibration.calibration import Calibration, Linear
from cost_model.calibration.check import rows_of
from cost_model.calibration.service import UNDISTURBED, CalibratedService, Disturbance
from cost_model.calibration.trace import LEVELS, Run, Trace
from cost_model.errors import ProfileError
from cost_model.interference import Interference, default_interference
from cost_model.profiling.profile import Profile
from cost_model.service import ServiceTable

# An overhead and a factor are only both fitted if the medians of service times differ by at least this much.
_APART = 1.8
# Shorter stalls are part of every request.
_SHORTEST_STALL_US = 20.0
# Fewest requests for which a median is used.
_ENOUGH = 50
_NORMAL = NormalDist()
# As far below the median as `UNDISTURBED` is above it; `1 - UNDISTURBED` is not exactly that number.
_LOW = 0.1


def calibrate(profiles: Sequence[Profile], trace: Trace) -> Calibration:
    """Fit a calibration.

    Parameters
    ----------
    profiles : sequence of Profile
        One for every graph in the trace.
    trace : Trace
        It needs at least one run of a model alone.

    Raises
    ------
    ProfileError
        If a graph has no profile, a profile is from another CPU model, requests failed, or no model runs alone.
    """
    tables = _tables(profiles, trace)
    alone = [run for run in trace.runs if len(run.models) == 1 and run.models[0].service]
    if not alone:
        raise ProfileError("trace: no run of a model alone on its core found, expected at least one")
    disturbance = Disturbance(*_linear(alone, tables), _variation(alone, tables), _stalls(alone))
    graphs = {
        graph: _linear([run for run in alone if run.models[0].fingerprint == graph], tables)
        for graph in sorted({run.models[0].fingerprint for run in alone})
    }
    calibration = Calibration(trace.cpu_model, disturbance, _costs(profiles, _idle_start_us(alone)), graphs)
    shared = [run for run in trace.runs if len(run.models) > 1]
    switches = [_switch(run, tables, calibration) for run in shared]
    interference = calibration.interference
    if switches:
        interference = replace(interference, switch=max(0.0, float(np.median(switches))))
    fitted = {
        "runs_alone": len(alone),
        "runs_shared": len(shared),
        "stalls_per_s": round(disturbance.stall_rate, 3),
        "stalled": round(disturbance.stalled, 5),
        "switch_of_each_run": [round(switch, 4) for switch in switches],
    }
    return replace(calibration, interference=interference, fitted=fitted, environment=trace.environment)


def _tables(profiles: Sequence[Profile], trace: Trace) -> dict[str, ServiceTable]:
    for profile in profiles:
        if profile.cpu_model != trace.cpu_model:
            raise ProfileError(
                f"profile {profile.fingerprint}: one from '{profile.cpu_model}' found, "
                f"expected one from the trace's '{trace.cpu_model}'"
            )
    tables = {profile.fingerprint: profile.service for profile in profiles}
    for number, run in enumerate(trace.runs):
        for model in run.models:
            if model.fingerprint not in tables:
                raise ProfileError(
                    f"trace: runs[{number}] of {model.name}: a graph without a profile found, "
                    f"expected a profile of {model.fingerprint}"
                )
            if model.failed:
                raise ProfileError(
                    f"trace: runs[{number}] of {model.name}: {model.failed} failed requests found, expected none"
                )
    return tables


def _linear(runs: Sequence[Run], tables: Mapping[str, ServiceTable]) -> Linear:
    """Return the overhead and the factor."""
    known, found, weights = [], [], []
    for run in runs:
        served = run.models[0]
        for rows, times in served.service:
            known.append(_median(tables[served.fingerprint], rows))
            found.append(times.at(0.5))
            weights.append(times.count / served.requests)
    x, y, w = (np.array(values) for values in (known, found, weights))
    factor = float(np.average(y / x, weights=w))
    if x.max() / x.min() < _APART:
        return Linear(0.0, factor)
    # Minimize relative errors: (o + f x - y)/y.
    root = np.sqrt(w) / y
    (overhead, slope), *_ = np.linalg.lstsq(np.stack([root, root * x], axis=1), root * y, rcond=None)
    return Linear(float(overhead), float(slope)) if slope > 0 else Linear(0.0, factor)


def _median(table: ServiceTable, rows: int) -> float:
    return _quantile(table, rows, 0.5)


def _quantile(table: ServiceTable, rows: int, level: float) -> float:
    quantiles = table._quantiles(np.array([float(rows)]), 1)[0]
    return float(quantiles[table.levels.index(level)])


def _variation(runs: Sequence[Run], tables: Mapping[str, ServiceTable]) -> float:
    """Return the coefficient of variation of the times beyond the variation of the profile."""
    more, weights = [], []
    for run in runs:
        served = run.models[0]
        for rows, times in served.service:
            if times.count >= _ENOUGH:
                table = tables[served.fingerprint]
                usual = _deviation(_quantile(table, rows, _LOW), _quantile(table, rows, UNDISTURBED))
                more.append(_deviation(times.at(_LOW), times.at(UNDISTURBED)) ** 2 - usual**2)
                weights.append(times.count / served.requests)
    return math.sqrt(math.expm1(max(0.0, float(np.average(more, weights=weights))))) if more else 0.0


def _deviation(low_us: float, high_us: float) -> float:
    """Return the standard deviation of the logarithm of a lognormal time from its 10th and 90th percentile."""
    return math.log(high_us / low_us) / (2 * _NORMAL.inv_cdf(UNDISTURBED))


def _stalls(runs: Sequence[Run]) -> tuple[tuple[float, float], ...]:
    """Return the lengths [µs] and rates [1/s of work] of stalls."""
    count: dict[int, float] = {}
    length: dict[int, float] = {}
    worked_s = 0.0
    for times in (times for run in runs for _, times in (*run.models[0].service, *run.models[0].idle_service)):
        usual, deviation = times.at(UNDISTURBED), _deviation(times.at(_LOW), times.at(UNDISTURBED))
        worked_s += times.count * times.mean_us / 1e6
        for (low, begin), (high, end) in pairwise(zip(LEVELS, times.quantiles_us, strict=True)):
            beyond = _NORMAL.inv_cdf((low + high) / 2) - _NORMAL.inv_cdf(UNDISTURBED)
            excess = (begin + end) / 2 - usual * math.exp(deviation * beyond)
            if low < UNDISTURBED or excess < _SHORTEST_STALL_US:
                continue
            octave = math.floor(math.log2(excess))
            count[octave] = count.get(octave, 0.0) + (high - low) * times.count
            length[octave] = length.get(octave, 0.0) + (high - low) * times.count * excess
    return tuple((length[octave] / count[octave], count[octave] / worked_s) for octave in sorted(count))


def _idle_start_us(runs: Sequence[Run]) -> float:
    """Return how much longer a request takes if its core was idle [µs]."""
    longer, weights = [], []
    for run in runs:
        served = run.models[0]
        waited = dict(served.service)
        for rows, times in served.idle_service:
            if rows in waited and min(times.count, waited[rows].count) >= _ENOUGH:
                longer.append(times.mean_us - waited[rows].mean_us)
                weights.append(times.count)
    return max(0.0, float(np.average(longer, weights=weights))) if longer else 0.0


def _costs(profiles: Sequence[Profile], idle_start_us: float) -> Interference:
    """Return the coefficients that follow from profiles and from models alone on a core."""
    interference = default_interference()
    measured = {
        name: float(np.median([profile.interference[name] for profile in profiles if name in profile.interference]))
        for name in ("switch", "shared_cache")
        if any(name in profile.interference for profile in profiles)
    }
    return replace(interference, guessed=interference.guessed, idle_start_us=idle_start_us, **measured)


def _switch(run: Run, tables: Mapping[str, ServiceTable], calibration: Calibration) -> float:
    r"""Return the switch coefficient that explains how busy the core was.

    At utilization u, a part of :math:`1 - u` of all requests finds the core idle and takes longer for that reason.
    """
    cold = sum(model.requests for model in run.models) / run.seconds / 1e6 * calibration.interference.idle_start_us
    cold *= 1 - run.utilisation
    total = sum(served.requests for served in run.models)
    expected = followed = 0.0
    for served in run.models:
        table = tables[served.fingerprint]
        service = CalibratedService(table, calibration.disturbance_of(table)).points(rows_of(served))
        work = served.requests / run.seconds / 1e6 * service.mean
        expected += work
        followed += work * (1 - served.requests / total)
    return float((run.utilisation - cold - expected) / followed)
