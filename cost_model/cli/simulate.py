# SPDX-License-Identifier: Apache-2.0
"""`cost-model simulate`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cost_model.cli.app import app, guarded, tell
from cost_model.cli.reading import (
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


@app.command(name="simulate", help=_HELP)
@guarded
def simulate_command(
    workload_file: WorkloadFile,
    policy: Annotated[
        str, typer.Option(help="Policy: shared, static, baseline-pool, planned, dynamic, or all.")
    ] = "all",
    seed: Annotated[
        list[int] | None, typer.Option(min=0, help="Seed; repeatable. By default the seeds of the file.")
    ] = None,
    traffic: Annotated[list[str] | None, typer.Option(help="Kind of traffic; repeatable. By default all.")] = None,
    qps: Annotated[
        float | None, typer.Option(help="Run at this total rate instead of searching.", min=0.001, max=MOST_QPS)
    ] = None,
    minutes_scale: Annotated[
        float, typer.Option(help="Shorten the traffic to this part of its minutes.", min=1e-4)
    ] = 1.0,
    interference: InterferenceFile = None,
    calibration: CalibrationFile = None,
    interference_scale: InterferenceScale = 1.0,
    any_cpu: AnyCpu = False,
    machine_file: Annotated[
        Path | None, typer.Option("--machine", help="Machine to simulate; by default the workload's.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture to write (PNG, SVG, PDF).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> int:
    from cost_model.machine import load_machine, this_machine
    from cost_model.simulation.capacity import scaled_workload
    from cost_model.simulation.inputs import BROKEN, build_inputs, schedule, unjudged
    from cost_model.simulation.policies import POLICIES, least_cores
    from cost_model.workload import load_workload

    names = list(POLICIES) if policy == "all" else [policy]
    if names[0] not in POLICIES:
        raise UsageError(f"--policy: '{policy}' found, expected one of {', '.join(POLICIES)}, all")
    if plot:
        from cost_model.plots import check_picture

        check_picture(plot)
    workload = load_workload(workload_file, any_cpu=any_cpu)
    machine = load_machine(machine_file) if machine_file else workload.machine or this_machine()
    known = [kind.name for kind in workload.traffic]
    for name in traffic or ():
        if name not in known:
            raise UsageError(f"--traffic: '{name}' found, expected one of {', '.join(known)}")
    if not known:
        raise WorkloadError(f"{workload_file}: no traffic found, expected at least one kind")
    kept = tuple(kind for kind in workload.traffic if not traffic or kind.name in traffic)
    if policy == "all":
        for name in [candidate for candidate in names if least_cores(candidate, workload) > len(machine.cores)]:
            names.remove(name)
            tell(
                f"{name} is left out: it needs {least_cores(name, workload)} cores, and there are {len(machine.cores)}"
            )
    workload = scaled_workload(replace(workload, traffic=kept), minutes_scale)
    workload, coefficients = read_costs(workload, calibration, interference, interference_scale, any_cpu)
    if coefficients.guessed:
        tell("the coefficients of interference are guesses: no measured ones are installed")
    seeds = seed or list(workload.seeds)
    inputs = build_inputs(workload)
    # Events do not depend on the seed.
    broken = {
        kind.name: unjudged(inputs.load, inputs.names, schedule(workload, kind, seeds[0])) for kind in workload.traffic
    }
    for name in inputs.unserved:
        tell(f"{name} misses its SLO on idle cores in more than {BROKEN:.0%} of its requests: no rate is carried")
    if qps is not None:
        data = _at_rate(workload, machine, names, qps, seeds[0], coefficients, as_json)
    else:
        data = _search(workload, machine, names, seeds, coefficients, as_json)
        if not as_json:
            _notes(inputs, broken)
    data["unserved"] = list(inputs.unserved)
    data["unjudged"] = [{"traffic": kind, **asdict(excused)} for kind, found in broken.items() for excused in found]
    if plot:
        _draw(workload, machine, names, seeds[0], coefficients, qps, data, plot)
    if as_json:
        typer.echo(json.dumps(data, indent=2))
    return 0


def _search(workload: Any, machine: Any, names: list[str], seeds: list[int], coefficients: Any, quiet: bool) -> Any:
    from cost_model.simulation.report import capacity_table
    from cost_model.simulation.study import capacities, to_json

    screen = Console(stderr=True, quiet=quiet)
    with screen.status("simulating") as status:

        def told(rows: list[Any]) -> None:
            status.update(f"{rows[0].traffic}, {rows[0].policy}: {rows[0].qps:,.0f} requests/s")

        rows = capacities(workload, machine, names, seeds, coefficients, told=told)
    if not quiet:
        console().print(capacity_table(rows))
    return {"capacities": to_json(rows)}


def _notes(inputs: Any, broken: Mapping[str, Sequence[Any]]) -> None:
    from cost_model.simulation.report import judging_notes

    told = [f"{kind}: {note}" for kind, found in broken.items() for note in judging_notes(found, {})]
    told += judging_notes((), dict(zip(inputs.names, inputs.allowed, strict=True)))
    for note in told:
        console().print(f"  {note}", soft_wrap=True)


def _at_rate(
    workload: Any, machine: Any, names: list[str], qps: float, seed: int, coefficients: Any, quiet: bool
) -> Any:
    from cost_model.simulation.report import judging_notes, models_table, result_json
    from cost_model.simulation.study import latency_curve

    answers = []
    for kind in workload.traffic:
        for results in latency_curve(workload, machine, kind, names, [qps], seed, coefficients).values():
            answers.append({"traffic": kind.name, "seed": seed, **result_json(results[0])})
            if not quiet:
                screen = console()
                screen.print(models_table(kind.name, results[0]))
                allowed = {model.name: model.allowed for model in results[0].models}
                for note in judging_notes(results[0].unjudged, allowed):
                    screen.print(f"  {note}", soft_wrap=True)
                screen.print()
    return {"runs": answers}


def _draw(
    workload: Any, machine: Any, names: list[str], seed: int, coefficients: Any, qps: float | None, data: Any,
    path: Path,
) -> None:  # fmt: skip
    from cost_model.plots.simulation import draw_simulation
    from cost_model.simulation.study import latency_curve

    kind = workload.traffic[0]
    top = qps or max((row["qps"] for row in data["capacities"] if row["traffic"] == kind.name), default=0) or 1000.0
    rates = [top * part for part in (0.5, 0.65, 0.8, 0.9, 0.95, 1.0, 1.05)]
    curves = latency_curve(workload, machine, kind, names, rates, seed, coefficients)
    shown = "dynamic" if "dynamic" in curves else names[-1]
    baseline = next(model for model in workload.models if model.role == "baseline")
    draw_simulation(curves, curves[shown][-2], f"{kind.name}, seed {seed}", baseline, path)
