# SPDX-License-Identifier: Apache-2.0
"""Measure how long a placement of 500 models on 1,000 machines takes, and how far it can be from the best."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from cost_model.fleet import Fleet, Placement, make_problem, parse_fleet, place
from cost_model.workload import Workload, parse_workload
from load_tests._report import Target
from load_tests.fleet.setup import Setup

__all__ = ["fleet_of", "judge", "measure", "workload_of"]

_SEEDS = (3, 4, 5)
_MOST_SECONDS, _MOST_GAP = 10.0, 0.05
# Factor of the rates of one model in ten, for a placement that follows another one.
_CHANGE = 1.2


def workload_of(baselines: int, seed: int, change: float = 1.0) -> Workload:
    """Draw models: baselines with four variants each, which read the tables of their baseline.

    Parameters
    ----------
    baselines : int
    seed : int
    change : float
        Factor of the rates of every tenth baseline.
    """
    draw = random.Random(seed)
    tables = {f"table-{i}": f"{draw.choice([2, 5, 10, 20, 40, 80])}GB" for i in range(max(2, 3 * baselines // 5))}
    rows = {"lognormal": {"mean": 200, "cv": 0.9, "max": 1000}}
    models: list[dict[str, Any]] = []
    for number in range(baselines):
        rate = round(draw.lognormvariate(11.5, 0.9)) * (change if number % 10 == 0 else 1.0)
        read = {table: tables[table] for table in draw.sample(sorted(tables), 2)}
        common = {
            "rows": rows, "bytes_per_row": 4000, "slo_p99_ms": 20, "memory_gb": 1, "tables": {"files": read},
            "speedups": {"avx512_bf16": 1.5} if number % 3 == 0 else {},
        }  # fmt: skip
        name = f"model-{number}"
        models.append(
            {"name": name, "role": "baseline", "fixed_us": 60, "per_row_us": draw.uniform(5, 14), "cv": 0.35}
            | {"qps": rate, **common}
        )
        for variant in range(4):
            models.append(
                {"name": f"{name}-{variant}", "role": "variant", "of": name, "fixed_us": 65, "cv": 0.4}
                | {"per_row_us": draw.uniform(6, 16), "qps": round(rate * 0.04), **common}
            )
    return parse_workload({"models": models})


def _baselines(setup: Setup) -> int:
    return 6 if setup.quick else 100


def fleet_of(machines: int) -> Fleet:
    """Return machines of three kinds: size, speed and features of the CPU."""
    half, third = machines // 2, machines * 3 // 10
    kinds: list[dict[str, Any]] = [
        {"group": "usual", "count": half, "cores": 64, "memory_gb": 256, "numa_nodes": 2},
        {"group": "old", "count": third, "cores": 48, "memory_gb": 192, "speed": 0.8},
        {"group": "new", "count": machines - half - third, "cores": 96, "memory_gb": 384, "speed": 1.1}
        | {"features": ["avx512_bf16"]},
    ]
    return parse_fleet({"machines": kinds})


def _check(made: Placement) -> None:
    """Check that no machine carries more than it has, and that every model has a place."""
    if made.unplaced:
        raise AssertionError(f"{len(made.unplaced)} pools have no place")
    for name, free in made.packing.free.items():
        if float(free.min()) < -1e-6:
            raise AssertionError(f"a machine lacks {-float(free.min()):g} of {name}")


def measure(setup: Setup) -> dict[str, Any]:
    """Place several drawn workloads, and each again after a change of rates."""
    seconds, cpu_seconds, gaps, moved, models = [], [], [], [], 0
    fleet = fleet_of(60 if setup.quick else 1000)
    used, loads = [], []
    for seed in _SEEDS[: setup.rounds]:
        workload = workload_of(_baselines(setup), seed)
        models = len(workload.models)
        began, cpu = time.perf_counter(), time.process_time()
        problem = make_problem(workload, fleet, workload.qps_by_model())
        made = place(problem)
        seconds.append(time.perf_counter() - began)
        cpu_seconds.append(time.process_time() - cpu)
        _check(made)
        gaps.append(made.gap)
        used.append(int(made.packing.used.sum()))
        loads.append(sum(unit.load() for unit in problem.units))
        moved.append(_moved_part(made, setup, fleet, seed))
    return {
        "models": models,
        "machines": len(fleet.machines),
        "seconds": _summary(seconds),
        "cpu_seconds": _summary(cpu_seconds),
        "gap": _summary(gaps),
        "machines_used": _summary(used),
        "busy_cores": _summary(loads),
        "moved_after_change": _summary(moved),
    }


def _moved_part(before: Placement, setup: Setup, fleet: Fleet, seed: int) -> float:
    """Return the part of the replicas that move if the rates of a tenth of the models grow by a fifth."""
    workload = workload_of(_baselines(setup), seed, _CHANGE)
    known = {name: before.machines_of(name) for unit in before.problem.units for name in unit.names}
    after = place(make_problem(workload, fleet, workload.qps_by_model()), known)
    _check(after)
    loads = sum(len(load_on) for _, load_on, _ in after.moves())
    return loads / sum(len(machines) for machines in known.values())


def _summary(values: list[Any]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "greatest": max(values)}


def judge(case: dict[str, Any]) -> list[Target]:
    """Compare the figures with the targets."""
    return [
        Target("placement, seconds (greatest)", case["seconds"]["greatest"], _MOST_SECONDS, False),
        Target("placement, gap to the lower bound (greatest)", case["gap"]["greatest"], _MOST_GAP, False),
    ]
