# SPDX-License-Identifier: Apache-2.0
"""`cost-model simulate`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from cost_model.cli.app import app, guarded, tell
from cost_model.cli.reading import AnyCpu, CalibrationFile, InterferenceFile, InterferenceScale, read_costs
from cost_model.cli.render_plan import console
from cost_model.errors import UsageError, WorkloadError
from cost_model.workload import MOST_QPS

_HELP = """Simulate a machine, also one that you do not have: which policy carries how much.

Finds the highest total requests/s at which every model meets its p99 objective, for each kind of traffic; with `--qps`,
runs at that rate and shows each model instead. A model that misses by itself, on idle cores, may miss twice that, under
every policy alike, up to 10 %; one that misses more than that alone is named, and no rate counts as carried.

**Examples**

- `cost-model simulate box128.yaml --minutes-scale 0.05`
- `cost-model simulate box128.yaml --policy dynamic --traffic slow-variant --qps 36000 --plot cores.png`
"""


@app.command(name="simulate", help=_HELP)
@guarded
def simulate_command(
    workload_file: Annotated[Path, typer.Argument(metavar="WORKLOAD", help="Workload file (YAML).")],
    policy: Annotated[str, typer.Option(help="shared, static, baseline-pool, planned, dynamic, or all.")] = "all",
    seed: Annotated[
        list[int] | None, typer.Option(min=0, help="Seed; again for more. By default those of the file.")
    ] = None,
    traffic: Annotated[list[str] | None, typer.Option(help="Kind of traffic; again for more. All by default.")] = None,
    qps: Annotated[
        float | None, typer.Option(help="Run at this total rate in place of searching.", min=0.001, max=MOST_QPS)
    ] = None,
    minutes_scale: Annotated[float, typer.Option(help="Shorten traffic to this part of its minutes.", min=1e-4)] = 1.0,
    interference: InterferenceFile = None,
    calibration: CalibrationFile = None,
    interference_scale: InterferenceScale = 1.0,
    any_cpu: AnyCpu = False,
    machine_file: Annotated[Path | None, typer.Option("--machine", help="Machine file, if not the workload's.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a picture (PNG, SVG, PDF).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    from cost_model.machine import load_machine, this_machine
    from cost_model.simulation.capacity import scaled_workload
    from cost_model.simulation.inputs import BROKEN, build_inputs
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
    known = [one.name for one in workload.traffic]
    for name in traffic or ():
        if name not in known:
            raise UsageError(f"--traffic: '{name}' found, expected one of {', '.join(known)}")
    if not known:
        raise WorkloadError(f"{workload_file}: no traffic found, expected at least one kind")
    kept = tuple(one for one in workload.traffic if not traffic or one.name in traffic)
    if policy == "all":
        for name in [one for one in names if least_cores(one, workload) > len(machine.cores)]:
            names.remove(name)
            tell(
                f"{name} is left out: it needs {least_cores(name, workload)} cores, and there are {len(machine.cores)}"
            )
    workload = scaled_workload(replace(workload, traffic=kept), minutes_scale)
    workload, coefficients = read_costs(workload, calibration, interference, interference_scale, any_cpu)
    if coefficients.guessed:
        tell("coefficients of interference are guesses, as no measured ones are installed")
    seeds = seed or list(workload.seeds)
    unserved = build_inputs(workload).unserved
    for name in unserved:
        tell(f"{name} misses its objective on idle cores in more than {BROKEN:.0%} of its requests: no rate is carried")
    if qps is not None:
        data = _at_rate(workload, machine, names, qps, seeds[0], coefficients, as_json)
    else:
        data = _search(workload, machine, names, seeds, coefficients, as_json)
    data["unserved"] = list(unserved)
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


def _at_rate(
    workload: Any, machine: Any, names: list[str], qps: float, seed: int, coefficients: Any, quiet: bool
) -> Any:
    from cost_model.simulation.report import result_json
    from cost_model.simulation.study import latency_curve

    answers = []
    for kind in workload.traffic:
        for results in latency_curve(workload, machine, kind, names, [qps], seed, coefficients).values():
            answers.append({"traffic": kind.name, "seed": seed, **result_json(results[0])})
            if not quiet:
                console().print(_models_table(kind.name, results[0]))
    return {"runs": answers}


def _models_table(traffic: str, result: Any) -> Table:
    verdict = "[green]every model meets its objective[/]" if result.met else "[red]not every model does[/]"
    table = Table(title=f"{traffic}, {result.policy}, {result.qps:,.0f} requests/s: {verdict}", title_justify="left")
    for name in ("model", "requests", "dropped", "missed", "allowed", "p50 [ms]", "p99 [ms]", "cores", "borrowed"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for one in result.models:
        mark = "" if one.met else "[red]"
        table.add_row(
            one.name, f"{one.arrived:,}", f"{one.dropped:,}", f"{mark}{one.missed:.2%}", f"{one.allowed:.2%}",
            f"{one.p50_ms:.2f}", f"{one.p99_ms:.2f}", f"{one.cores:.2f}", f"{one.borrowed_cores:.2f}",
        )  # fmt: skip
    return table


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
    baseline = next(model.name for model in workload.models if model.role == "baseline")
    draw_simulation(curves, curves[shown][-2], f"{kind.name}, seed {seed}", baseline, path)
