# SPDX-License-Identifier: Apache-2.0
"""Compare predicted with measured latency: one model on a core, and a baseline that shares a core with variants.

    python -m load_tests.cost_model.predictions [--seconds 20] [--quick] [--resume] [--out results/predictions.json]

Profiles the models, runs them through libprocessor under Poisson arrivals (native open loop), and fits a calibration to
a part of the runs. The predictions of the queueing model and the simulator are compared with the other runs, each of
which is repeated with different arrivals. Runs for fitting and for validation alternate. The folder of the results also
receives the profiles, both traces and the calibration, for `cost-model calibrate` and `--calibration`.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cost_model.calibration import Calibration, Run, Trace, calibrate, load_trace
from cost_model.calibration.check import check_runs, simulate_runs
from cost_model.machine import this_machine
from cost_model.profiling.measure import profile_model
from cost_model.profiling.profile import Profile, cpu_model
from load_tests._environment import describe_environment
from load_tests._programs import ROOT
from load_tests._report import Target, finish, make_console, results_file
from load_tests.cost_model.judging import Verdict, judge, verdict_table
from load_tests.cost_model.open_loop import ModelLoad, may_go_first, run_tenants, wait_for_quiet
from load_tests.cost_model.picture import draw_predictions
from load_tests.workloads import ensure_model

MIXED = {1: 0.5, 16: 0.3, 64: 0.2}
PROFILED = {"W2": (1, 16, 64), "W1": (1, 16)}
FIT_LOADS = (0.35, 0.55, 0.75)
LOADS = (0.3, 0.5, 0.7, 0.8)
# Rate of the pilot run, whose utilization shows which rate causes which load.
_PILOT_LOAD, _PILOT_S = 0.5, 4.0


@dataclass(frozen=True)
class Case:
    """Describe models that share a core, with their parts of its work; some cases are only used to fit a model."""

    name: str
    tenants: tuple[tuple[ModelLoad, float], ...]
    judged: bool = True

    def at(self, scale: float) -> list[ModelLoad]:
        return [replace(tenant, qps=scale * qps) for tenant, qps in self.tenants]


def cases(profiles: Mapping[str, Profile]) -> list[Case]:
    """Return the cases, with rates that keep the core as busy as profiles predict."""

    def sized(tenant: ModelLoad, part: float) -> tuple[ModelLoad, float]:
        service = profiles[tenant.workload].service
        total = sum(tenant.rows.values())
        mean_us = sum(float(service.mean_us([rows])[0]) * weight for rows, weight in tenant.rows.items()) / total
        return tenant, part * 1e6 / mean_us

    def tenant(name: str, workload: str, rows: Mapping[int, float]) -> ModelLoad:
        return ModelLoad(name, workload, rows, 0.0)

    large, middle = {64: 1.0}, {16: 1.0}
    return [
        Case("the other model alone", (sized(tenant("variant-b", "W1", middle), 1.0),), judged=False),
        Case("one model, 64 rows", (sized(tenant("ranking", "W2", large), 1.0),)),
        Case("one model, 1 to 64 rows", (sized(tenant("ranking", "W2", MIXED), 1.0),)),
        Case(
            "baseline and two variants",
            (
                sized(tenant("ranking", "W2", large), 0.5),
                sized(tenant("variant-a", "W2", large), 0.25),
                sized(tenant("variant-b", "W1", middle), 0.25),
            ),
        ),
    ]


def measure(
    known: Sequence[Case],
    fit: list[Run],
    validate: list[Run],
    save: Callable[[], None],
    *,
    seconds: float,
    cpu: int,
    folder: Path,
    progress: Callable[[str], None],
) -> None:
    """Make the missing runs, and call `save` after each.

    The runs for validation have every load twice, with different arrivals.
    """
    order = [(case, load, 1, fit) for case in known for load in FIT_LOADS]
    order += [(case, load, seed, validate) for case in known if case.judged for load in LOADS for seed in (11, 12)]
    random.Random(1).shuffle(order)
    scales = {case.name: _scale(case, [*fit, *validate]) for case in known}
    for number, (case, load, seed, runs) in enumerate(order):
        label = f"{case.name}|{load}"
        if any((run.label, run.seed) == (label, seed) for run in runs):
            continue
        if scales[case.name] is None:
            pilot = run_tenants(
                case.at(_PILOT_LOAD), seconds=_PILOT_S, seed=99, cpu=cpu, folder=folder, progress=progress
            )
            scales[case.name] = _PILOT_LOAD / pilot.utilisation
            progress(f"{case.name}: {pilot.utilisation:.0%} busy, predicted by profiles: {_PILOT_LOAD:.0%}")
        tenants = case.at(load * (scales[case.name] or 1.0))
        run = run_tenants(tenants, seconds=seconds, seed=seed, cpu=cpu, folder=folder, label=label, progress=progress)
        p99_ms = run.models[0].latency.at(0.99) / 1e3
        progress(
            f"{number + 1}/{len(order)} {label}: busy {run.utilisation:.0%}, p99 {p99_ms:.2f} ms, "
            f"stolen {run.stolen:.1%}, others {run.others:.1%}"
        )
        runs.append(run)
        save()


def _scale(case: Case, runs: Sequence[Run]) -> float | None:
    """Return the factor of rates that earlier runs used."""
    first = case.tenants[0][1]
    for run in runs:
        name, _, load = run.label.partition("|")
        if name == case.name:
            return run.models[0].qps / first / float(load)
    return None


def judge_runs(profiles: Sequence[Profile], trace: Trace, calibration: Calibration) -> list[Verdict]:
    """Compare predictions with the runs that were not used for fitting."""
    return judge(
        [run.label for run in trace.runs],
        queue=check_runs(profiles, trace, calibration),
        simulator=simulate_runs(profiles, trace, calibration),
        uncalibrated=check_runs(profiles, trace, None),
    )


def find_targets(verdicts: Sequence[Verdict]) -> list[Target]:
    """Compare the errors with the targets: within 20 %, beyond the spread of two equal runs."""
    targets = []
    for case in dict.fromkeys(verdict.case for verdict in verdicts):
        mine = [verdict for verdict in verdicts if verdict.case == case]
        for what in ("queue", "simulator"):
            worst = max(verdict.beyond(what) for verdict in mine)
            targets.append(Target(f"{case}: p99 of the {what}, largest error beyond the spread", worst, 0.2, False))
    return targets


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each run in seconds")
    parser.add_argument("--quick", action="store_true", help="only check the program, with runs of a second")
    parser.add_argument("--out", type=Path, help="file of the results (default results/predictions.json)")
    parser.add_argument(
        "--resume", action="store_true", help="keep the profiles and runs of an interrupted measurement"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    chosen = parser.parse_args(arguments)
    chosen.out = chosen.out or results_file("predictions", chosen.quick)
    chosen.seconds = 1.0 if chosen.quick else chosen.seconds
    return chosen


def _profile_models(folder: Path, cpu: int, seconds: float, progress: Callable[[str], None]) -> dict[str, Profile]:
    """Profile the models, or read the profiles that the folder already contains."""
    profiles = {}
    for name, rows in PROFILED.items():
        progress(f"profile of {name}")
        wait_for_quiet()
        # A separate core for the second copy, whose cost is measured.
        cpus = [cpu, *sorted(os.sched_getaffinity(0) - {cpu})][:2]
        out = folder / f"profile-{name}.json"
        profiles[name] = profile_model(ensure_model(name), cpus, rows, [1], seconds=min(seconds, 2.0), out=out)
    return profiles


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurement, and return its exit status."""
    options = _parse(arguments)
    console = make_console()
    folder = options.out.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    cpu = this_machine().cores[0].cpus[0]
    environment = describe_environment(ROOT) | {"generator": "same core" if may_go_first() else "another core"}

    def progress(what: str) -> None:
        console.print(f"[dim]{what}[/]")

    def trace_of(runs: Sequence[Run]) -> Trace:
        return Trace(cpu_model(), tuple(runs), environment)

    paths = [folder / "trace-fit.json", folder / "trace-validate.json"]
    if not options.resume:
        for path in folder.glob("*.json"):
            path.unlink()
    fit, validate = (list(load_trace(path).runs) if path.exists() else [] for path in paths)
    known = _profile_models(folder, cpu, options.seconds, progress)

    def save_traces() -> None:
        for path, runs in zip(paths, (fit, validate), strict=True):
            trace_of(runs).save(path)

    measure(
        cases(known),
        fit,
        validate,
        save_traces,
        seconds=options.seconds,
        cpu=cpu,
        folder=folder / "requests",
        progress=progress,
    )
    profiles = list(known.values())
    calibration = calibrate(profiles, trace_of(fit))
    calibration.save(folder / "calibration.json")
    verdicts = judge_runs(profiles, trace_of(validate), calibration)
    console.print(verdict_table(verdicts))
    targets = find_targets(verdicts)
    results: dict[str, Any] = {
        "quick": options.quick,
        "environment": environment,
        "seconds": options.seconds,
        "calibration": calibration.to_json(),
        "verdicts": [verdict.to_json() for verdict in verdicts],
    }
    status = finish(console, options.out, results, targets, options.strict)
    draw_predictions(verdicts, options.out.with_suffix(".png"))
    return status


if __name__ == "__main__":
    raise SystemExit(main())
