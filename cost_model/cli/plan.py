# SPDX-License-Identifier: Apache-2.0
"""`cost-model plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
from cost_model.machine import load_machine, this_machine
from cost_model.planning import Addition, Explanation, Plan, explain, plan, plan_addition
from cost_model.planning.report import plan_report
from cost_model.service import ServiceTime
from cost_model.workload import Tenant, Workload, load_workload

_HELP = """Decide which model gets which cores.

Baselines first get the cores that their SLOs need. Variants share a pool, or several pools if that needs fewer cores.
If a plan cannot meet every SLO, it says why, still protects the baselines, and the exit code is 1. With `--add`, the
exit code concerns only that model: 0 if it fits or needs cores, 1 if it does not fit.

**Examples**

- `cost-model plan box128 --total-qps 20000`
- `cost-model plan box128 --total-qps 20000 --explain --plot plan.png`
- `cost-model plan box128 --total-qps 20000 --add exp_17 --like ranking --qps 300 --slo-p99-ms 20`
"""


MachineFile = Annotated[
    Path | None, optional("MACHINE.yaml", "Machine to plan for; by default the workload's, otherwise this machine.")
]
Added = Annotated[str | None, optional("NAME", "Name of a further model to try out.")]
AddedQps = Annotated[float | None, optional("Q", "Requests/s of the model of --add.")]
AddedSlo = Annotated[float | None, optional("T", "SLO of the model of --add; by default that of --like.")]
Like = Annotated[
    str | None, optional("MODEL", "Model whose service times the model of --add has; by default the baseline.")
]
Parallel = Annotated[
    float | None,
    optional(
        "P",
        "Part of the work per row that a session's threads divide, for models that do not specify it.",
        min=0,
        max=1,
    ),
]
Explained = Annotated[
    bool, typer.Option("--explain", metavar="", help="Explain each allocation: the effect of one core more or less.")
]
ExplainedModels = Annotated[list[str] | None, optional("NAME", "Explain the allocation of this model; repeatable.")]
Picture = Annotated[Path | None, optional("OUT.png", "Picture to write: which model owns which core.")]


@app.command(name="plan", help=_HELP)
@guarded
def plan_command(
    workload: WorkloadFile,
    machine: MachineFile = None,
    total_qps: TotalQps = None,
    add: Added = None,
    qps: AddedQps = None,
    slo_p99_ms: AddedSlo = None,
    like: Like = None,
    interference: InterferenceFile = None,
    calibration: CalibrationFile = None,
    interference_scale: InterferenceScale = 1.0,
    any_cpu: AnyCpu = False,
    parallel: Parallel = None,
    explained: Explained = False,
    explain_model: ExplainedModels = None,
    as_json: Json = False,
    plot: Picture = None,
) -> int:
    read = _with_parallel(load_workload(workload, any_cpu=any_cpu), parallel)
    if add is None and (qps is not None or slo_p99_ms is not None or like is not None):
        raise UsageError(
            "--qps, --slo-p99-ms, --like: found without --add, expected it; for the rate of all models use --total-qps"
        )
    check_total_qps(total_qps)
    if plot:
        from cost_model.plots import check_picture

        check_picture(plot)
    there = load_machine(machine) if machine else read.machine or this_machine()
    read, costs = read_costs(read, calibration, interference, interference_scale, any_cpu)
    planned = plan(read, there, read.qps_by_model(total_qps), costs)
    addition = _try_model(planned, add, qps, slo_p99_ms, like) if add is not None else None
    shown = addition.after if addition else planned
    names = list(dict.fromkeys([*(_explained_models(shown, add) if explained else []), *(explain_model or ())]))
    explanations = [explain(shown, name) for name in names]
    if plot:
        from cost_model.plots.plan import plot_plan

        plot_plan(shown, plot)
    if as_json:
        print_json(plan_report(shown, addition, explanations).to_json())
    else:
        _render(shown, addition, explanations)
    # With --add the exit code concerns that model, even if other models miss their SLO without it.
    return 1 if (addition.verdict == "does_not_fit" if addition else not shown.feasible) else 0


def _render(shown: Plan, addition: Addition | None, explanations: Sequence[Explanation]) -> None:
    from cost_model.cli.render_plan import render_addition, render_explanation, render_plan

    if addition:
        render_addition(addition)
    render_plan(shown, addition.name if addition else None)
    for explanation in explanations:
        render_explanation(explanation)


def _with_parallel(read: Workload, parallel: float | None) -> Workload:
    if parallel is None:
        return read
    models = tuple(
        replace(model, service=replace(model.service, parallel=parallel))
        if isinstance(model.service, ServiceTime) and model.service.parallel == 0
        else model
        for model in read.models
    )
    return replace(read, models=models)


def _try_model(before: Plan, name: str, qps: float | None, slo_p99_ms: float | None, like: str | None) -> Addition:
    if qps is None or qps < 0:
        raise UsageError(f"--qps: {qps} found, expected the requests/s of the model of --add, at least 0")
    if slo_p99_ms is not None and slo_p99_ms <= 0:
        raise UsageError(f"--slo-p99-ms: {slo_p99_ms} found, expected a time above 0")
    models = before.workload.models
    of = before.workload.model(like) if like else next(model for model in models if model.role == "baseline")
    added: Tenant = replace(
        of, name=name, role="variant", of=of.name, group=None, slo_p99_ms=slo_p99_ms or of.slo_p99_ms
    )
    return plan_addition(before, added, qps)


def _explained_models(shown: Plan, add: str | None) -> list[str]:
    """Return one model of each allocation: the added one in its own, otherwise the one that is nearest to its SLO."""
    names = []
    for allocation in shown.allocations:
        if add in allocation.models:
            names.append(str(add))
        else:
            late = {name: predicted.late for name, predicted in allocation.predicted.items()}
            names.append(max(allocation.models, key=lambda name: late[name]))
    return names
