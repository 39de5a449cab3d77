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
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

from rich.table import Table

from load_tests._benchmark import BenchmarkParser
from load_tests._cases import run_cases
from load_tests._environment import describe_environment
from load_tests._programs import ROOT
from load_tests._report import Target
from load_tests.elastic import admission, dlrm, lasso, lookup, memory, pauses, step, studies, threads
from load_tests.elastic.setup import Setup

__all__ = ["CASES", "main"]

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
}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = BenchmarkParser("bench_elastic", "Measure elastic_training beside its peers.")
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=list(CASES), help="cases (default: all)")
    parser.add_argument("--full", action="store_true", help="all seeds of `lasso`: 15 minutes more")
    return parser.parse(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write.

    Returns
    -------
    status : int
        0; 1 if an answer was wrong, something failed, or with --strict a target was missed.
    """
    options = _parse(arguments)
    environment = describe_environment(ROOT)
    environment["versions"] |= {name: metadata.version(name) for name in ("keras", "tf_keras")}
    return run_cases(options, "elastic", environment, CASES, Setup(options.quick, options.full), _SHOWS)


if __name__ == "__main__":
    sys.exit(main())
