# SPDX-License-Identifier: Apache-2.0
"""Measure tables larger than memory.

    python -m load_tests.bench_tiers                     # everything
    python -m load_tests.bench_tiers --only serving      # some cases
    python -m load_tests.bench_tiers --quick             # the same code with tiny sizes

Each case runs in a process of its own. Prints a table for each and the targets, and writes results/bench_tiers.json.
docs/benchmarks/tiers.md explains the cases. `make bench-tiers` builds what it measures first; without that, it refuses
programs that are older than their sources.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from load_tests._benchmark import BenchmarkParser
from load_tests._cases import run_cases
from load_tests._environment import describe_environment
from load_tests._programs import ROOT, StaleProgramError, check_is_current, find_program
from load_tests._report import Target
from load_tests.elastic import binary_codes, code_lookups
from load_tests.tiers import codes, early_reads, kills, resident, serving, training
from load_tests.tiers.setup import Setup

__all__ = ["CASES", "main"]

CASES: dict[str, tuple[Callable[[Setup], dict[str, Any]], Callable[[dict[str, Any]], list[Target]]]] = {
    "serving": (serving.measure, serving.judge),
    "early_reads": (early_reads.measure, early_reads.judge),
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


def _check_programs(cases: Sequence[str]) -> None:
    """Check that the programs which cases run are those of the sources."""
    command, bench = "make bench-tiers", ROOT / "libprocessor" / "bench"
    if "training" in cases:
        check_is_current(training.PROGRAM, training.SOURCES, command)
    if "serving" in cases:
        tables = ROOT / "libprocessor" / "src" / "tables"
        reads = [tables / f"{name}.cc" for name in ("direct_file", "read_batch", "read_ring", "table_file")]
        check_is_current(find_program("bench_reads"), [bench / "bench_reads.cc", bench / "main.cc", *reads], command)
        with contextlib.suppress(FileNotFoundError):  # where RocksDB is not installed
            rocksdb = find_program("bench_rocksdb")
            check_is_current(rocksdb, [bench / "bench_rocksdb.cc", bench / "main.cc"], command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write.

    Returns
    -------
    status : int
        0; 1 if an answer was wrong, something failed, or with --strict a target was missed; 2 if a program is stale.
    """
    options = _parse(arguments)
    try:
        _check_programs(options.only)
    except (StaleProgramError, FileNotFoundError) as error:
        print(f"bench_tiers: {error}", file=sys.stderr)
        return 2
    setup = Setup(options.folder, options.quick)
    return run_cases(options, "tiers", describe_environment(ROOT), CASES, setup, {"codes": binary_codes.show})


if __name__ == "__main__":
    sys.exit(main())
