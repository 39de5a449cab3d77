# SPDX-License-Identifier: Apache-2.0
"""Declare the options that several verbs share, and read calibrations and coefficients of interference."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cost_model.errors import UsageError
from cost_model.interference import Interference, default_interference, load_interference
from cost_model.workload import MOST_QPS, Workload

WorkloadFile = Annotated[
    Path,
    typer.Argument(
        metavar="WORKLOAD.yaml",
        help="Models with their rates and SLOs; or `box128`, the scenario that the package contains.",
    ),
]
CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json", show_default=False, help="Calibration for this machine, from `cost-model calibrate`."
    ),
]
InterferenceFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE.json", show_default=False, help="Coefficients of interference to use instead."),
]
InterferenceScale = Annotated[
    float,
    typer.Option(metavar="F", min=0, help="Factor on the coefficients; 0.5 and 2 show how sensitive the result is."),
]
AnyCpu = Annotated[
    bool, typer.Option("--any-cpu", metavar="", help="Accept profiles and a calibration from another CPU model.")
]

TotalQps = Annotated[
    float | None,
    typer.Option(metavar="Q", show_default=False, help="Total requests/s of all models with a share."),
]


def check_total_qps(total_qps: float | None) -> None:
    """Raise UsageError if the total rate [requests/s] is out of range."""
    if total_qps is not None and not 0 < total_qps <= MOST_QPS:
        raise UsageError(f"--total-qps: {total_qps} found, expected a number above 0, at most {MOST_QPS:g}")


def read_costs(
    workload: Workload, calibration: Path | None, interference: Path | None, scale: float, any_cpu: bool
) -> tuple[Workload, Interference]:
    """Return the calibrated workload and the scaled coefficients: shipped, of the calibration, or of the file."""
    from cost_model.calibration import load_calibration

    costs = default_interference()
    if calibration is not None:
        fitted = load_calibration(calibration, any_cpu=any_cpu)
        workload, costs = fitted.workload(workload), fitted.interference
    if interference is not None:
        costs = load_interference(interference, costs)
    return workload, costs.scaled(scale)
