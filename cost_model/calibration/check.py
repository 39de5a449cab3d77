# SPDX-License-Identifier: Apache-2.0
"""Compare the predictions of the queueing model and of the simulator with the runs of a trace."""

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

# No request is dropped in the runs, so the SLO does not matter.
_NO_SLO_MS = 1e6


@dataclass(frozen=True)
class Line:
    """Describe one model in one run: its measured and its predicted values.

    Parameters
    ----------
    run : int
        Position in the trace.
    models : int
        Number of models that share the core.
    utilisation : float
        Measured.
    measured_qps, qps : float [requests/s]
        Completed and offered rate; the offered rate is the prediction as long as no request is dropped.
    measured_p50_ms, measured_p99_ms, p50_ms, p99_ms : float [ms]
        The latter two are predicted.
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
        """Return the relative error of the predicted median."""
        return self.p50_ms / self.measured_p50_ms - 1

    @property
    def p99_off(self) -> float:
        """Return the relative error of the predicted p99."""
        return self.p99_ms / self.measured_p99_ms - 1


def loads_of(run: Run, profiles: Sequence[Profile], calibration: Calibration | None) -> list[Tenant]:
    """Return the models of a run in the form of the cost model; without a calibration, from their profiles alone."""
    tables = {profile.fingerprint: profile.service for profile in profiles}
    tenants = []
    for place, model in enumerate(run.models):
        load = Tenant(
            model.name,
            "variant" if place else "baseline",
            tables[model.fingerprint],
            rows_of(model),
            _NO_SLO_MS,
            qps=model.qps,
        )
        tenants.append(calibration.model(load) if calibration else load)
    return tenants


def rows_of(served: Served) -> RowDistribution:
    """Return the distribution of the rows of a model's requests."""
    return RowDistribution("table", maximum=max(rows for rows, _ in served.rows), table=served.rows)


def check_runs(profiles: Sequence[Profile], trace: Trace, calibration: Calibration | None) -> list[Line]:
    """Predict the runs of a trace with the queueing model; see `Line`."""
    lines = []
    for number, run in enumerate(trace.runs):
        members = [Member(load, load.qps or 0.0) for load in loads_of(run, profiles, calibration)]
        predicted = Pool(members, calibration.interference if calibration else NONE).predict(run.cores)
        for model in run.models:
            lines.append(line_of(number, run, model, predicted[model.name].p50_ms, predicted[model.name].p99_ms))
    return lines


def line_of(number: int, run: Run, served: Served, p50_ms: float, p99_ms: float) -> Line:
    """Combine a prediction with the measured values."""
    return Line(
        number,
        served.name,
        len(run.models),
        run.utilisation,
        (served.requests - served.failed) / run.seconds,
        served.qps,
        served.latency.at(0.5) / 1e3,
        served.latency.at(0.99) / 1e3,
        p50_ms,
        p99_ms,
    )


def simulate_runs(
    profiles: Sequence[Profile], trace: Trace, calibration: Calibration | None, *, seeds: Sequence[int] = (1, 2, 3)
) -> list[Line]:
    """Predict the runs of a trace with the simulator, each as long as the real one; see `Line`.

    Every model has its own session, as in the runs.
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
