# SPDX-License-Identifier: Apache-2.0
"""Run the cases of a benchmark, each in a process of its own, and show their figures."""

from __future__ import annotations

import json
import multiprocessing
from argparse import Namespace
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from rich.markup import escape
from rich.table import Table

from load_tests._report import Target, finish_cases, make_console

__all__ = ["case_table", "run_cases", "run_in_process"]

Show = Callable[[Any], Table]


def run_in_process(measure: Callable[[Any], dict[str, Any]], setup: Any) -> dict[str, Any]:
    """Run a case in a new process, whose memory, threads and settings of TensorFlow are its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, setup).result()


def run_cases(
    options: Namespace,
    benchmark: str,
    environment: dict[str, Any],
    cases: Mapping[str, tuple[Callable[[Any], dict[str, Any]], Callable[[dict[str, Any]], list[Target]]]],
    setup: Any,
    shows: Mapping[str, Show],
) -> int:
    """Measure, print and write.

    Parameters
    ----------
    options : Namespace
        `only`, the names of the cases to run, and what `finish_cases` reads.
    benchmark : str
    environment : dict
    cases : mapping of str to (measure, judge)
    setup : object
        What `measure` gets.
    shows : mapping of str to callable
        Makes the table of a case; by default it has a figure in each row.

    Returns
    -------
    status : int
        0; 1 if an answer was wrong, something failed, or with --strict a target was missed.
    """
    console = make_console()
    found, targets = dict[str, Any](), list[Target]()
    for name in options.only:
        measure, judge = cases[name]
        with console.status(name):
            try:
                found[name] = run_in_process(measure, setup)
            # What the other cases found is kept.
            except Exception as error:
                found[name] = {"failed": f"{type(error).__name__}: {error}"}
                console.print(f"[bold red]{name} failed:[/] {escape(str(error))}", soft_wrap=True)
                continue
        console.print(shows[name](found[name]) if name in shows else case_table(name, found[name]))
        targets += judge(found[name])
    status = finish_cases(console, options, benchmark, environment, found, targets)
    return 1 if any("failed" in case for case in found.values()) else status


def case_table(name: str, case: dict[str, Any]) -> Table:
    """Show the figures of a case, one in a row."""
    table = Table(title=name, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for key, value in case.items():
        table.add_row(key, escape(_text(value)[:400]))
    return table


def _text(value: Any) -> str:
    if isinstance(value, dict) and "median" in value:
        return f"{value['median']:,.4g} ({value['least']:,.4g} to {value['greatest']:,.4g})"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(part)}" for name, part in value.items())
    if isinstance(value, float):
        return f"{value:,.4g}"
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else json.dumps(value)
