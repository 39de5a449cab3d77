# SPDX-License-Identifier: Apache-2.0
"""Measure the cost of an additional session, and whether a freed model releases all of its memory.

    python -m load_tests.bench_memory             # sessions of W1 and W2, then 10,000 cycles of a small model
    python -m load_tests.bench_memory --quick     # checks the program only: seconds

Runs `bench_lifecycle` (libprocessor/bench), each measurement in a fresh process, prints tables and the targets, and
writes results/bench_memory.json. docs/benchmarks/serving.md explains the measurements.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from load_tests._benchmark import BenchmarkParser
from load_tests._environment import describe_environment, usable_cpus
from load_tests._programs import ROOT, ProgramError, find_library, find_program, run_program
from load_tests._report import Target, finish, make_console
from load_tests.bench_serving import default_config
from load_tests.request_files import ensure_requests
from load_tests.workloads import ensure_model

__all__ = ["SESSION_LIMIT_MB", "judge_cycles", "judge_sessions", "main", "session_cost"]

SESSION_LIMIT_MB = 20.0
GROWTH_LIMIT_MB = 2.0
SESSIONS = (1, 2, 4, 8)
Tick = Callable[[], None]


def session_cost(points: Sequence[dict[str, Any]]) -> float:
    """Return the cost of an additional session.

    Parameters
    ----------
    points : sequence of dict
        `sessions`, and `used_mb`, the resident memory [MB] after the model has been used; at least two numbers of
        sessions.

    Returns
    -------
    cost : float [MB]
        The largest cost of a step from one number of sessions to the next, divided by the number of added sessions.
    """
    ordered = sorted(points, key=lambda point: point["sessions"])
    steps = pairwise(ordered)
    return max(float((b["used_mb"] - a["used_mb"]) / (b["sessions"] - a["sessions"])) for a, b in steps)


def variables_mb(model: Path) -> float:
    """Return the size of a SavedModel's variables [MB]: the least cost of a session that shares nothing."""
    return sum(file.stat().st_size for file in (model / "variables").glob("variables.data-*")) / 1e6


def judge_sessions(measured: Sequence[dict[str, Any]]) -> list[Target]:
    """Compare the cost of an additional session with its target.

    Parameters
    ----------
    measured : sequence of dict
        `workload` and `cost_mb`.
    """
    return [
        Target(f"{workload['workload']}, a further session, MB", workload["cost_mb"], SESSION_LIMIT_MB, at_least=False)
        for workload in measured
    ]


def judge_cycles(cycles: dict[str, Any]) -> list[Target]:
    """Compare the endurance run with its targets.

    Parameters
    ----------
    cycles : dict
        Output of `bench_lifecycle --mode cycles`.

    Returns
    -------
    targets : list of Target
        Growth of resident memory after the baseline [MB], and the variation of threads and file descriptors.
    """
    low, high = cycles["low"], cycles["high"]
    label = f"{cycles['cycles']:,} cycles"
    growth = (cycles["last"]["rss_kb"] - cycles["first"]["rss_kb"]) * 1024 / 1e6
    return [
        Target(f"{label}, growth after {cycles['baseline']}, MB", round(growth, 3), GROWTH_LIMIT_MB, at_least=False),
        Target(f"{label}, change of threads", high["threads"] - low["threads"], 0, at_least=False),
        Target(f"{label}, change of file descriptors", high["descriptors"] - low["descriptors"], 0, at_least=False),
    ]


def _megabytes(state: dict[str, Any]) -> float:
    return round(float(state["rss_kb"]) * 1024 / 1e6, 2)


def _measure_sessions(
    options: argparse.Namespace, program: Path, library: Path, workload: str, tick: Tick
) -> dict[str, Any]:
    """Measure one workload with every number of sessions, several times in a fresh process; return medians."""
    model = ensure_model(workload, options.cache)
    requests = ensure_requests(options.cache / "requests", workload, options.rows, "eas")
    points = []
    for sessions in options.sessions:
        config = default_config(usable_cpus()) | {"session_num": sessions}
        runs = [
            run_program(
                program,
                {
                    "mode": "resident",
                    "model": model.resolve(),
                    "requests": requests,
                    "library": library,
                    "config": json.dumps(config),
                    "threads": options.threads,
                    "passes": options.passes,
                },
                tick,
            )
            for _ in range(options.repeats)
        ]
        points.append(
            {
                "sessions": sessions,
                "before_mb": median(_megabytes(run["before"]) for run in runs),
                "loaded_mb": median(_megabytes(run["loaded"]) for run in runs),
                "used_mb": median(_megabytes(run["used"]) for run in runs),
                "freed_mb": median(_megabytes(run["freed"]) for run in runs),
                "runs": runs,
            }
        )
    return {
        "workload": workload,
        "rows": options.rows,
        "threads": options.threads,
        "variables_mb": round(variables_mb(model), 2),
        "cost_mb": round(session_cost(points), 2),
        "points": points,
    }


def _measure_cycles(options: argparse.Namespace, program: Path, library: Path, tick: Tick) -> dict[str, Any]:
    output: dict[str, Any] = run_program(
        program,
        {
            "mode": "cycles",
            "model": ensure_model("tiny", options.cache).resolve(),
            "requests": ensure_requests(options.cache / "requests", "tiny", 1, "eas"),
            "library": library,
            "cycles": options.cycles,
            "baseline": options.baseline,
        },
        tick,
    )
    return output


def _sessions_table(measured: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="Resident memory by number of sessions (MB)")
    table.add_column("workload")
    for heading in ("variables", "sessions", "before", "loaded", "in use", "each further"):
        table.add_column(heading, justify="right")
    for workload in measured:
        before: dict[str, Any] | None = None
        for point in workload["points"]:
            cost = ""
            if before is not None:
                added = point["sessions"] - before["sessions"]
                cost = f"{(point['used_mb'] - before['used_mb']) / added:.1f}"
            table.add_row(
                "" if before else workload["workload"],
                "" if before else f"{workload['variables_mb']:.1f}",
                str(point["sessions"]),
                f"{point['before_mb']:.1f}",
                f"{point['loaded_mb']:.1f}",
                f"{point['used_mb']:.1f}",
                cost,
                end_section=point is workload["points"][-1],
            )
            before = point
    return table


def _cycles_table(cycles: dict[str, Any]) -> Table:
    table = Table(title=f"{cycles['cycles']:,} load/serve/free cycles of a small model, {cycles['seconds']:.0f} s")
    table.add_column("")
    for heading in ("resident MB", "threads", "file descriptors"):
        table.add_column(heading, justify="right")
    for title, key in ((f"after cycle {cycles['baseline']}", "first"), ("after the last", "last")):
        state = cycles[key]
        table.add_row(title, f"{_megabytes(state):.2f}", str(state["threads"]), str(state["descriptors"]))
    low, high = cycles["low"], cycles["high"]
    ranges = [f"{low[name]} to {high[name]}" for name in ("threads", "descriptors")]
    table.add_row("least to most between", f"{_megabytes(low):.2f} to {_megabytes(high):.2f}", *ranges)
    return table


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = BenchmarkParser("bench_memory", "Measure memory of sessions and endurance of loading and freeing.")
    parser.add_argument("--only", choices=["sessions", "cycles"], help="measure only this")
    parser.add_argument("--workloads", nargs="+", choices=("W1", "W2", "tiny"), help="workloads (default W1 W2)")
    default = " ".join(map(str, SESSIONS))
    parser.add_argument("--sessions", nargs="+", type=int, help=f"numbers of sessions (default {default})")
    parser.add_argument("--rows", type=int, default=128, help="number of rows of the requests sent to the sessions")
    parser.add_argument("--passes", type=int, help="how many times each client sends every request (default 4)")
    parser.add_argument("--repeats", type=int, help="number of new processes for each number of sessions (default 3)")
    parser.add_argument("--cycles", type=int, help="number of cycles of loading, serving and freeing (default 10000)")
    parser.add_argument("--baseline", type=int, help="number of cycles before growth is counted (default 100)")
    parser.add_threads()
    parser.add_programs("bench_lifecycle")
    parsed = parser.parse(arguments)
    parsed.workloads = parsed.workloads or (["W2"] if parsed.quick else ["W1", "W2"])
    parsed.sessions = parsed.sessions or ([1, 2] if parsed.quick else list(SESSIONS))
    parsed.passes = parsed.passes or (1 if parsed.quick else 4)
    parsed.repeats = parsed.repeats or (1 if parsed.quick else 3)
    parsed.cycles = parsed.cycles or (60 if parsed.quick else 10_000)
    parsed.baseline = parsed.baseline or (20 if parsed.quick else 100)
    if len(set(parsed.sessions)) < 2:
        parser.error(
            "--sessions: one number found, expected at least two different ones, to compute the cost of a session"
        )
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write.

    Parameters
    ----------
    arguments : sequence of str, optional
        The command line; by default that of the process.

    Returns
    -------
    status : int
        0; 1 if something failed, or with --strict a target was missed.
    """
    options = _parse(arguments)
    console = make_console()
    sessions: list[dict[str, Any]] = []
    cycles: dict[str, Any] | None = None
    environment = describe_environment(ROOT)
    columns = (TextColumn("{task.description:<24}"), BarColumn(), TimeElapsedColumn())
    try:
        program, library = find_program("bench_lifecycle", options.bench_dir), find_library(options.library)
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("preparing", total=None)
            if options.only != "cycles":
                for workload in options.workloads:
                    progress.update(task, description=f"{workload}, sessions")
                    sessions.append(_measure_sessions(options, program, library, workload, progress.refresh))
            if options.only != "sessions":
                progress.update(task, description=f"{options.cycles:,} cycles")
                cycles = _measure_cycles(options, program, library, progress.refresh)
            progress.update(task, description="done", total=1, completed=1)
    except (FileNotFoundError, ProgramError) as error:
        console.print(f"[bold red]{escape(str(error))}[/]")
        return 1

    targets: list[Target] = []
    if sessions:
        console.print(_sessions_table(sessions))
        targets += judge_sessions(sessions)
    if cycles is not None:
        console.print(_cycles_table(cycles))
        targets += judge_cycles(cycles)
    if options.quick:
        targets = []
        console.print("A quick run: its figures are no measurement and are not compared with targets.")
    results = {"benchmark": "memory", "quick": options.quick, "environment": environment}
    results |= {"sessions": sessions, "cycles": cycles}
    return finish(console, options.output, results, targets, options.strict)


if __name__ == "__main__":
    sys.exit(main())
