# SPDX-License-Identifier: Apache-2.0
"""Measure live models: how fresh their answers are, what deltas cost, and that no answer is ever wrong.

    python -m load_tests.bench_live                       # everything: about an hour
    python -m load_tests.bench_live --only mixed damage   # some cases
    python -m load_tests.bench_live --quick               # the same code with tiny sizes

Prints a table for each case and the targets, and writes results/bench_live.json. docs/benchmarks/live_models.md
explains the cases.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from load_tests._benchmark import BenchmarkParser
from load_tests._environment import describe_environment
from load_tests._programs import ROOT, ProgramError, find_library, find_program
from load_tests._report import Target, finish_cases, make_console
from load_tests.live import damage, freshness, latency, lookups, memory, mixed, rollbacks, variants
from load_tests.live.setup import Setup

__all__ = ["CASES", "main"]

Measure = Callable[[Setup], dict[str, Any]]
Judge = Callable[[dict[str, Any]], list[Target]]
CASES: dict[str, tuple[Measure, Judge]] = {
    "mixed": (mixed.measure, mixed.judge),
    "damage": (damage.measure, damage.judge),
    "rollbacks": (rollbacks.measure, rollbacks.judge),
    "freshness": (freshness.measure, freshness.judge),
    "latency": (latency.measure, latency.judge),
    "lookups": (lookups.measure, lookups.judge),
    "memory": (memory.measure, memory.judge),
    "variants": (variants.measure, variants.judge),
}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = BenchmarkParser("bench_live", "Measure live models.")
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=list(CASES), help="cases (default: all)")
    parser.add_argument("--seed", type=int, help="seed of `damage` (default: a new one, which the results contain)")
    parser.add_programs("bench_live")
    return parser.parse(arguments)


def _table(name: str, case: dict[str, Any]) -> Table:
    table = Table(title=name, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for key, value in case.items():
        text = f"{value:,}" if isinstance(value, int) else value if isinstance(value, str) else json.dumps(value)
        table.add_row(key, escape(text[:400]))
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
    cases, targets = dict[str, Any](), list[Target]()
    try:
        program, library = find_program("bench_live", options.bench_dir), find_library(options.library)
        for name in options.only:
            measure, judge = CASES[name]
            with console.status(name) as shown:
                tick = lambda text, name=name, shown=shown: shown.update(f"{name}: {text}")  # noqa: E731
                setup = Setup(program, library, options.cache / "live", options.quick, options.seed, tick)
                cases[name] = measure(setup)
            console.print(_table(name, cases[name]))
            targets += judge(cases[name])
    except (FileNotFoundError, ProgramError) as error:
        console.print(f"[bold red]The run failed:[/] {escape(str(error))}", soft_wrap=True)
        return 1
    return finish_cases(console, options, "live", environment, cases, targets)


if __name__ == "__main__":
    sys.exit(main())
