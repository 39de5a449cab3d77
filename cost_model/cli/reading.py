# SPDX-License-Identifier: Apache-2.0
"""Read the inputs that `plan` and `simulate` share: coefficients of interference and calibrations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cost_model.interference import Interference, default_interference, load_interference
from cost_model.workload import Workload

WorkloadFile = Annotated[
    Path,
    typer.Argument(
        metavar="WORKLOAD.yaml",
        help="Models, their rates and objectives; or `box128`, the scenario that comes with the package.",
    ),
]
CalibrationFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json", show_default=False, help="What the machine at work adds, of `cost-model calibrate`."
    ),
]
InterferenceFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE.json", show_default=False, help="Coefficients in place of those that it has."),
]
InterferenceScale = Annotated[
    float, typer.Option(metavar="F", min=0, help="Multiply them: 0.5 and 2 show how much depends on them.")
]
AnyCpu = Annotated[
    bool, typer.Option("--any-cpu", metavar="", help="Take profiles and a calibration from another CPU model.")
]


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
