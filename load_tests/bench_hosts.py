# SPDX-License-Identifier: Apache-2.0
"""Measure hosts: their start and size, overhead, requests/s over gRPC and REST, and the cost of changes to clients.

    python -m load_tests.bench_hosts                           # all of it: half an hour
    python -m load_tests.bench_hosts --only churn --cycles 10  # a part
    python -m load_tests.bench_hosts --quick                   # checks the program only

Optimizes W2 and serves it with the Python and the Go host. `loadgen` (libprocessor/go/cmd/loadgen) sends one-row
requests from the same CPUs. Prints tables and the targets, and writes results/bench_hosts.json.
docs/benchmarks/hosts.md explains it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from load_tests._benchmark import BenchmarkParser
from load_tests._environment import describe_environment, usable_cpus
from load_tests._programs import ROOT, ProgramError, find_library
from load_tests._report import Target, finish, make_console
from load_tests.bench_fused import fuse
from load_tests.hosts import churn, overhead, startup, throughput
from load_tests.hosts.changes import KINDS
from serving_proxy.errors import ProxyError

__all__ = ["main"]

SUBJECTS = ("startup", "overhead", "throughput", "churn")
Cases = list[dict[str, Any]]


def _startup(_: Path, options: argparse.Namespace, console: Console) -> tuple[Cases, list[Target]]:
    console.print("Measuring the start of hosts with one small model")
    cases = startup.measure(options)
    console.print(startup.table(cases))
    return cases, startup.judge(cases)


def _overhead(model: Path, options: argparse.Namespace, console: Console) -> tuple[Cases, list[Target]]:
    console.print(f"Measuring the overhead of a ModelHost with {' and '.join(map(str, options.models))} models loaded")
    cases = overhead.measure(model, options)
    console.print(overhead.table(cases))
    return cases, overhead.judge(cases)


def _throughput(model: Path, options: argparse.Namespace, console: Console) -> tuple[Cases, list[Target]]:
    cases: Cases = []
    for threads in (1, usable_cpus()):
        console.print(f"Measuring the bare model, {threads} thread{'s' if threads > 1 else ''}")
        bare = throughput.bare_model(model, threads, options)
        cases.append({"host": "none: the bare model", "over": "calls", "clients": threads} | bare)
    for kind in options.hosts:
        console.print(f"Measuring the {kind} host")
        cases += throughput.measure(kind, model, options)
    console.print(throughput.table(cases))
    return cases, throughput.judge(cases)


def _churn(model: Path, options: argparse.Namespace, console: Console) -> tuple[Cases, list[Target]]:
    cases: Cases = []
    for kind in options.hosts:
        cases += churn.measure(kind, model, options, console)
    churn.print_courses(console, cases)
    console.print(churn.table(cases))
    return cases, churn.judge(cases)


MEASURES = {"startup": _startup, "overhead": _overhead, "throughput": _throughput, "churn": _churn}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = BenchmarkParser("bench_hosts", "Measure hosts.", rounds=5, seconds=3, of="each case", quick_seconds=0.3)
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=list(SUBJECTS), help="only these measurements")
    kinds = tuple(throughput.CLIENTS)
    parser.add_argument("--hosts", nargs="+", choices=kinds, default=list(kinds), help="kinds of hosts")
    parser.add_argument("--precision", choices=("fp32", "bf16", "auto"), default="auto", help="precision of the model")
    parser.add_argument("--model", type=Path, help="an optimized W2; by default it is created")
    parser.add_argument(
        "--models", nargs="+", type=int, help="numbers of models that a ModelHost has loaded (default 1 40)"
    )
    parser.add_argument("--changes", nargs="+", choices=tuple(KINDS), default=list(KINDS), help="kinds of changes")
    parser.add_argument("--cycles", type=int, help="number of cycles of each kind of changes (default 100)")
    parser.add_argument("--quiet", type=float, help="seconds without changes, measured twice in each round (default 5)")
    parser.add_argument(
        "--maintenance-cpus", help="CPUs on which the proxy's host loads models (default: idle time of all CPUs)"
    )
    parser.add_programs()
    parsed = parser.parse(arguments)
    quick = parsed.quick
    parsed.models = parsed.models or ([1, 3] if quick else list(overhead.MODELS))
    parsed.cycles = parsed.cycles or (2 if quick else 100)
    parsed.quiet = parsed.quiet or (0.3 if quick else 5.0)
    parsed.churn_rounds = 1 if quick else 10
    if quick and not parsed.maintenance_cpus:
        # The figures need an idle machine, but a quick run may be one of many programs on it.
        parsed.maintenance_cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    """Optimize, measure, print and write.

    Returns
    -------
    status : int
        0; 1 if something failed, or with --strict a target was missed.
    """
    options = _parse(arguments)
    console = make_console()
    environment = describe_environment(ROOT)
    subjects: dict[str, Cases] = {}
    targets: list[Target] = []
    try:
        model = options.model or fuse("W2", options.precision, options.cache, find_library(options.library))
        for subject in options.only:
            subjects[subject], judged = MEASURES[subject](model, options, console)
            targets += judged
    except (ProgramError, ProxyError, FileNotFoundError) as error:
        console.print(f"[bold red]The run failed:[/] {escape(str(error))}", soft_wrap=True)
        return 1
    if options.quick:
        # Lost requests are a fault even on a busy machine.
        targets = [target for target in targets if target.limit == 0]
        console.print("A quick run: its figures are no measurement.")
    names = ("rounds", "seconds", "precision", "models", "cycles", "quiet", "churn_rounds", "maintenance_cpus")
    results = {
        "benchmark": "hosts",
        "quick": options.quick,
        "environment": environment,
        "settings": {name: getattr(options, name) for name in names},
        **subjects,
    }
    return finish(console, options.output, results, targets, options.strict)


if __name__ == "__main__":
    sys.exit(main())
