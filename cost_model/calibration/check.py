# SPDX-License-Identifier: Apache-2.0
"""Hold what the queueing model and the simulator predict against the runs of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cost_model.calibration.calibration import Calibration
from cost_model.calibration.trace import Run, Served, Trace
from cost_model.interference import NONE
from cost_model.profiling.profile import Profile
from cost_model.queueing import Member, Pool
from cost_model.service import RowDistribution
from cost_model.workload import Tenant

# Nothing is dropped in the runs, so no objective matters.
_NO_SLO_MS = 1e6


@dataclass(frozen=True)
class Line:
    """One model in one run: what was measured, and what is predicted.

    Parameters
    ----------
    run : int
        Place in the trace.
    models : int
        That share the core.
    utilisation : float
        Measured.
    measured_qps, qps : float [requests/s]
        Answered, and offered: what is predicted as long as nothing is dropped.
    measured_p50_ms, measured_p99_ms, p50_ms, p99_ms : float [ms]
        The latter two predicted.
    """

    run: int
    name: str
    models: int
    utilisation: float
    measured_qps: float
    qps: float
    measured_p50_ms: float
    measured_p99_ms: float
    p50_ms: float
    p99_ms: float

    @property
    def p50_off(self) -> float:
        """Relative error of the predicted median."""
        return self.p50_ms / self.measured_p50_ms - 1

    @property
    def p99_off(self) -> float:
        """Relative error of the predicted p99."""
        return self.p99_ms / self.measured_p99_ms - 1


def loads_of(run: Run, profiles: Sequence[Profile], calibration: Calibration | None) -> list[Tenant]:
    """Return the models of a run as the cost model knows them; without a calibration, by their profiles alone."""
    tables = {profile.fingerprint: profile.service for profile in profiles}
    made = []
    for place, model in enumerate(run.models):
        load = Tenant(
            model.name,
            "variant" if place else "baseline",
            tables[model.fingerprint],
            rows_of(model),
            _NO_SLO_MS,
            qps=model.qps,
        )
        made.append(calibration.model(load) if calibration else load)
    return made


def rows_of(one: Served) -> RowDistribution:
    """Return the rows of a model's requests."""
    return RowDistribution("table", maximum=max(rows for rows, _ in one.rows), table=one.rows)


def check_runs(profiles: Sequence[Profile], trace: Trace, calibration: Calibration | None) -> list[Line]:
    """Predict the runs of a trace by queueing; see `Line`."""
    lines = []
    for number, run in enumerate(trace.runs):
        members = [Member(load, load.qps or 0.0) for load in loads_of(run, profiles, calibration)]
        predicted = Pool(members, calibration.interference if calibration else NONE).predict(run.cores)
        for model in run.models:
            lines.append(line_of(number, run, model, predicted[model.name].p50_ms, predicted[model.name].p99_ms))
    return lines


def line_of(number: int, run: Run, one: Served, p50_ms: float, p99_ms: float) -> Line:
    """Put a prediction beside what was measured."""
    return Line(
        number,
        one.name,
        len(run.models),
        run.utilisation,
        (one.requests - one.failed) / run.seconds,
        one.qps,
        one.latency.at(0.5) / 1e3,
        one.latency.at(0.99) / 1e3,
        p50_ms,
        p99_ms,
    )


def simulated(
    profiles: Sequence[Profile], trace: Trace, calibration: Calibration | None, *, seeds: Sequence[int] = (1, 2, 3)
) -> list[Line]:
    """Predict the runs of a trace with the simulator, each as long as the real one; see `Line`.

    Every model has a session of its own, as in the runs.
    """
    from cost_model.simulation.validation import predict_sessions

    lines = []
    for number, run in enumerate(trace.runs):
        predicted = predict_sessions(
            loads_of(run, profiles, calibration),
            run.cores,
            seconds=run.seconds,
            interference=calibration.interference if calibration else NONE,
            seeds=seeds,
        )
        for model in run.models:
            lines.append(line_of(number, run, model, predicted[model.name].p50_ms, predicted[model.name].p99_ms))
    return lines
