# SPDX-License-Identifier: Apache-2.0
"""Run a benchmark of hosts that divide cores: optimize W2, start the hosts, measure, print and write."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape

from load_tests._environment import describe_environment
from load_tests._programs import ROOT, ProgramError, find_library
from load_tests._report import Target, finish, make_console
from load_tests.bench_fused import fuse
from serving_proxy.errors import ProxyError

#: Part of all CPU time that other processes may use before a warning is printed.
_QUIET = 0.05

Hosts = TypeVar("Hosts")
Results = dict[str, Any]


def run_on_hosts(
    name: str,
    options: argparse.Namespace,
    settings: Sequence[str],
    open_hosts: Callable[[Path, int, Path, Path], AbstractContextManager[Hosts]],
    measure: Callable[[Hosts, argparse.Namespace, Console], Results],
    judge: Callable[[Results, Console], list[Target]],
) -> tuple[int, Results | None]:
    """Run a benchmark.

    Parameters
    ----------
    name : str
        Name of the benchmark in the result file.
    settings : sequence of str
        Options that the result file contains.
    open_hosts : callable of model, rows, folder, cache
    judge : callable
        Prints the results and returns their targets. A quick run is judged only by targets of 0.

    Returns
    -------
    status : int
        0; 1 if something failed, or with --strict a target was missed.
    results : dict or None
        The content of the result file; None if something failed.
    """
    console = make_console()
    environment = describe_environment(ROOT)
    others = environment["busy_before"]
    if others > _QUIET:
        console.print(f"[bold yellow]Other programs use {others:.0%} of the CPUs: the figures will be unreliable[/]")
    if environment["cpus"] < 2:
        console.print("cpus: 1 found, expected at least 2, because one CPU cannot be divided")
        return 1, None
    try:
        model = options.model or fuse("W2", "fp32", options.cache, find_library(options.library))
        with (
            tempfile.TemporaryDirectory() as folder,
            open_hosts(model, options.rows, Path(folder), options.cache) as hosts,
        ):
            found = measure(hosts, options, console)
    except (ProgramError, ProxyError, FileNotFoundError) as error:
        console.print(f"[bold red]The run failed:[/] {escape(str(error))}")
        return 1, None
    targets = judge(found, console)
    if options.quick:
        targets = [target for target in targets if target.limit == 0]
        console.print("A quick run: its figures are no measurement.")
    results = {
        "benchmark": name,
        "quick": options.quick,
        "environment": environment,
        "settings": {name: getattr(options, name) for name in settings},
        **found,
    }
    return finish(console, options.output, results, targets, options.strict), results
