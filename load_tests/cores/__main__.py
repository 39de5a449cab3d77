# SPDX-License-Identifier: Apache-2.0
"""Measure the cost model on this machine: the benefit of a plan for a baseline next to an overloaded variant.

    python -m load_tests.cores            # about six minutes
    python -m load_tests.cores --quick    # checks the program only

Optimizes W2 and starts two proxies, one that divides cores and one that does not, each with a Go host. Prints a table
and the targets, and writes results/bench_cores.json and a picture in the same folder.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from load_tests._benchmark import BenchmarkParser
from load_tests._report import Target
from load_tests.cores.measure import SETTLE_S, Rates, capacity, measure_bursts, measure_sides
from load_tests.cores.report import draw, judge, spread_of, table
from load_tests.cores.run import run_on_hosts
from load_tests.cores.stage import BASELINE, VARIANT, Stage, open_stage, wait_for_division, wait_for_profiles
from load_tests.loadgen import open_loop, placement

#: The SLO as a multiple of the time of a single request.
_SLO_REQUESTS = 10.0
#: Longest wait for the division of the cores [s].
_DIVIDED_S = 30.0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = BenchmarkParser(
        "bench_cores",
        "Measure the cost model on this machine.",
        rounds=4,
        seconds=10,
        of="each side",
        quick_seconds=1.0,
    )
    parser.add_argument("--bursts", type=int, help="number of bursts of each kind (default 3)")
    parser.add_argument("--rows", type=int, default=128, help="number of rows of a request")
    parser.add_argument("--model", type=Path, help="an optimized W2; by default it is created")
    parser.add_programs(None)
    parsed = parser.parse(arguments)
    parsed.bursts = (0 if parsed.quick else 3) if parsed.bursts is None else parsed.bursts
    return parsed


def _measure(stage: Stage, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    wait_for_profiles(stage.divided)
    every = sorted(os.sched_getaffinity(0))
    # Pools of baselines use cores from the low end.
    stage.pin(str(every[0]))
    rates = Rates(capacity(stage, max(1.0, options.seconds / 2)))
    slo_ms = _SLO_REQUESTS * 1000 / rates.core
    stage.set_slo(slo_ms)
    stage.pin("auto")
    generator = every[-1]
    console.print(
        f"One core serves {rates.core:,.0f} requests/s of {options.rows} rows. The baseline receives "
        f"{rates.baseline:,.0f} requests/s, the variant {rates.overload:,.0f}; the SLO is {slo_ms:.1f} ms.\n"
        f"Load generators run on {placement(generator)}."
    )
    address = stage.divided.address
    with (
        open_loop(address, stage.requests[BASELINE], rates.baseline, generator),
        open_loop(address, stage.requests[VARIANT], rates.overload, generator),
    ):
        cpus = wait_for_division("control", stage.divided, _DIVIDED_S)
        time.sleep(2.0)
        explained = stage.divided.client.explain("ranking")["versions"]
    settle_s = 0.5 if options.quick else SETTLE_S
    sides = measure_sides(stage, rates, cpus, generator, options.rounds, options.seconds, console, settle_s)
    bursts = {}
    if options.bursts:
        bursts = measure_bursts(stage, rates, slo_ms * 1000, generator, options.bursts, console)
    return {
        "core_requests_per_s": rates.core,
        "baseline_requests_per_s": rates.baseline,
        "variant_requests_per_s": rates.overload,
        "objective_ms": slo_ms,
        "baseline_cpus": cpus,
        "generators": placement(generator),
        "explained": explained,
        "sides": sides,
        "spread": spread_of(sides),
        "bursts": bursts,
    }


def _judge(found: dict[str, Any], console: Console) -> list[Target]:
    console.print(table(found["sides"]))
    console.print(f"A/A spread of the p99 alone: {found['spread']:.1%}")
    return judge(found["sides"], found["bursts"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Optimize, measure, print and write.

    Returns
    -------
    status : int
        0; 1 if something failed, or with --strict a target was missed.
    """
    options = _parse(arguments)
    settings = ("rounds", "seconds", "bursts", "rows")
    status, results = run_on_hosts("cores", options, settings, open_stage, _measure, _judge)
    if results is not None:
        draw(results, options.output.with_suffix(".png"))
    return status


if __name__ == "__main__":
    sys.exit(main())
