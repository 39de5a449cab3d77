# SPDX-License-Identifier: Apache-2.0
"""Measure the effect of batching: off, zero_wait and timed in turns, with more clients than CPUs.

    python -m load_tests.bench_batching            # the figures: about a minute
    python -m load_tests.bench_batching --quick    # checks outputs and the program only

Optimizes W1 and W2 in bf16. `bench_serving` (libprocessor/bench) then sends the same one-row requests from 16 threads
in each mode. Prints a table and the targets, and writes results/bench_batching.json.
docs/benchmarks/hosts.md explains it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from load_tests._benchmark import BenchmarkParser, Measured, engine_medians, measure_engines, run_benchmark
from load_tests._environment import usable_cpus
from load_tests._report import Target
from load_tests.bench_fused import PRECISIONS, TOLERANCES, fuse
from load_tests.bench_serving import default_config
from load_tests.request_files import ensure_requests

__all__ = ["MODES", "TARGETS", "contestants", "judge", "main", "summarize"]

#: Configuration of each contestant. The others are compared with the first one.
MODES: dict[str, dict[str, Any]] = {
    "off": {"mode": "off"},
    "zero_wait": {"mode": "zero_wait", "max_rows": 256},
    "timed": {"mode": "timed", "max_rows": 8, "max_wait_us": 500},
}
#: Least ratio of zero_wait's requests/s to those without batching; p99 may not be worse either.
TARGETS = {("W1", 1): 1.5}


def contestants(model: Path, config: dict[str, Any], precision: str) -> list[dict[str, Any]]:
    """Return the modes in the format of `bench_serving --contestants`."""
    return [
        {
            "name": name,
            "engine": "processor",
            "model": str(model.resolve()),
            "config": {**config, "batching": batching},
            "tolerance": TOLERANCES[precision],
        }
        for name, batching in MODES.items()
    ]


def _runs(engine: dict[str, Any]) -> dict[str, Any]:
    """Return the requests per batch [mean, largest], and how many of all requests ran in a batch with others."""
    counts = engine["statistics_after"]["batching"]["requests"]
    alone = counts["buckets"].get("1", 0)
    total = counts["mean"] * counts["count"]
    shared = 1 - alone / total if total else 0.0
    return {"requests_per_run": round(counts["mean"], 3), "most": counts["max"], "shared": round(shared, 4)}


def summarize(workload: str, rows: int, output: dict[str, Any]) -> dict[str, Any]:
    """Convert the output of one run of the program to one case of the results.

    Returns
    -------
    case : dict
        `engines`: for each mode the medians over the rounds, the batch sizes, and the rounds; `ratios`: each mode's
        requests/s and p99 divided by those without batching, as medians over the ratios of each round.
    """
    engines = engine_medians(output)
    for engine in output["engines"]:
        engines[engine["engine"]]["runs"] = _runs(engine)
    first, *others = engines.items()
    ratios = {
        name: {
            figure: round(
                median(a[figure] / b[figure] for a, b in zip(engine["rounds"], first[1]["rounds"], strict=True)), 4
            )
            for figure in ("requests_per_s", "p99_us")
        }
        for name, engine in others
    }
    return {"workload": workload, "rows": rows, "threads": output["threads"], "engines": engines, "ratios": ratios}


def judge(cases: Sequence[dict[str, Any]]) -> list[Target]:
    """Compare the cases with the targets: requests/s and p99 of zero_wait divided by those without batching."""
    targets = []
    for case in cases:
        limit = TARGETS.get((case["workload"], case["rows"]))
        if limit is None or "zero_wait" not in case["ratios"]:
            continue
        ratios = case["ratios"]["zero_wait"]
        label = f"{case['workload']} from {case['threads']} threads, zero_wait"
        targets.append(Target(f"{label}, requests/s over off", ratios["requests_per_s"], limit, at_least=True))
        targets.append(Target(f"{label}, p99 over off", ratios["p99_us"], 1.0, at_least=False))
    return targets


def _table(cases: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="Requests in batches, and each alone")
    for heading in ("workload", "rows", "threads", "mode"):
        table.add_column(heading)
    for heading in ("requests/s", "over off", "p50 ms", "p99 ms", "CPU s/1,000", "requests per batch", "batched"):
        table.add_column(heading, justify="right", no_wrap=True)
    for case in cases:
        for number, (name, engine) in enumerate(case["engines"].items()):
            ratio = case["ratios"].get(name)
            runs = engine["runs"]
            table.add_row(
                *((case["workload"], str(case["rows"]), str(case["threads"])) if number == 0 else ("", "", "")),
                name,
                f"{engine['requests_per_s']:,.0f}",
                f"{ratio['requests_per_s']:.2f}" if ratio else "",
                f"{engine['p50_us'] / 1000:.3f}",
                f"{engine['p99_us'] / 1000:.3f}",
                f"{engine['cpu_s_per_1000']:.3f}",
                f"{runs['requests_per_run']:.1f}" if ratio else "",
                f"{runs['shared']:.0%}" if ratio else "",
                end_section=number + 1 == len(case["engines"]),
            )
    return table


def _measure(options: argparse.Namespace, console: Console) -> Measured:
    cases = []
    for workload in options.workloads:
        console.print(f"Optimizing {workload}, {options.precision}")
        model = fuse(workload, options.precision, options.cache, options.library)
        engines = contestants(model, default_config(usable_cpus()), options.precision)
        for rows in options.rows:
            requests = ensure_requests(options.cache / "requests", workload, rows, "eas")
            for threads in options.threads:
                console.print(f"Measuring {workload} at {rows} row{'s' if rows > 1 else ''} from {threads} threads")
                output = measure_engines(options, requests, contestants=engines, threads=threads)
                cases.append(summarize(workload, rows, output))
    return Measured(cases, _table(cases), judge(cases), {"precision": options.precision})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, and return its exit status."""
    parser = BenchmarkParser("bench_batching", "Measure the effect of batching.", rounds=5, seconds=2, of="each mode")
    parser.add_argument("--workloads", nargs="+", choices=("W1", "W2"), default=["W1", "W2"], help="workloads")
    parser.add_argument("--rows", nargs="+", type=int, default=[1], help="numbers of rows of a request (default 1)")
    parser.add_argument("--precision", choices=PRECISIONS, default="bf16", help="precision of the models")
    parser.add_argument("--threads", type=int, nargs="+", default=[16], help="numbers of client threads (default 16)")
    parser.add_programs()
    return run_benchmark("batching", parser.parse(arguments), _measure)


if __name__ == "__main__":
    sys.exit(main())
