# SPDX-License-Identifier: Apache-2.0
"""Measure the effect of a session group: one session that uses all CPUs compared with one session per CPU, in turns.

    python -m load_tests.bench_session_group            # the figures: two minutes
    python -m load_tests.bench_session_group --quick    # checks outputs and the program only

The models are W1 and W2 as exported, so that only the sessions differ. Writes results/bench_session_group.json.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from load_tests._benchmark import BenchmarkParser, Measured, engine_medians, measure_engines, run_benchmark
from load_tests._environment import usable_cpus
from load_tests.bench_serving import default_config
from load_tests.request_files import ensure_requests
from load_tests.workloads import ensure_model

__all__ = ["contestants", "main", "summarize"]

#: Client threads per CPU: a server has more requests in flight than CPUs.
_CLIENTS = 2


def contestants(model: Path, cpus: int) -> list[dict[str, Any]]:
    """Return both in the format of `bench_serving --contestants`; TensorFlow itself uses all CPUs with one session."""
    single = {"session_num": 1, "intra_op_parallelism_threads": cpus, "inter_op_parallelism_threads": cpus}
    shared = {"engine": "processor", "model": str(model.resolve())}
    return [shared | {"name": "one", "config": single}, shared | {"name": "group", "config": default_config(cpus)}]


def summarize(workload: str, rows: int, output: dict[str, Any]) -> dict[str, Any]:
    """Convert the output of one run of the program to one case of the results: medians over rounds, and the rounds."""
    engines = engine_medians(output)
    return {"workload": workload, "rows": rows, "threads": output["threads"], "engines": engines}


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


def _measure(options: argparse.Namespace, console: Console) -> Measured:
    cpus = usable_cpus()
    cases = []
    for workload in options.workloads:
        engines = contestants(ensure_model(workload, options.cache), cpus)
        for rows in options.rows:
            requests = ensure_requests(options.cache / "requests", workload, rows, "eas")
            output = measure_engines(options, requests, contestants=engines, threads=_CLIENTS * cpus)
            cases.append(summarize(workload, rows, output))
    return Measured(cases, _table(cases, cpus), [], {"clients": _CLIENTS * cpus})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, and return its exit status."""
    parser = BenchmarkParser("bench_session_group", "Measure one session against a group of them.", rounds=5, seconds=2)
    parser.add_argument("--workloads", nargs="+", choices=("W1", "W2", "tiny"), default=["W1", "W2"], help="workloads")
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 16, 128], help="batch sizes (default 1 16 128)")
    parser.add_programs()
    return run_benchmark("session_group", parser.parse(arguments), _measure)


if __name__ == "__main__":
    sys.exit(main())
