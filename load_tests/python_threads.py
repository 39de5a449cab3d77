# SPDX-License-Identifier: Apache-2.0
"""Measure how the Python binding scales from one thread to two.

    python -m load_tests.python_threads            # the figures: about two minutes
    python -m load_tests.python_threads --quick    # checks outputs and the program only: seconds

Compares two Python threads on two sessions of W1 at 128 rows with one thread, in alternating rounds. The strings are
arrays of fixed width or arrays of `bytes` objects. Also measures how long the description of a request takes, which is
the time under the GIL. Writes results/python_threads.json.
"""

import argparse
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from load_tests._benchmark import BenchmarkParser
from load_tests._environment import describe_environment, usable_cpus
from load_tests._programs import ROOT
from load_tests._report import Target, finish
from load_tests.request_files import random_inputs
from load_tests.workloads import ensure_model
from processor import Model
from processor._tensors import InputLayout, InputTensors

__all__ = ["main"]

#: Least ratio of the rate of two threads to that of one.
SPEEDUP = 1.8
THREADS = 2
DISTINCT_REQUESTS = 16
CONFIG = {
    "session_num": THREADS,
    "intra_op_parallelism_threads": 1,
    "inter_op_parallelism_threads": 1,
    "select_session_policy": "RR",
}

Inputs = Mapping[str, np.ndarray[Any, Any]]


def _forms(workload: str, rows: int) -> dict[str, list[Inputs]]:
    """Return the same requests with their strings in each form."""
    rng = np.random.default_rng(rows)
    objects: list[Inputs] = [random_inputs(workload, rows, rng) for _ in range(DISTINCT_REQUESTS)]
    fixed: list[Inputs] = [
        {name: array.astype("S") if array.dtype.kind == "O" else array for name, array in inputs.items()}
        for inputs in objects
    ]
    return {"fixed width": fixed, "objects": objects}


def check_answers(model: Model, forms: Mapping[str, Sequence[Inputs]]) -> None:
    """Check that every form of a request has the same outputs on every session, and that outputs differ by request.

    Raises
    ------
    AssertionError
        If they do not.
    """
    answers = {form: [model.run(inputs)["prob"] for inputs in requests] for form, requests in forms.items()}
    again = [model.run(inputs)["prob"] for inputs in forms["objects"][1:]]  # RR: now on the other session
    np.testing.assert_allclose(answers["fixed width"], answers["objects"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(again, answers["objects"][1:], rtol=1e-5, atol=1e-5)
    assert not np.allclose(answers["objects"][0], answers["objects"][1]), "equal answers to different requests"


def _rate(model: Model, requests: Sequence[Inputs], threads: int, seconds: float) -> float:
    """Return the requests/s of `threads` threads."""
    counts = [0] * threads
    begin = threading.Barrier(threads + 1)
    end = 0.0

    def work(number: int) -> None:
        begin.wait()
        at = number
        while time.perf_counter() < end:
            model.run(requests[at % len(requests)])
            counts[number] += 1
            at += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    start = time.perf_counter()
    end = start + seconds
    begin.wait()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - start)


def _description_us(model: Model, requests: Sequence[Inputs]) -> float:
    """Return how long it takes to describe a request to the library [us]: the best of five rounds."""
    layout = InputLayout(model.signatures["serving_default"])
    rounds = []
    for _ in range(5):
        start = time.perf_counter()
        for inputs in requests:
            InputTensors(layout, inputs)
        rounds.append((time.perf_counter() - start) / len(requests))
    return min(rounds) * 1e6


def _measure(model: Model, forms: Mapping[str, Sequence[Inputs]], options: argparse.Namespace) -> list[dict[str, Any]]:
    columns = (TextColumn("{task.description:<24}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    cases = []
    with Progress(*columns, TimeElapsedColumn(), console=Console()) as progress:
        task = progress.add_task("measuring", total=len(forms) * options.rounds * 2)
        for form, requests in forms.items():
            rates: dict[int, list[float]] = {1: [], THREADS: []}
            for _ in range(options.rounds):
                for threads, found in rates.items():
                    found.append(_rate(model, requests, threads, options.seconds))
                    progress.advance(task)
            alone, two = median(rates[1]), median(rates[THREADS])
            cases.append(
                {
                    "workload": options.workload,
                    "rows": options.rows,
                    "strings": form,
                    "requests_per_s": {"1": rates[1], str(THREADS): rates[THREADS]},
                    "one_thread": alone,
                    "two_threads": two,
                    "speedup": round(two / alone, 4),
                    "description_us": round(_description_us(model, requests), 1),
                }
            )
    return cases


def _table(cases: Sequence[dict[str, Any]]) -> Table:
    table = Table(title=f"Python threads, {cases[0]['workload']} (arrays in, arrays out)")
    for heading in ("strings", "rows", "1 thread, req/s", "2 threads, req/s", "ratio", "description µs"):
        table.add_column(heading, justify="left" if heading == "strings" else "right")
    for case in cases:
        table.add_row(
            case["strings"],
            str(case["rows"]),
            f"{case['one_thread']:,.0f}",
            f"{case['two_threads']:,.0f}",
            f"{case['speedup']:.2f}",
            f"{case['description_us']:.0f}",
        )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write; the exit status is 1 with --strict if a target was missed."""
    description = "Measure how the Python binding scales from one thread to two."
    parser = BenchmarkParser("python_threads", description, rounds=5, seconds=3, of="each number of threads")
    parser.add_argument("--workload", choices=["W1", "tiny"], default="W1", help="workload; the target applies to W1")
    parser.add_argument("--rows", type=int, default=128, help="batch size (default 128)")
    options = parser.parse(arguments)
    console = Console()
    environment = describe_environment(ROOT)
    forms = _forms(options.workload, options.rows)
    with Model(ensure_model(options.workload, options.cache), CONFIG) as model:
        check_answers(model, forms)
        cases = _measure(model, forms, options)
    console.print(_table(cases))
    targets = []
    if options.quick:
        console.print(
            "A quick run: the outputs agree; its figures are no measurement and are not compared with targets."
        )
    elif usable_cpus() < THREADS:
        console.print(f"{usable_cpus()} CPU: two threads cannot be faster than one, so there is no target.")
    else:
        targets = [
            Target(f"two threads over one, strings as {case['strings']}", case["speedup"], SPEEDUP, at_least=True)
            for case in cases
        ]
    results = {
        "benchmark": "python_threads",
        "quick": options.quick,
        "environment": environment,
        "settings": {"rounds": options.rounds, "seconds": options.seconds, "config": CONFIG},
        "cases": cases,
    }
    return finish(console, options.output, results, targets, options.strict)


if __name__ == "__main__":
    sys.exit(main())
