# SPDX-License-Identifier: Apache-2.0
"""Measure tables larger than memory.

    python -m load_tests.bench_tiers                     # everything
    python -m load_tests.bench_tiers --only serving      # some cases
    python -m load_tests.bench_tiers --quick             # the same code with tiny sizes

Each case runs in a process of its own. Prints a table for each and the targets, and writes results/bench_tiers.json.
docs/benchmarks/tiers.md explains the cases.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from load_tests._benchmark import BenchmarkParser
from load_tests._cases import run_cases
from load_tests._environment import describe_environment
from load_tests._programs import ROOT
from load_tests._report import Target
from load_tests.elastic import binary_codes, code_lookups
from load_tests.tiers import codes, kills, resident, serving, training
from load_tests.tiers.setup import Setup

__all__ = ["CASES", "main"]

CASES: dict[str, tuple[Callable[[Setup], dict[str, Any]], Callable[[dict[str, Any]], list[Target]]]] = {
    "serving": (serving.measure, serving.judge),
    "resident": (resident.measure, resident.judge),
    "training": (training.measure, training.judge),
    "kills": (kills.measure, kills.judge),
    "codes": (codes.measure, binary_codes.judge),
    "code_lookups": (codes.measure_lookups, code_lookups.judge),
}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = BenchmarkParser("bench_tiers", "Measure tables larger than memory.")
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=list(CASES), help="cases (default: all)")
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "tiers", help="folder for tables: 18 GB")
    return parser.parse(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write.

    Returns
    -------
    status : int
        0; 1 if an answer was wrong, something failed, or with --strict a target was missed.
    """
    options = _parse(arguments)
    setup = Setup(options.folder, options.quick)
    return run_cases(options, "tiers", describe_environment(ROOT), CASES, setup, {"codes": binary_codes.show})


if __name__ == "__main__":
    sys.exit(main())
