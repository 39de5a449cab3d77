# SPDX-License-Identifier: Apache-2.0
"""Provide the shared parts of benchmarks: their options, runs of `bench_serving`, and the summary of a run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape

from load_tests._environment import describe_environment, usable_cpus
from load_tests._programs import ROOT, ProgramError, find_library, find_program, run_program
from load_tests._report import Target, finish, make_console, results_file

__all__ = ["FIGURES", "BenchmarkParser", "Measured", "engine_medians", "measure_engines", "run_benchmark"]

#: Figures of a round of `bench_serving`.
FIGURES = ("requests_per_s", "mean_us", "p50_us", "p99_us", "cpu_s_per_1000")
#: Exit status of `bench_serving` if the outputs of two engines differ.
_ANSWERS_DIFFER = 2
_QUICK = "A quick run: the outputs agree; its figures are no measurement and are not compared with targets."


class BenchmarkParser(argparse.ArgumentParser):
    """Parse the options that benchmarks share.

    Parameters
    ----------
    name : str
        Name of the result file, without its suffix.
    description : str
    rounds : int, optional
        Default of `--rounds`; 1 in a quick run. By default the benchmark has neither `--rounds` nor `--seconds`.
    seconds : float
        Default of `--seconds`, the length of a round [s].
    of : str
        Object that is measured in rounds.
    quick_seconds : float
        Length of a round in a quick run [s].
    """

    def __init__(
        self,
        name: str,
        description: str,
        *,
        rounds: int | None = None,
        seconds: float = 0.0,
        of: str = "each engine",
        quick_seconds: float = 0.2,
    ) -> None:
        super().__init__(description=description)
        self._name, self._rounds, self._seconds, self._quick_seconds = name, rounds, seconds, quick_seconds
        self.add_argument(
            "--quick", action="store_true", help="only check outputs and the program; the figures are no measurement"
        )
        self.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
        if rounds is not None:
            self.add_argument("--rounds", type=int, help=f"number of rounds of {of} (default {rounds})")
            self.add_argument("--seconds", type=float, help=f"length of a round in seconds (default {seconds:g})")
        self.add_argument(
            "--cache", type=Path, default=ROOT / ".cache" / "workloads", help="folder of the cached models"
        )
        self.add_argument("--output", type=Path, help=f"file of the results (default results/{name}.json)")

    def add_programs(self, program: str | None = "bench_serving") -> None:
        """Add the options for the paths of the library and, if there is one, of the native program."""
        if program is not None:
            self.add_argument("--bench-dir", type=Path, help=f"folder of the program {program}")
        self.add_argument("--library", type=Path, help="path of libprocessor.so")

    def add_threads(self) -> None:
        """Add the option for the number of client threads."""
        self.add_argument(
            "--threads", type=int, default=usable_cpus(), help="number of client threads (default: one per CPU)"
        )

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Parse a command line, and fill in the defaults that depend on `--quick`."""
        options = self.parse_args(arguments)
        if self._rounds is not None:
            options.rounds = options.rounds or (1 if options.quick else self._rounds)
            options.seconds = options.seconds or (self._quick_seconds if options.quick else self._seconds)
        options.warmup = 0.05 if options.quick else 0.5
        options.output = options.output or results_file(self._name, options.quick)
        return options


def measure_engines(
    options: argparse.Namespace,
    requests: Path,
    *,
    tick: Callable[[], None] = lambda: None,
    prefix: Sequence[str] = (),
    **arguments: object,
) -> Any:
    """Run `options.program` (`bench_serving`) with the rounds and the library of `options`.

    Parameters
    ----------
    options : Namespace
    requests : Path
        File of requests.
    tick : callable
        Called a few times a second while it runs.
    prefix : sequence of str
        Command to run it under.
    **arguments
        Further arguments of the program, or replacements of the usual ones; `contestants` may be a list.

    Raises
    ------
    ProgramError
        If the program failed.
    """
    contestants = arguments.get("contestants")
    if isinstance(contestants, list):
        arguments["contestants"] = json.dumps(contestants)
    usual = {
        "requests": requests,
        "protocol": "eas",
        "library": options.library,
        "threads": getattr(options, "threads", usable_cpus()),
        "seconds": options.seconds,
        "warmup": options.warmup,
        "rounds": options.rounds,
    }
    return run_program(options.program, usual | arguments, tick, prefix)


def engine_medians(output: dict[str, Any], figures: Sequence[str] = FIGURES) -> dict[str, dict[str, Any]]:
    """Convert the output of `bench_serving` to the format of the result file.

    Returns
    -------
    engines : dict
        For each engine the medians of the figures over the rounds, the largest difference of its outputs from those of
        the first engine (`max_abs_difference`), and the rounds.
    """
    return {
        engine["engine"]: {name: median(turn[name] for turn in engine["rounds"]) for name in figures}
        | {"max_abs_difference": engine["max_abs_difference"], "rounds": engine["rounds"]}
        for engine in output["engines"]
    }


@dataclass
class Measured:
    """Contain the results of a benchmark.

    Attributes
    ----------
    cases : list of dict
        In the format of the result file.
    table : Table
        The same results for readers.
    targets : list of Target
        Targets that the figures must reach, unless the run is quick.
    settings : dict
        Settings of the run other than `rounds` and `seconds`.
    notes : list of str
        Lines below the table.
    """

    cases: list[dict[str, Any]]
    table: RenderableType
    targets: list[Target]
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def run_benchmark(
    name: str, options: argparse.Namespace, measure: Callable[[argparse.Namespace, Console], Measured]
) -> int:
    """Find `bench_serving` and the library, measure, print and write.

    Parameters
    ----------
    name : str
        Name of the benchmark in the result file.
    options : Namespace
        From a `BenchmarkParser` with `add_programs`.
    measure : callable
        Measures, with `options.library` as an absolute path, and raises ProgramError or FileNotFoundError.

    Returns
    -------
    status : int
        0; 1 if outputs differ, something failed, or with --strict a target was missed.
    """
    console = make_console()
    # Before the run: the checkout may change during it, and the load must be that of other programs.
    environment = describe_environment(ROOT)
    try:
        options.program = find_program("bench_serving", options.bench_dir)
        options.library = find_library(options.library)
        measured = measure(options, console)
    except (ProgramError, FileNotFoundError) as error:
        differ = isinstance(error, ProgramError) and error.status == _ANSWERS_DIFFER
        console.print(
            f"[bold red]{'The outputs differ' if differ else 'The run failed'}:[/] {escape(str(error))}", soft_wrap=True
        )
        return 1
    console.print(measured.table)
    for note in measured.notes:
        console.print(note, soft_wrap=True)
    targets = [] if options.quick else measured.targets
    if options.quick:
        console.print(_QUICK)
    results = {
        "benchmark": name,
        "quick": options.quick,
        "environment": environment,
        "settings": {"rounds": options.rounds, "seconds": options.seconds, **measured.settings},
        "cases": measured.cases,
    }
    return finish(console, options.output, results, targets, options.strict)
