# SPDX-License-Identifier: Apache-2.0
"""Measure the results of graph-tools on real exports: bytes, nodes, speed, AUC, throughput; outputs are checked first.

    python -m load_tests.bench_graph_tools                    # all cases
    python -m load_tests.bench_graph_tools --only zero-rows   # one

Prints the figures and the targets, and writes results/bench_graph_tools.json and the report of every cut in
results/graph-tools. docs/benchmarks/graph_tools.md explains the measurements.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# TensorFlow reads these variables when it is loaded.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from load_tests._environment import describe_environment
from load_tests._programs import ROOT
from load_tests._report import Target, make_console, print_targets, write_results
from load_tests.graph_tools_cases import CASES

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; with --strict, return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(CASES), action="append", help="run only this case; repeatable")
    parser.add_argument(
        "--json", type=Path, default=ROOT / "results" / "bench_graph_tools.json", help="file of the results"
    )
    parser.add_argument(
        "--reports", type=Path, default=ROOT / "results" / "graph-tools", help="folder of the reports and models"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    options = parser.parse_args(arguments)
    console = make_console()
    environment = describe_environment(ROOT)
    targets: list[Target] = []
    figures = {}
    for name in options.only or CASES:
        with console.status(f"{name} …"):
            found, more = CASES[name](options.reports)
        console.print(f"[bold]{name}[/]")
        print_targets(console, found)
        for key, value in more.items():
            console.print(f"        {key}: {value:.4g}" if isinstance(value, float) else f"        {key}: {value}")
        targets += found
        figures[name] = more
    results = {
        "environment": environment,
        "targets": [target.to_json() for target in targets],
        "figures": figures,
    }
    write_results(options.json, results)
    console.print(f"All figures: {options.json}")
    return 1 if options.strict and not all(target.ok for target in targets) else 0


if __name__ == "__main__":
    sys.exit(main())
