# SPDX-License-Identifier: Apache-2.0
"""Measure the cost model's claim on this machine: total requests/s at which every model meets its p99 SLO.

    python -m load_tests.bench_slo_capacity            # about a quarter of an hour
    python -m load_tests.bench_slo_capacity --quick    # checks the program only

A baseline and four variants receive traffic that moves, and one variant slows down. The rate is bisected in turns for
hosts without a plan, with a baseline pool, with a plan and with control. The simulator then predicts the same rates.
Writes results/bench_slo_capacity.json.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from load_tests._benchmark import BenchmarkParser
from load_tests._report import Target
from load_tests.cores.arms import ARMS, Arms, open_arms
from load_tests.cores.moving import PHASES, Phase, Timing, met, send_phase
from load_tests.cores.run import run_on_hosts
from load_tests.cores.simulated import simulated_capacities
from load_tests.cores.stage import BASELINE, cpus_by_version, wait_for_division
from load_tests.cores.turns import bisect_in_turns
from load_tests.latencies import Latencies
from load_tests.loadgen import placement, run_loadgen

__all__ = ["judge", "main"]

#: The SLO as a multiple of the time of a single request, as in `load_tests.cores`.
_SLO_REQUESTS = 10.0
#: Traffic before the measurement: a plan is made after 30 s of requests. Its rate, as a part of the capacity of a core.
_PLANNED_S, _CALM_RATE = 33.0, 0.4
#: Longest wait for the division of the cores after it [s].
_DIVIDED_S = 45.0
_CALM = Phase("calm", (0.5, 0.125, 0.125, 0.125, 0.125))
#: A second try, so that a pause of the machine is not taken for the limit of an arm.
_TRIES = 2
_TITLES = {
    "none": "no plan",
    "pool": "baseline pool",
    "plan": "`--cores plan`",
    "control": "`--cores control`",
}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = BenchmarkParser(
        "bench_slo_capacity",
        "Measure the requests/s at which every model meets its SLO.",
        rounds=5,
        seconds=5,
        of="the bisection",
        quick_seconds=0.5,
    )
    parser.add_argument("--settle", type=float, help="seconds before each phase is judged (default 5)")
    parser.add_argument("--rows", type=int, default=128, help="number of rows of a request")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), help="only these arms")
    parser.add_argument("--model", type=Path, help="an optimized W2; by default it is created")
    parser.add_programs(None)
    parsed = parser.parse(arguments)
    parsed.settle = (0.2 if parsed.quick else 5.0) if parsed.settle is None else parsed.settle
    return parsed


def _measure_core(arms: Arms, seconds: float) -> tuple[float, float, float]:
    """Return what one core answers [requests/s], the mean time of a single request [µs] and its variation."""
    address, requests = arms.address("pool"), arms.requests[BASELINE, False]
    rate = float(run_loadgen(address, requests, clients=4, time=f"{seconds:g}s", warmup="1s")["rate"])
    with tempfile.NamedTemporaryFile() as samples:
        run_loadgen(address, requests, clients=1, time=f"{seconds:g}s", warmup="1s", samples=samples.name)
        alone = Latencies.read(Path(samples.name), 0.0).every()
    # Pauses of the machine are no property of the request.
    kept = alone[alone <= np.percentile(alone, 99)]
    return rate, float(kept.mean()), float(kept.std() / kept.mean())


def _settle_divisions(arms: Arms, core: float, slo_us: float, cpu: int, quick: bool) -> None:
    """Send calm traffic until cores are divided by plan and control."""
    timing = Timing(0.0, 1.0 if quick else _PLANNED_S)

    def send(name: str) -> None:
        address = arms.proxies[name].address
        send_phase(address, arms.requests, _CALM, _CALM_RATE * core, timing, slo_us, cpu, seed=1)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(send, ("plan", "control")))
    if not quick:
        for name in ("plan", "control"):
            wait_for_division(name, arms.proxies[name], _DIVIDED_S)


class _Tries:
    """Try rates, and keep what every model received.

    Attributes
    ----------
    every : list of dict
        Every phase that was sent.
    """

    def __init__(self, arms: Arms, timing: Timing, slo_us: float, cpu: int, console: Console) -> None:
        self._arms, self._timing, self._slo_us, self._cpu, self._console = arms, timing, slo_us, cpu, console
        self.every: list[dict[str, Any]] = []

    def passes(self, arm: str, rate: float) -> bool:
        """Return whether every model meets its SLO in every phase, in one of two tries."""
        address = self._arms.address(arm)
        missed = next((phase for phase in PHASES if not any(self._tries(arm, address, phase, rate))), None)
        result = "[green]met[/]" if missed is None else f"missed when {missed.name}"
        self._console.print(f"[dim]{_TITLES[arm]}, {rate:,.0f} requests/s:[/] {result}")
        return missed is None

    def _tries(self, arm: str, address: str, phase: Phase, rate: float) -> Any:
        for number in range(_TRIES):
            seed = 1000 * len(self.every)
            found = send_phase(
                address, self._arms.requests, phase, rate, self._timing, self._slo_us, self._cpu, seed + number
            )
            models = {str(version): model.to_json() for version, model in found.items()}
            self.every.append({"arm": arm, "rate": rate, "phase": phase.name, "models": models, "met": met(found)})
            yield met(found)


def judge(capacities: dict[str, float]) -> list[Target]:
    """Compare the capacities with the targets."""

    def ratio(name: str, against: str) -> float:
        return capacities[name] / capacities[against] if capacities[against] else 0.0

    wanted = (("plan", "none", 1.3), ("pool", "none", 1.3), ("control", "plan", 1.1))
    return [
        Target(f"{name} / {against}, requests/s within the SLOs", ratio(name, against), limit, at_least=True)
        for name, against, limit in wanted
        if name in capacities and against in capacities
    ]


def _table(found: dict[str, dict[str, float]], simulated: dict[str, float]) -> Table:
    table = Table(title="W2 on real hosts: total requests/s at which every model meets its p99 SLO")
    table.add_column("cores")
    for heading in ("met", "missed", "simulated", "error"):
        table.add_column(heading, justify="right")
    for name, arm in found.items():
        met_at, missed_at = arm["requests_per_s"], arm["missed_at"]
        error = f"{simulated[name] / met_at - 1:+.0%}" if met_at else ""
        table.add_row(_TITLES[name], f"{met_at:,.0f}", f"{missed_at:,.0f}", f"{simulated[name]:,.0f}", error)
    return table


def _measure(arms: Arms, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    cpu = max(os.sched_getaffinity(0))
    core, mean_us, cv = _measure_core(arms, max(0.5, options.seconds / 2))
    slo_ms = _SLO_REQUESTS * 1000 / core
    console.print(
        f"One core serves {core:,.0f} requests/s of {options.rows} rows; the SLO of each model is {slo_ms:.1f} ms.\n"
        f"Load generators run on {placement(cpu)}."
    )
    arms.set_slo(slo_ms)
    _settle_divisions(arms, core, slo_ms * 1000, cpu, options.quick)
    tries = _Tries(arms, Timing(options.settle, options.seconds), slo_ms * 1000, cpu, console)
    high = core * len(os.sched_getaffinity(0))
    found = bisect_in_turns(options.arms, high, options.rounds, tries.passes)
    divisions = {name: cpus_by_version(arms.proxies[name]) for name in ("plan", "control")}
    simulated = simulated_capacities(1e6 / core, cv, slo_ms, 20 if options.quick else 600)
    return {
        "core_requests_per_s": core,
        "request_us": mean_us,
        "request_cv": cv,
        "slo_ms": slo_ms,
        "generators": placement(cpu),
        "arms": {name: {"requests_per_s": arm.passed, "missed_at": arm.failed} for name, arm in found.items()},
        "simulated": simulated,
        "tries": tries.every,
        "cpus": divisions,
        "events": arms.proxies["control"].client.events(limit=200),
    }


def _judge(found: dict[str, Any], console: Console) -> list[Target]:
    console.print(_table(found["arms"], found["simulated"]))
    return judge({name: arm["requests_per_s"] for name, arm in found["arms"].items()})


def main(arguments: Sequence[str] | None = None) -> int:
    """Optimize, measure, simulate, print and write.

    Returns
    -------
    status : int
        0; 1 if something failed, or with --strict a target was missed.
    """
    settings = ("rounds", "seconds", "settle", "rows", "arms")
    status, _ = run_on_hosts("slo_capacity", _parse(arguments), settings, open_arms, _measure, _judge)
    return status


if __name__ == "__main__":
    sys.exit(main())
