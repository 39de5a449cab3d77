# SPDX-License-Identifier: Apache-2.0
"""Measure what a group of sessions brings: one session that uses all CPUs against one session for each CPU, in turns.

    python -m load_tests.bench_session_group            # the figures: two minutes
    python -m load_tests.bench_session_group --quick    # answers and plumbing only

The models are W1 and W2 as exported, so that nothing but the sessions differs. Writes results/bench_session_group.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.markup import escape
from rich.table import Table

from load_tests._environment import describe_environment, usable_cpus
from load_tests._programs import ROOT, ProgramError, find_library, find_program, run_program
from load_tests._report import make_console, results_file, write_results
from load_tests.bench_fused import FIGURES
from load_tests.bench_serving import default_config
from load_tests.request_files import ensure_requests
from load_tests.workloads import ensure_model

__all__ = ["contestants", "main", "summarise"]

#: Threads of clients for each CPU: a server has more requests than CPUs.
_CLIENTS = 2


def contestants(model: Path, cpus: int) -> list[dict[str, Any]]:
    """List both as `bench_serving --contestants` takes them; one session is how TensorFlow itself uses all CPUs."""
    one = {"session_num": 1, "intra_op_parallelism_threads": cpus, "inter_op_parallelism_threads": cpus}
    shared = {"engine": "processor", "model": str(model.resolve())}
    return [shared | {"name": "one", "config": one}, shared | {"name": "group", "config": default_config(cpus)}]


def summarise(workload: str, rows: int, output: dict[str, Any]) -> dict[str, Any]:
    """Turn the output of one run of the program into one case of the results: medians over rounds, and the rounds."""
    engines = {
        one["engine"]: {name: median(each[name] for each in one["rounds"]) for name in FIGURES}
        | {"max_abs_difference": one["max_abs_difference"], "rounds": one["rounds"]}
        for one in output["engines"]
    }
    return {"workload": workload, "rows": rows, "threads": output["threads"], "engines": engines}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure one session against a group of them.")
    parser.add_argument("--quick", action="store_true", help="check answers and plumbing; the figures mean nothing")
    parser.add_argument("--workloads", nargs="+", choices=("W1", "W2", "tiny"), default=["W1", "W2"])
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 16, 128])
    parser.add_argument("--bench-dir", type=Path, help="folder of the program bench_serving")
    parser.add_argument("--library", type=Path, help="libprocessor.so")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "workloads", help="where models are kept")
    parser.add_argument("--output", type=Path, help="file of the results (default results/bench_session_group.json)")
    parsed = parser.parse_args(arguments)
    parsed.output = parsed.output or results_file("bench_session_group", parsed.quick)
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; answer 1 if answers differ or something failed."""
    options = _parse(arguments)
    console = make_console()
    rounds, seconds, warmup = (1, 0.2, 0.05) if options.quick else (5, 2.0, 0.5)
    environment = describe_environment(ROOT)
    cpus = usable_cpus()
    cases = []
    table = Table(title=f"One session with {cpus} CPUs, and a session for each CPU")
    for heading in ("workload", "rows", "one: requests/s", "group: requests/s", "ratio", "p99 ms", "CPU s/1,000"):
        table.add_column(heading, justify="right")
    try:
        program, library = find_program("bench_serving", options.bench_dir), find_library(options.library)
        for workload in options.workloads:
            model = ensure_model(workload, options.cache)
            for rows in options.rows:
                output = run_program(
                    program,
                    {
                        "requests": ensure_requests(options.cache / "requests", workload, rows, "eas"),
                        "protocol": "eas",
                        "library": library,
                        "contestants": json.dumps(contestants(model, cpus)),
                        "threads": _CLIENTS * cpus,
                        "seconds": seconds,
                        "warmup": warmup,
                        "rounds": rounds,
                    },
                )
                case = summarise(workload, rows, output)
                one, group = case["engines"]["one"], case["engines"]["group"]
                table.add_row(
                    workload,
                    str(rows),
                    *(f"{engine['requests_per_s']:,.0f}" for engine in (one, group)),
                    f"{group['requests_per_s'] / one['requests_per_s']:.2f}",
                    f"{one['p99_us'] / 1000:.2f} / {group['p99_us'] / 1000:.2f}",
                    f"{one['cpu_s_per_1000']:.3f} / {group['cpu_s_per_1000']:.3f}",
                )
                cases.append(case)
    except (ProgramError, FileNotFoundError) as error:
        console.print(f"[bold red]The run failed:[/] {escape(str(error))}")
        return 1
    console.print(table)
    settings = {"rounds": rounds, "seconds": seconds, "clients": _CLIENTS * cpus}
    results = {"benchmark": "session_group", "quick": options.quick, "environment": environment, "settings": settings}
    write_results(options.output, results | {"cases": cases})
    console.print(f"Written to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
