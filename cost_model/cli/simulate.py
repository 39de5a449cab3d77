# SPDX-License-Identifier: Apache-2.0
"""`cost-model simulate`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from cost_model.cli.app import app, guarded, print_note
from cost_model.cli.options import (
    AnyCpu,
    CalibrationFile,
    InterferenceFile,
    InterferenceScale,
    WorkloadFile,
    read_costs,
)
from cost_model.cli.render_plan import console
from cost_model.errors import UsageError, WorkloadError
from cost_model.workload import MOST_QPS

if TYPE_CHECKING:
    from cost_model.interference import Interference
    from cost_model.machine import Machine
    from cost_model.simulation.run import Result
    from cost_model.workload import Traffic, Workload

_HELP = """Simulate a machine, which need not exist, and compare how many requests/s each policy carries.

For each kind of traffic, it finds the highest total requests/s at which every model meets its p99 SLO. With `--qps`, it
runs at that rate and shows every model instead.

- 1 % of a model's requests may miss the SLO. If more of them miss it even on idle cores, twice that part may miss, up
  to 10 %, under every policy.
- A model that misses more than 10 % on idle cores is reported, and no rate counts as carried.
- While an event of the traffic slows a model that far, the model is not judged; this is reported, too.

**Examples**

- `cost-model simulate box128 --minutes-scale 0.01 --seed 1`
- `cost-model simulate box128 --minutes-scale 0.05 --policy dynamic --traffic slow-variant --qps 36000 --plot cores.png`
"""


Policies = Annotated[str, typer.Option(help="Policy: shared, static, baseline-pool, planned, dynamic, or all.")]
Seeds = Annotated[list[int] | None, typer.Option(min=0, help="Seed; repeatable. By default the seeds of the file.")]
Kinds = Annotated[list[str] | None, typer.Option(help="Kind of traffic; repeatable. By default all.")]
Rate = Annotated[
    float | None, typer.Option(help="Run at this total rate instead of searching.", min=0.001, max=MOST_QPS)
]
MinutesScale = Annotated[float, typer.Option(help="Shorten the traffic to this part of its minutes.", min=1e-4)]
MachineFile = Annotated[Path | None, typer.Option("--machine", help="Machine to simulate; by default the workload's.")]
FleetFile = Annotated[
    Path | None,
    typer.Option("--machines", metavar="FLEET.yaml", help="Simulate the models on these machines; see `place`."),
]
PlacementFile = Annotated[
    Path | None,
    typer.Option(
        "--placement",
        metavar="PLACEMENT.json",
        help="With --machines: placement of `place --json` to simulate; by default the models are placed.",
    ),
]
MtbfDays = Annotated[float, typer.Option(help="With --machines: mean days between failures of one.", min=0.001)]
RolloutMachines = Annotated[
    int, typer.Option(help="With --machines: machines that a rollout restarts at a time; 0: none.", min=0)
]
Picture = Annotated[Path | None, typer.Option(help="Picture to write (PNG, SVG, PDF).")]


@dataclass(frozen=True)
class _Study:
    """Contain what is simulated; `quiet`: print no tables."""

    workload: Workload
    machine: Machine
    policies: list[str]
    seeds: list[int]
    coefficients: Interference
    quiet: bool


@app.command(name="simulate", help=_HELP)
@guarded
def simulate_command(
    workload_file: WorkloadFile,
    policy: Policies = "all",
    seed: Seeds = None,
    traffic: Kinds = None,
    qps: Rate = None,
    minutes_scale: MinutesScale = 1.0,
    interference: InterferenceFile = None,
    calibration: CalibrationFile = None,
    interference_scale: InterferenceScale = 1.0,
    any_cpu: AnyCpu = False,
    machine_file: MachineFile = None,
    machines: FleetFile = None,
    placement: PlacementFile = None,
    mtbf_days: MtbfDays = 30.0,
    rollout_machines: RolloutMachines = 0,
    plot: Picture = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> int:
    from cost_model.machine import load_machine, this_machine
    from cost_model.simulation.capacity import scaled_workload
    from cost_model.simulation.inputs import BROKEN, build_inputs, find_unjudged, schedule
    from cost_model.simulation.policies import POLICIES
    from cost_model.workload import load_workload

    if policy not in (*POLICIES, "all"):
        raise UsageError(f"--policy: '{policy}' found, expected one of {', '.join(POLICIES)}, all")
    if plot:
        from cost_model.plots import check_picture

        check_picture(plot)
    workload = load_workload(workload_file, any_cpu=any_cpu)
    machine = load_machine(machine_file) if machine_file else workload.machine or this_machine()
    workload = replace(workload, traffic=_chosen_traffic(workload, workload_file, traffic))
    if machines is not None:
        from cost_model.cli.simulate_fleet import FleetOptions, run_fleet

        if machine_file is not None or policy != "all":
            raise UsageError("--machines: found with --machine or --policy, expected it alone")
        workload = scaled_workload(replace(workload, total_qps=qps or workload.total_qps), minutes_scale)
        workload, coefficients = read_costs(workload, calibration, interference, interference_scale, any_cpu)
        chosen = FleetOptions(
            machines, placement, mtbf_days, rollout_machines, (seed or list(workload.seeds))[0], plot, as_json
        )
        return run_fleet(workload, coefficients, chosen)
    if placement is not None:
        raise UsageError("--placement: found without --machines, expected both")
    policies = _possible_policies(workload, machine) if policy == "all" else [policy]
    workload = scaled_workload(workload, minutes_scale)
    workload, coefficients = read_costs(workload, calibration, interference, interference_scale, any_cpu)
    if coefficients.guessed:
        print_note("the coefficients of interference are guesses: no measured ones are installed")
    study = _Study(workload, machine, policies, seed or list(workload.seeds), coefficients, as_json)
    inputs = build_inputs(workload)
    # Events do not depend on the seed.
    broken = {
        kind.name: find_unjudged(inputs.load, inputs.names, schedule(workload, kind, study.seeds[0]))
        for kind in workload.traffic
    }
    for name in inputs.unserved:
        print_note(f"{name} misses its SLO on idle cores in more than {BROKEN:.0%} of its requests: no rate is carried")
    if qps is not None:
        data = _run_at_rate(study, qps)
    else:
        data = _search(study)
        if not as_json:
            _print_notes(inputs, broken)
    data["unserved"] = list(inputs.unserved)
    data["unjudged"] = [{"traffic": kind, **asdict(excused)} for kind, found in broken.items() for excused in found]
    if plot:
        _draw(study, qps, data, plot)
    if as_json:
        typer.echo(json.dumps(data, indent=2))
    return 0


def _chosen_traffic(workload: Workload, file: Path, names: list[str] | None) -> tuple[Traffic, ...]:
    known = [kind.name for kind in workload.traffic]
    for name in names or ():
        if name not in known:
            raise UsageError(f"--traffic: '{name}' found, expected one of {', '.join(known)}")
    if not known:
        raise WorkloadError(f"{file}: no traffic found, expected at least one kind")
    return tuple(kind for kind in workload.traffic if not names or kind.name in names)


def _possible_policies(workload: Workload, machine: Machine) -> list[str]:
    """Return the policies for which the machine has enough cores, and report the others."""
    from cost_model.simulation.policies import POLICIES, least_cores

    least = {policy: least_cores(policy, workload) for policy in POLICIES}
    for policy, cores in least.items():
        if cores > len(machine.cores):
            print_note(f"{policy} is left out: it needs {cores} cores, and there are {len(machine.cores)}")
    return [policy for policy, cores in least.items() if cores <= len(machine.cores)]


def _search(study: _Study) -> dict[str, Any]:
    from cost_model.simulation.report import capacity_table
    from cost_model.simulation.study import capacities, to_json

    screen = Console(stderr=True, quiet=study.quiet)
    with screen.status("simulating") as status:

        def show(rows: list[Any]) -> None:
            status.update(f"{rows[0].traffic}, {rows[0].policy}: {rows[0].qps:,.0f} requests/s")

        rows = capacities(study.workload, study.machine, study.policies, study.seeds, study.coefficients, progress=show)
    if not study.quiet:
        console().print(capacity_table(rows))
    return {"capacities": to_json(rows)}


def _print_notes(inputs: Any, broken: Mapping[str, Sequence[Any]]) -> None:
    from cost_model.simulation.report import judging_notes

    notes = [f"{kind}: {note}" for kind, found in broken.items() for note in judging_notes(found, {})]
    notes += judging_notes((), dict(zip(inputs.names, inputs.allowed, strict=True)))
    for note in notes:
        console().print(f"  {note}", soft_wrap=True)


def _run_at_rate(study: _Study, qps: float) -> dict[str, Any]:
    from cost_model.simulation.report import judging_notes, models_table, result_json

    runs = []
    for kind in study.workload.traffic:
        for (result,) in _curves(study, kind, [qps]).values():
            runs.append({"traffic": kind.name, "seed": study.seeds[0], **result_json(result)})
            if not study.quiet:
                screen = console()
                screen.print(models_table(kind.name, result))
                allowed = {model.name: model.allowed for model in result.models}
                for note in judging_notes(result.unjudged, allowed):
                    screen.print(f"  {note}", soft_wrap=True)
                screen.print()
    return {"runs": runs}


def _curves(study: _Study, kind: Traffic, rates: list[float]) -> dict[str, list[Result]]:
    from cost_model.simulation.study import latency_curve

    return latency_curve(study.workload, study.machine, kind, study.policies, rates, study.seeds[0], study.coefficients)


def _draw(study: _Study, qps: float | None, data: Mapping[str, Any], path: Path) -> None:
    from cost_model.plots.simulation import draw_simulation

    kind = study.workload.traffic[0]
    top = qps or max((row["qps"] for row in data["capacities"] if row["traffic"] == kind.name), default=0) or 1000.0
    curves = _curves(study, kind, [top * part for part in (0.5, 0.65, 0.8, 0.9, 0.95, 1.0, 1.05)])
    shown = "dynamic" if "dynamic" in curves else study.policies[-1]
    baseline = next(model for model in study.workload.models if model.role == "baseline")
    draw_simulation(curves, curves[shown][-2], f"{kind.name}, seed {study.seeds[0]}", baseline, path)
