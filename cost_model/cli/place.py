# SPDX-License-Identifier: Apache-2.0
"""`cost-model place`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cost_model.cli.app import Json, app, guarded, optional, print_json
from cost_model.cli.options import (
    AnyCpu,
    CalibrationFile,
    InterferenceFile,
    InterferenceScale,
    TotalQps,
    WorkloadFile,
    check_total_qps,
    read_costs,
)
from cost_model.errors import UsageError
from cost_model.workload import load_workload

_HELP = """Decide which models run on which machines of a fleet, with how many cores and replicas.

Every model meets its SLO, also after the loss of any machine (of any zone, if the fleet file has zones). Few machines
are used. If there is no room for all models, it says what is missing, and the exit code is 1.

**Examples**

- `cost-model place workload.yaml --machines fleet.yaml --explain`
- `cost-model place workload.yaml --machines fleet.yaml --json`
- `cost-model place workload.yaml --machines fleet.yaml --previous placement.json`
"""

MachinesFile = Annotated[Path, typer.Option("--machines", metavar="FLEET.yaml", help="Machines of the fleet.")]
PreviousFile = Annotated[
    Path | None, optional("PLACEMENT.json", "Placement that is in use: models stay where they are if possible.")
]
Survive = Annotated[
    str | None,
    optional("LOSS", "Loss that all SLOs survive: none, machine or zone; by default a zone if there are several."),
]
Headroom = Annotated[float, typer.Option(metavar="F", min=0.01, max=100, help="Factor of all rates to place for.")]
Explained = Annotated[
    bool, typer.Option("--explain", metavar="", help="Explain for each model why it is there and what would change it.")
]
ExplainedModels = Annotated[list[str] | None, optional("NAME", "Explain this model; repeatable.")]


@app.command(name="place", help=_HELP)
@guarded
def place_command(
    workload: WorkloadFile,
    machines: MachinesFile,
    previous: PreviousFile = None,
    survive: Survive = None,
    headroom: Headroom = 1.0,
    total_qps: TotalQps = None,
    interference: InterferenceFile = None,
    calibration: CalibrationFile = None,
    interference_scale: InterferenceScale = 1.0,
    any_cpu: AnyCpu = False,
    explained: Explained = False,
    explain_model: ExplainedModels = None,
    as_json: Json = False,
) -> int:
    from cost_model.cli.render_place import render_placement
    from cost_model.fleet import SURVIVES, load_fleet, make_problem, place
    from cost_model.fleet.explain import explain
    from cost_model.fleet.report import placement_report, read_previous

    if survive is not None and survive not in SURVIVES:
        raise UsageError(f"--survive: '{survive}' found, expected one of {', '.join(SURVIVES)}")
    check_total_qps(total_qps)
    read = load_workload(workload, any_cpu=any_cpu)
    fleet = load_fleet(machines)
    before = read_previous(previous) if previous else None
    rates = read.qps_by_model(total_qps)
    for name in explain_model or ():
        read.model(name)
    read, costs = read_costs(read, calibration, interference, interference_scale, any_cpu)
    problem = make_problem(read, fleet, rates, costs, survive, headroom)
    made = place(problem, before, headroom=headroom)
    names = [name for unit in problem.units for name in unit.names[:1]] if explained else []
    names += [name for name in explain_model or () if name not in names]
    report = placement_report(made, [explain(made, name) for name in names])
    if as_json:
        print_json(report.to_json())
    else:
        render_placement(report)
    return 0 if report.feasible else 1
