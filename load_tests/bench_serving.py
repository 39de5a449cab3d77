# SPDX-License-Identifier: Apache-2.0
"""Measure libprocessor against stock TensorFlow on the reference workloads.

    python -m load_tests.bench_serving            # the figures: about five minutes
    python -m load_tests.bench_serving --quick    # checks outputs and the program only: seconds

Runs `bench_serving` (libprocessor/bench) once for each workload and number of rows, prints a table and the targets, and
writes results/bench_serving.json. docs/benchmarks/serving.md explains the measurements.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from load_tests._benchmark import FIGURES, BenchmarkParser, Measured, measure_engines, run_benchmark
from load_tests._environment import usable_cpus
from load_tests._report import Target
from load_tests.request_files import Protocol, ensure_requests
from load_tests.workloads import WORKLOADS, ensure_model

__all__ = ["SPEEDUPS", "default_config", "judge", "main", "summarize"]

#: Least ratio of requests/s to stock TensorFlow's, by workload and rows. With a target, p99 may not be worse either.
SPEEDUPS = {("W2", 1): 3.0, ("W2", 128): 1.1, ("W1", 1): 1.5, ("W1", 128): 1.2}
ROWS = (1, 16, 128, 512)


def default_config(cpus: int) -> dict[str, Any]:
    """Return the measured configuration: one session per CPU, each computing on its caller's thread.

    Parameters
    ----------
    cpus : int
        CPUs that the process may use.
    """
    return {
        "session_num": cpus,
        "intra_op_parallelism_threads": 1,
        "inter_op_parallelism_threads": 1,
        "select_session_policy": "RR",
    }


def _overhead(engine: dict[str, Any]) -> dict[str, float] | None:
    """Return the library's time per request outside the TensorFlow run, if possible of the rounds alone.

    Returns
    -------
    overhead : dict or None
        `mean_us` [µs] of the rounds; `p50_us`, `p99_us` [µs] since loading. None if the engine does not measure it.
    """
    before, after = engine["statistics_before"], engine["statistics_after"]
    if not after or "overhead_us" not in after:
        return None
    first, last = before["overhead_us"], after["overhead_us"]
    count = last["count"] - first["count"]
    if count <= 0:
        return None
    mean = (last["mean"] * last["count"] - first["mean"] * first["count"]) / count
    return {"mean_us": round(mean, 3), "p50_us": last["p50"], "p99_us": last["p99"]}


def summarize(workload: str, rows: int, protocol: str, output: dict[str, Any]) -> dict[str, Any]:
    """Convert the output of one run of the program to one case of the results.

    Parameters
    ----------
    workload : str
        "W1", "W2" or "tiny".
    rows : int
        Batch size.
    protocol : str
        "eas" or "tfserving".
    output : dict
        Output of `bench_serving`.

    Returns
    -------
    case : dict
        Medians over the rounds for each engine, the rounds themselves, and `speedup`, the ratio of the medians of
        requests/s.
    """
    engines: dict[str, Any] = {}
    for engine in output["engines"]:
        rounds = engine["rounds"]
        engines[engine["engine"]] = {name: median(turn[name] for turn in rounds) for name in FIGURES} | {
            "overhead": _overhead(engine),
            "load_seconds": engine["load_seconds"],
            "rounds": rounds,
        }
    speedup = engines["processor"]["requests_per_s"] / engines["stock"]["requests_per_s"]
    return {
        "workload": workload,
        "rows": rows,
        "protocol": protocol,
        "threads": output["threads"],
        "distinct_requests": output["distinct_requests"],
        "answers": output["answers"],
        "weights": output["weights"],
        "speedup": round(speedup, 4),
        "engines": engines,
    }


def judge(cases: Sequence[dict[str, Any]]) -> list[Target]:
    """Compare the cases with the targets.

    Parameters
    ----------
    cases : sequence of dict
        Results of `summarize`.

    Returns
    -------
    targets : list of Target
        Two for each case with a target: the ratio of requests/s, and the ratio of p99 to stock's.
    """
    targets = []
    for case in cases:
        limit = SPEEDUPS.get((case["workload"], case["rows"]))
        if limit is None:
            continue
        label = f"{case['workload']} at {case['rows']} row{'s' if case['rows'] > 1 else ''}"
        targets.append(Target(f"{label}, requests/s over stock", case["speedup"], limit, at_least=True))
        engines = case["engines"]
        ratio = engines["processor"]["p99_us"] / engines["stock"]["p99_us"]
        targets.append(Target(f"{label}, p99 over stock", round(ratio, 4), 1.0, at_least=False))
    return targets


def _table(cases: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="Processor (codec included) against stock TensorFlow (inputs prepared as tensors)")
    for heading in ("workload", "rows", "engine"):
        table.add_column(heading)
    for heading in ("requests/s", "over stock", "p50 ms", "p99 ms", "CPU s/1,000", "overhead µs", "max |Δ|"):
        table.add_column(heading, justify="right", no_wrap=True)
    for case in cases:
        for name in ("stock", "processor"):
            engine = case["engines"][name]
            ours = name == "processor"
            overhead = engine["overhead"]
            table.add_row(
                case["workload"] if not ours else "",
                str(case["rows"]) if not ours else "",
                name,
                f"{engine['requests_per_s']:,.0f}",
                f"{case['speedup']:.2f}" if ours else "",
                f"{engine['p50_us'] / 1000:.3f}",
                f"{engine['p99_us'] / 1000:.3f}",
                f"{engine['cpu_s_per_1000']:.3f}",
                f"{overhead['mean_us']:.1f}" if overhead else "",
                f"{case['answers']['max_abs_difference']:.1e}" if ours else "",
                end_section=ours,
            )
    return table


def _floors(cases: Sequence[dict[str, Any]]) -> list[str]:
    """Return notes on the limit set by memory at one row, when reading the weights is the main cost of a request."""
    lines = []
    for case in cases:
        if case["rows"] != 1:
            continue
        megabytes, floor = case["weights"]["bytes"] / 1e6, case["weights"]["read_us"]
        stock = case["engines"]["stock"]["requests_per_s"]
        most = case["threads"] * 1e6 / floor
        lines.append(
            f"  {case['workload']}: one core reads the {megabytes:.2g} MB of dense weights in {floor:.0f} µs, "
            f"so {case['threads']} of them answer at most {most:,.0f} one-row requests/s one by one "
            f"({most / stock:.2f} times stock)"
        )
    return lines


def _measure(options: argparse.Namespace, console: Console) -> Measured:
    config = options.config if options.config is not None else default_config(usable_cpus())
    protocol: Protocol = options.protocol
    cases: list[dict[str, Any]] = []
    plan = [(workload, rows) for workload in options.workloads for rows in options.rows]
    columns = (TextColumn("{task.description:<24}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        per_case = 2 * (options.rounds * options.seconds + options.warmup) + 2
        task = progress.add_task("preparing", total=per_case * len(plan))
        for number, (workload, rows) in enumerate(plan):
            progress.update(task, description=f"exporting {workload}")
            model = ensure_model(workload, options.cache)
            requests = ensure_requests(options.cache / "requests", workload, rows, protocol)
            progress.update(task, description=f"{workload}, {rows} rows", completed=per_case * number)
            output = measure_engines(
                options,
                requests,
                tick=lambda: progress.advance(task, 0.25),
                model=model.resolve(),
                protocol=protocol,
                config=json.dumps(config),
                weights=WORKLOADS[workload].weights,
            )
            cases.append(summarize(workload, rows, protocol, output))
        progress.update(task, description="done", completed=per_case * len(plan))
    notes = [] if options.quick else _floors(cases)
    return Measured(cases, _table(cases), judge(cases), {"config": config}, notes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, and return its exit status."""
    parser = BenchmarkParser("bench_serving", "Measure libprocessor against stock TensorFlow.", rounds=5, seconds=3)
    parser.add_argument("--workloads", nargs="+", choices=("W1", "W2", "tiny"), default=["W1", "W2"])
    parser.add_argument("--rows", nargs="+", type=int, help=f"batch sizes (default {' '.join(map(str, ROWS))})")
    parser.add_argument("--protocol", choices=["eas", "tfserving"], default="eas")
    parser.add_argument(
        "--config", type=json.loads, help="configuration of the processor as JSON, instead of the measured default"
    )
    parser.add_threads()
    parser.add_programs()
    options = parser.parse(arguments)
    options.rows = options.rows or ([1, 128] if options.quick else list(ROWS))
    options.warmup = 0.05 if options.quick else 1.0
    return run_benchmark("serving", options, _measure)


if __name__ == "__main__":
    sys.exit(main())
