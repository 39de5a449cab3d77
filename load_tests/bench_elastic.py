# SPDX-License-Identifier: Apache-2.0
"""Measure elastic_training beside its peers: speed, threads, memory, a DLRM, what policies cost, and pauses.

    python -m load_tests.bench_elastic                       # everything: about fifteen minutes
    python -m load_tests.bench_elastic --only lookup step    # some cases
    python -m load_tests.bench_elastic --full                # all seeds of `lasso`
    python -m load_tests.bench_elastic --quick               # the same code with tiny sizes

Each case runs in a process of its own. Prints a table for each and the targets, and writes results/bench_elastic.json.
docs/benchmarks/elastic_training.md explains the cases.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from typing import Any

from rich.markup import escape
from rich.table import Table

from load_tests._benchmark import BenchmarkParser
from load_tests._environment import describe_environment
from load_tests._programs import ROOT
from load_tests._report import Target, finish_cases, make_console
from load_tests.elastic import admission, binary_codes, dlrm, lasso, lookup, memory, pauses, step, studies, threads
from load_tests.elastic.setup import Setup

__all__ = ["CASES", "case_table", "main"]

Measure = Callable[[Setup], dict[str, Any]]
Judge = Callable[[dict[str, Any]], list[Target]]
CASES: dict[str, tuple[Measure, Judge]] = {
    "lookup": (lookup.measure, lookup.judge),
    "step": (step.measure, step.judge),
    "threads": (threads.measure, threads.judge),
    "memory": (memory.measure, memory.judge),
    "dlrm": (dlrm.measure, dlrm.judge),
    "lasso": (studies.measure_lasso, lasso.judge),
    "admission": (studies.measure_admission, admission.judge),
    "pauses": (pauses.measure, pauses.judge),
}

_SHOWS: dict[str, Callable[[Any], Table]] = {
    "lasso": lasso.show,
    "admission": admission.show,
    "codes": binary_codes.show,
}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = BenchmarkParser("bench_elastic", "Measure elastic_training beside its peers.")
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=list(CASES), help="cases (default: all)")
    parser.add_argument("--full", action="store_true", help="all seeds of `lasso`: 15 minutes more")
    return parser.parse(arguments)


def _run(measure: Measure, setup: Setup) -> dict[str, Any]:
    """Run a case in a new process, whose memory, threads and settings of TensorFlow are its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, setup).result()


def _text(value: Any) -> str:
    if isinstance(value, dict) and "median" in value:
        return f"{value['median']:,.4g} ({value['least']:,.4g} to {value['greatest']:,.4g})"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(part)}" for name, part in value.items())
    if isinstance(value, float):
        return f"{value:,.4g}"
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else json.dumps(value)


def case_table(name: str, case: dict[str, Any]) -> Table:
    """Show the figures of a case, one in a row."""
    if name in _SHOWS:
        return _SHOWS[name](case)
    table = Table(title=name, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for key, value in case.items():
        table.add_row(key, escape(_text(value)[:400]))
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write.

    Returns
    -------
    status : int
        0; 1 if an answer was wrong, something failed, or with --strict a target was missed.
    """
    options = _parse(arguments)
    console = make_console()
    environment = describe_environment(ROOT)
    environment["versions"] |= {name: metadata.version(name) for name in ("keras", "tf_keras")}
    setup = Setup(options.quick, options.full)
    cases, targets = dict[str, Any](), list[Target]()
    for name in options.only:
        measure, judge = CASES[name]
        with console.status(name):
            try:
                cases[name] = _run(measure, setup)
            # What the other cases found is kept.
            except Exception as error:
                cases[name] = {"failed": f"{type(error).__name__}: {error}"}
                console.print(f"[bold red]{name} failed:[/] {escape(str(error))}", soft_wrap=True)
                continue
        console.print(case_table(name, cases[name]))
        targets += judge(cases[name])
    status = finish_cases(console, options, "elastic", environment, cases, targets)
    return 1 if any("failed" in case for case in cases.values()) else status


if __name__ == "__main__":
    sys.exit(main())
