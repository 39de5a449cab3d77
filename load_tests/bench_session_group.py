# SPDX-License-Identifier: Apache-2.0
"""Measure sessions: one that uses all CPUs compared with one per CPU, and sessions that are bound to CPUs, in turns.

    python -m load_tests.bench_session_group                  # the figures: five minutes
    python -m load_tests.bench_session_group --quick          # checks outputs and the program only
    python -m load_tests.bench_session_group --only pinned    # sessions that are bound to CPUs
    python -m load_tests.bench_session_group --only apart     # the same, and their clients to others

A group is measured on W1 and W2 as exported, so that only the sessions differ. Bound sessions (`cpusets`) are measured
on W1 fused in bf16, whose requests are short, against the same sessions inline; inline is measured twice, which shows
the noise. `apart` is one client on the first CPU and one session on the last, so that a thread of the session runs each
request; inline, both are on the first CPU. With `--neighbor`, another process computes on a CPU of the bound sessions
meanwhile. Writes results/bench_session_group.json.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console, Group
from rich.table import Table

from load_tests._benchmark import BenchmarkParser, Measured, engine_medians, measure_engines, run_benchmark
from load_tests._environment import usable_cpus
from load_tests._report import Target
from load_tests.bench_fused import fuse
from load_tests.bench_serving import default_config
from load_tests.request_files import ensure_requests
from load_tests.workloads import ensure_model

__all__ = ["PINNED_TARGETS", "apart_contestants", "contestants", "judge", "main", "pinned_contestants", "summarize"]

#: Least ratio of requests/s of bound sessions to those of inline ones, by rows. The lower quartile of rounds counts.
PINNED_TARGETS = {1: 0.85, 128: 0.97}

#: Client threads per CPU: a server has more requests in flight than CPUs.
_CLIENTS = 2
_PARTS = ("group", "pinned", "apart")


def contestants(model: Path, cpus: int) -> list[dict[str, Any]]:
    """Return both in the format of `bench_serving --contestants`; TensorFlow itself uses all CPUs with one session."""
    single = {"session_num": 1, "intra_op_parallelism_threads": cpus, "inter_op_parallelism_threads": cpus}
    shared = {"engine": "processor", "model": str(model.resolve())}
    return [shared | {"name": "one", "config": single}, shared | {"name": "group", "config": default_config(cpus)}]


def pinned_contestants(model: Path, cpus: Sequence[int]) -> list[dict[str, Any]]:
    """Return the engines that show what binding costs: inline, the same once more, and a session bound to each CPU."""
    sessions = {
        "session_num": len(cpus),
        "intra_op_parallelism_threads": 1,
        "inter_op_parallelism_threads": 1,
        "select_session_policy": "MOD",
    }
    shared = {"engine": "processor", "model": str(model.resolve())}
    return [
        shared | {"name": "inline", "config": sessions},
        shared | {"name": "inline again", "config": sessions},
        shared | {"name": "pinned", "config": sessions | {"cpusets": ";".join(map(str, cpus))}},
    ]


def apart_contestants(model: Path, cpus: Sequence[int]) -> list[dict[str, Any]]:
    """Return the engines that show what it costs to run requests on other CPUs than those of their clients."""
    config = {"session_num": 1, "intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 1}
    shared = {"engine": "processor", "model": str(model.resolve()), "client_cpu": cpus[0]}
    return [
        shared | {"name": "inline", "config": config},
        shared | {"name": "apart", "config": config | {"cpusets": str(cpus[-1])}},
    ]


def summarize(workload: str, rows: int, output: dict[str, Any]) -> dict[str, Any]:
    """Convert the output of one run of the program to one case of the results: medians over rounds, and the rounds."""
    engines = engine_medians(output)
    return {"workload": workload, "rows": rows, "threads": output["threads"], "engines": engines}


def _ratios(case: dict[str, Any], engine: str, figure: str = "requests_per_s") -> list[float]:
    """Return the ratios of an engine to inline in the same round, in ascending order."""
    turns = zip(case["engines"][engine]["rounds"], case["engines"]["inline"]["rounds"], strict=True)
    return sorted(turn[figure] / inline[figure] for turn, inline in turns)


def judge(cases: Sequence[dict[str, Any]]) -> list[Target]:
    """Compare the cases with bound sessions, without a neighbor, with the targets."""
    targets = []
    for case in cases:
        if "pinned" not in case["engines"] or case["neighbor"] or case["rows"] not in PINNED_TARGETS:
            continue
        ratios = _ratios(case, "pinned")
        name = f"{case['workload']} bf16 at {case['rows']} rows, requests/s pinned over inline"
        targets.append(
            Target(name, round(ratios[len(ratios) // 4], 4), PINNED_TARGETS[case["rows"]], at_least=True),
        )
    return targets


@contextmanager
def _busy_neighbor(cpu: int | None) -> Iterator[None]:
    """Have another process compute on a CPU; None: do nothing."""
    if cpu is None:
        yield
        return
    command = ["taskset", "--cpu-list", str(cpu), sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(command) as neighbor:
        try:
            yield
        finally:
            neighbor.kill()


def _table(cases: Sequence[dict[str, Any]], cpus: int) -> Table:
    table = Table(title=f"One session with {cpus} CPUs, and a session for each CPU")
    for heading in ("workload", "rows", "one: requests/s", "group: requests/s", "ratio", "p99 ms", "CPU s/1,000"):
        table.add_column(heading, justify="right")
    for case in cases:
        single, group = case["engines"]["one"], case["engines"]["group"]
        table.add_row(
            case["workload"],
            str(case["rows"]),
            *(f"{engine['requests_per_s']:,.0f}" for engine in (single, group)),
            f"{group['requests_per_s'] / single['requests_per_s']:.2f}",
            f"{single['p99_us'] / 1000:.2f} / {group['p99_us'] / 1000:.2f}",
            f"{single['cpu_s_per_1000']:.3f} / {group['cpu_s_per_1000']:.3f}",
        )
    return table


def _pinned_table(cases: Sequence[dict[str, Any]], clients: str) -> Table:
    table = Table(title=f"Sessions bound to CPUs, W1 fused in bf16, {clients}")
    for heading in ("rows", "engine", "requests/s", "over inline", "quartiles", "p50 µs", "p99 µs", "CPU s/1,000"):
        table.add_column(heading, justify="right")
    for case in cases:
        for name, engine in case["engines"].items():
            ratios = _ratios(case, name)
            table.add_row(
                str(case["rows"]),
                name,
                f"{engine['requests_per_s']:,.0f}",
                f"{median(ratios):.3f}",
                f"{ratios[len(ratios) // 4]:.3f} to {ratios[-1 - len(ratios) // 4]:.3f}",
                f"{engine['p50_us']:,.0f}",
                f"{engine['p99_us']:,.0f}",
                f"{engine['cpu_s_per_1000']:.4f}",
            )
    return table


def _measure_group(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    cpus = usable_cpus()
    cases = []
    for workload in options.workloads:
        engines = contestants(ensure_model(workload, options.cache), cpus)
        for rows in options.rows:
            console.print(f"Measuring a group, {workload} at {rows} rows")
            requests = ensure_requests(options.cache / "requests", workload, rows, "eas")
            output = measure_engines(options, requests, contestants=engines, threads=_CLIENTS * cpus)
            cases.append(summarize(workload, rows, output))
    return cases


def _measure_pinned(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    cpus = sorted(os.sched_getaffinity(0))
    console.print("Optimizing W1, bf16")
    engines = pinned_contestants(fuse("W1", "bf16", options.cache, options.library), cpus)
    cases = []
    for rows in PINNED_TARGETS:
        console.print(f"Measuring bound sessions at {rows} rows")
        requests = ensure_requests(options.cache / "requests", "W1", rows, "eas")
        with _busy_neighbor(cpus[0] if options.neighbor else None):
            output = measure_engines(options, requests, contestants=engines, rounds=2 * options.rounds)
        cases.append(summarize("W1", rows, output) | {"neighbor": options.neighbor})
    return cases


def _measure_apart(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    cpus = sorted(os.sched_getaffinity(0))
    engines = apart_contestants(fuse("W1", "bf16", options.cache, options.library), cpus)
    console.print("Measuring a client and a session on CPUs of their own")
    requests = ensure_requests(options.cache / "requests", "W1", 1, "eas")
    with _busy_neighbor(cpus[-1] if options.neighbor else None):
        output = measure_engines(options, requests, contestants=engines, threads=1, rounds=2 * options.rounds)
    return [summarize("W1", 1, output) | {"neighbor": options.neighbor}]


def _measure(options: argparse.Namespace, console: Console) -> Measured:
    cpus = usable_cpus()
    cases, tables = [], []
    if "group" in options.only:
        cases += (measured := _measure_group(options, console))
        tables.append(_table(measured, cpus))
    if "pinned" in options.only:
        cases += (measured := _measure_pinned(options, console))
        tables.append(_pinned_table(measured, "a client per CPU"))
    if "apart" in options.only and cpus > 1:
        cases += (measured := _measure_apart(options, console))
        tables.append(_pinned_table(measured, "a client on another CPU"))
    settings = {"clients": _CLIENTS * cpus}
    return Measured(cases, Group(*tables), judge(cases), settings)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, and return its exit status."""
    parser = BenchmarkParser(
        "bench_session_group", "Measure a session against a group, and bound sessions.", rounds=5, seconds=2
    )
    parser.add_argument("--only", nargs="+", choices=_PARTS, default=list(_PARTS), help="parts (default: all)")
    parser.add_argument("--neighbor", action="store_true", help="let another process compute on a CPU (pinned, apart)")
    parser.add_argument(
        "--workloads", nargs="+", choices=("W1", "W2", "tiny"), default=["W1", "W2"], help="workloads of the group"
    )
    parser.add_argument(
        "--rows", nargs="+", type=int, default=[1, 16, 128], help="batch sizes of the group (default 1 16 128)"
    )
    parser.add_programs()
    return run_benchmark("session_group", parser.parse(arguments), _measure)


if __name__ == "__main__":
    sys.exit(main())
