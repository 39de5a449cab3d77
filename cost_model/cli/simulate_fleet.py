# SPDX-License-Identifier: Apache-2.0
"""`cost-model simulate --machines`: the simulation of a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from cost_model.cli.app import print_json
from cost_model.cli.render_plan import console, make_table
from cost_model.errors import UsageError
from cost_model.interference import Interference
from cost_model.workload import Workload

# Percentages of traffic and failing parts for which the cost of a bad version is shown.
_PERCENTS = (1.0, 5.0, 10.0, 50.0, 100.0)
_FAILING = (0.02, 0.1, 1.0)


@dataclass(frozen=True)
class FleetOptions:
    """Contain the options of the command."""

    machines: Path
    placement: Path | None
    mtbf_days: float
    rollout_machines: int
    seed: int
    plot: Path | None
    as_json: bool


def run_fleet(workload: Workload, costs: Interference, options: FleetOptions) -> int:
    """Place the models or read a placement, simulate each kind of traffic, and print what was found; return the exit
    code.

    Raises
    ------
    UsageError
        If there is no room for the models, or the file is not a placement of them.
    """
    from cost_model.fleet import load_fleet, make_problem, place
    from cost_model.fleet.applied import read_placement
    from cost_model.fleet.course import Failures, simulate_fleet
    from cost_model.fleet.explain import reasons_of
    from cost_model.fleet.rollouts import GuardSettings, bad_version
    from cost_model.fleet.simulation_report import simulation_report
    from cost_model.simulation.inputs import build_inputs, schedule

    rates = workload.qps_by_model()
    fleet = load_fleet(options.machines)
    if options.placement is None:
        made = place(make_problem(workload, fleet, rates, costs))
    else:
        made = read_placement(options.placement, workload, fleet, rates, costs)
    if made.unplaced:
        _, missing = reasons_of(made)
        raise UsageError(f"{options.machines}: no room for {missing[0][0]}: {missing[0][1]}")
    inputs = build_inputs(workload)
    failures = Failures(options.mtbf_days, rollout_machines=options.rollout_machines)
    results = [
        simulate_fleet(made, kind.name, schedule(workload, kind, options.seed), inputs.shares, failures, options.seed)
        for kind in workload.traffic
    ]
    first = max(workload.models, key=lambda model: rates[model.name])
    versions = [
        bad_version(first.name, rates[first.name], percent, failing, GuardSettings(), options.seed)
        for failing in _FAILING
        for percent in _PERCENTS
    ]
    if options.plot:
        from cost_model.plots.fleet import draw_fleet

        draw_fleet(results[0], versions, options.plot)
    if options.as_json:
        print_json(simulation_report(made, results, versions).to_json())
    else:
        for result in results:
            _render(result)
        _render_versions(versions)
    return 0


def _render(result: Any) -> None:
    screen = console()
    late = [model for model in result.models if not model.met]
    verdict = "[green]all models meet their SLOs[/]" if not late else f"[red]{len(late)} units miss their SLOs[/]"
    screen.print(
        f"[bold]{escape(result.traffic)}[/]: {result.simulated_s:,.0f} s, {result.failures} failures of machines, "
        f"{verdict}",
        soft_wrap=True,
    )
    if late:
        table = make_table("Late", "models", "requests", "late", "replicas")
        for model in sorted(late, key=lambda model: -model.late)[:10]:
            table.add_row(escape(model.name), f"{model.requests:,.0f}", f"{model.late:.2%}", str(model.replicas))
        screen.print(table)
    table = make_table("Busiest machines", "machine", "busiest allocation", "seconds overloaded", "when")
    for spot in result.hot_spots:
        table.add_row(escape(spot.machine), f"{spot.busiest:.0%}", f"{spot.overloaded_s:,.0f}", escape(spot.cause))
    screen.print(table)
    worst = result.worst_loss
    if result.losses:
        names = ", ".join(loss.domain for loss in result.losses[:6])
        screen.print(
            f"At the highest traffic, the loss of {len(result.losses)} machines or zones makes models late: {names}",
            soft_wrap=True,
        )
    else:
        screen.print(
            "At the highest traffic, the loss of any machine or zone is survived; after that of "
            f"{escape(worst.domain)} a replica is {worst.busiest:.0%} busy",
            soft_wrap=True,
        )
    screen.print()


def _render_versions(versions: Sequence[Any]) -> None:
    if not versions:
        return
    title = f"A bad version of {versions[0].model}, until the guard has stopped it"
    table = make_table(title, "of the traffic", "fails", "seconds until stopped", "requests", "failed")
    for version in versions:
        table.add_row(
            f"{version.percent:g} %",
            f"{version.failing:.0%}",
            "not within an hour" if version.stopped_s is None else f"{version.stopped_s:,.1f}",
            f"{version.requests:,.0f}",
            f"{version.failed:,.0f}",
        )
    console().print(table)
