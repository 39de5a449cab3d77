# SPDX-License-Identifier: Apache-2.0
"""Measure the cost model: capacity of every policy on `box128.yaml`, its sensitivity, the simulator's speed.

    python -m load_tests.bench_cost_model [--quick] [--policies shared,baseline-pool,dynamic] [--out results/...]

Writes `results/bench_cost_model.json` and pictures in the same folder. A full run takes an hour or more on two cores.
`--quick` takes a few minutes: every kind of traffic for a part of its minutes, with two seeds, and half interference.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from cost_model.interference import default_interference
from cost_model.plots.simulation import draw_simulation
from cost_model.simulation.capacity import bound_qps, make_policy, scaled_workload
from cost_model.simulation.inputs import build_inputs, schedule
from cost_model.simulation.policies import POLICIES
from cost_model.simulation.report import capacity_table, comparison_table
from cost_model.simulation.run import simulate
from cost_model.simulation.study import Comparison, Row, capacities, compare, latency_curve, to_json
from cost_model.workload import Workload, load_workload
from load_tests._environment import describe_environment, usable_cpus
from load_tests._programs import ROOT
from load_tests._report import Target, finish, make_console, results_file

SCENARIO = ROOT / "cost_model" / "scenarios" / "box128.yaml"
MOVING = ("bursts", "shifting-experiments", "slow-variant", "diurnal")
# Sensitivity to half and double interference uses a part of the minutes and one seed.
SENSITIVITY_SCALES = (0.5, 2.0)
SENSITIVITY_POLICIES = ("shared", "baseline-pool", "dynamic")


def measure_speed(workload: Any, seconds: int = 20) -> dict[str, float]:
    """Measure simulated requests per second of wall time and of CPU time, for `seconds` of traffic."""
    machine = workload.machine
    inputs = build_inputs(workload)
    pieces = schedule(workload, workload.traffic[0], 1)[:seconds]
    interference = default_interference()
    rates: dict[str, float] = {}
    for name in ("baseline-pool", "dynamic"):
        policy = make_policy(name, workload, machine, interference)
        began, cpu = time.perf_counter(), time.process_time()
        result = simulate(inputs, machine, pieces, policy, 40_000, 1, interference)
        rates[f"{name}_per_wall_s"] = result.arrived / (time.perf_counter() - began)
        rates[f"{name}_per_cpu_s"] = result.arrived / (time.process_time() - cpu)
    return rates


def find_targets(rows: list[Row], comparisons: list[Comparison], speed: float) -> list[Target]:
    """Compare the results with the targets."""

    def mean(policy: str, against: str, kinds: tuple[str, ...]) -> float:
        found = [
            comparison.mean
            for comparison in comparisons
            if (comparison.policy, comparison.against, comparison.interference) == (policy, against, 1.0)
            and comparison.traffic in kinds
        ]
        return sum(found) / len(found) if found else 0.0

    every = tuple(dict.fromkeys(row.traffic for row in rows))
    least = [
        comparison.least
        for comparison in comparisons
        if (comparison.policy, comparison.against, comparison.interference) == ("dynamic", "baseline-pool", 1.0)
    ]
    return [
        Target("simulated requests per second of wall time", speed, 300_000, True),
        Target("baseline-pool / shared, mean over all traffic", mean("baseline-pool", "shared", every), 1.3, True),
        Target("dynamic / baseline-pool, moving traffic", mean("dynamic", "baseline-pool", MOVING), 1.25, True),
        Target("dynamic / baseline-pool, least of all runs", min(least, default=0.0), 1.0, True),
    ]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="simulate a part of the minutes with two seeds")
    parser.add_argument("--minutes-scale", type=float, help="part of the minutes (default 1; 0.03 with --quick)")
    parser.add_argument("--policies", default=",".join(POLICIES), help="policies, separated by commas (default all)")
    parser.add_argument("--jobs", type=int, default=usable_cpus(), help="number of processes (default: one per CPU)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--out", type=Path, help="file of the results (default results/bench_cost_model.json)")
    chosen = parser.parse_args(arguments)
    chosen.out = chosen.out or results_file("bench_cost_model", chosen.quick)
    chosen.minutes_scale = chosen.minutes_scale or (0.03 if chosen.quick else 1.0)
    chosen.policies = chosen.policies.split(",")
    return chosen


def _measure_capacities(
    base: Workload, seeds: Sequence[int], options: argparse.Namespace, console: Console
) -> list[Row]:
    """Find the capacities of all policies, and those of some with other coefficients of interference."""

    def progress(rows: list[Row]) -> None:
        rates = " ".join(f"{row.qps:,.0f}" for row in rows)
        console.print(f"[dim]{rows[0].traffic}, {rows[0].policy}, x{rows[0].interference:g}: {rates}[/]")

    assert base.machine is not None
    interference, part = default_interference(), 0.05 if options.quick else 0.005
    workload = scaled_workload(base, options.minutes_scale)
    rows = capacities(
        workload, base.machine, options.policies, seeds, interference, part=part, jobs=options.jobs, progress=progress
    )
    shorter = scaled_workload(base, min(options.minutes_scale, 0.05))
    sensitive = [policy for policy in SENSITIVITY_POLICIES if policy in options.policies]
    scales = SENSITIVITY_SCALES[:1] if options.quick else SENSITIVITY_SCALES
    return rows + capacities(
        shorter, base.machine, sensitive, seeds[:1], interference, scales=scales, part=part,
        jobs=options.jobs, progress=progress,
    )  # fmt: skip


def _draw(base: Workload, rows: Sequence[Row], seed: int, options: argparse.Namespace) -> None:
    """Write a picture for each kind of traffic that a policy carries."""
    assert base.machine is not None
    shown = [policy for policy in options.policies if any(row.qps for row in rows if row.policy == policy)]
    for traffic in scaled_workload(base, min(options.minutes_scale, 0.1)).traffic:
        top = max((row.qps for row in rows if row.traffic == traffic.name), default=0.0)
        if top:
            rates = [top * step for step in (0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05)]
            workload = scaled_workload(base, options.minutes_scale)
            curves = latency_curve(workload, base.machine, traffic, shown, rates, seed, default_interference())
            owned = curves["dynamic"][-2] if "dynamic" in curves else None
            picture = options.out.with_name(f"{options.out.stem}_{traffic.name}.png")
            draw_simulation(curves, owned, traffic.name, base.model("ranking"), picture)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, and return its exit status."""
    options = _parse(arguments)
    console = make_console()
    base = load_workload(SCENARIO)
    assert base.machine is not None
    seeds = base.seeds[:2] if options.quick else base.seeds
    began = time.perf_counter()
    environment = describe_environment(ROOT)
    speed = measure_speed(base, 4 if options.quick else 20)
    console.print(f"{speed['baseline-pool_per_wall_s'] / 1e6:.1f} million simulated requests per second of wall time")
    rows = _measure_capacities(base, seeds, options, console)
    pairs = [("baseline-pool", "shared"), ("dynamic", "baseline-pool"), ("planned", "baseline-pool")]
    comparisons = [comparison for pair in pairs for comparison in compare(rows, *pair)]
    console.print(capacity_table(rows))
    console.print(comparison_table(comparisons))
    targets = find_targets(rows, comparisons, speed["baseline-pool_per_wall_s"])
    inputs = build_inputs(base)
    results = {
        "quick": options.quick,
        "environment": environment,
        "minutes_scale": options.minutes_scale,
        "interference": asdict(default_interference()),
        "bound_qps": bound_qps(inputs, base.machine),
        "missed_alone": dict(zip(inputs.names, inputs.alone.tolist(), strict=True)),
        "speed": speed,
        "capacities": to_json(rows),
        "comparisons": [asdict(comparison) for comparison in comparisons],
        "wall_s": time.perf_counter() - began,
    }
    status = finish(console, options.out, results, targets, options.strict)
    _draw(base, rows, seeds[0], options)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
