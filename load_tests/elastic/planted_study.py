# SPDX-License-Identifier: Apache-2.0
"""What studies with planted users share: their sizes, their bounds, and their command line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from load_tests._environment import describe_environment
from load_tests._programs import ROOT
from load_tests._report import Target, finish, make_console, results_file

__all__ = ["QUICK_USERS", "SEEDS", "USERS", "run_study", "upper_bound"]

USERS, QUICK_USERS, SEEDS = 1_000_000, 20_000, 5
#: 95 % quantiles of Student's t, one-sided, by degrees of freedom.
_STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833)


def upper_bound(values: Sequence[float]) -> float:
    """Return the one-sided 95 % bound of the mean, for values with a normal distribution; the value if it is one."""
    if len(values) == 1:
        return values[0]
    quantile = _STUDENT[min(len(values) - 1, len(_STUDENT)) - 1]
    return float(np.mean(values) + quantile * np.std(values, ddof=1) / math.sqrt(len(values)))


def run_study(
    arguments: Sequence[str] | None,
    description: str,
    name: str,
    measure: Callable[[int, int, Callable[[str], None]], Any],
    judge: Callable[[Any], list[Target]],
    show: Callable[[Any], Table],
) -> int:
    """Measure, print and write `results/elastic_NAME.json`; return 1 if with --strict a target was missed.

    Parameters
    ----------
    arguments : sequence of str, optional
        Of the command line.
    description : str
        For --help.
    name : str
    measure : callable
        Gets the number of users, that of seeds, and what it calls with its progress.
    judge, show : callable
        Return the targets, and a table, of what `measure` returned.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="few users and one seed; no targets")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--users", type=int, default=USERS, help="number of users (default %(default)s)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds (default %(default)s)")
    options = parser.parse_args(arguments)
    console = make_console()
    environment = describe_environment(ROOT)
    users, seeds = (QUICK_USERS, 1) if options.quick else (options.users, options.seeds)
    with console.status(name.replace("_", " ")) as status:
        figures = measure(users, seeds, status.update)
    console.print(show(figures))
    targets = [] if options.quick else judge(figures)
    results = {"benchmark": f"elastic_{name}", "quick": options.quick, "environment": environment, **figures}
    return finish(console, results_file(f"elastic_{name}", options.quick), results, targets, options.strict)
