# SPDX-License-Identifier: Apache-2.0
"""Measure the overhead of a ModelHost over the bare model in the same process, with one and with many models."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from load_tests._environment import usable_cpus
from load_tests._programs import find_library, find_program, run_program
from load_tests._report import Target
from load_tests.bench_serving import default_config
from load_tests.request_files import ensure_requests

__all__ = ["desired_state", "judge", "measure", "summarize", "table"]

MODELS = (1, 40)
#: Largest overhead over the bare model [µs].
TARGETS = {"p50_us": 10.0, "p99_us": 30.0}
_ASKED = "ranking"


def desired_state(model: Path, config: dict[str, Any], count: int) -> dict[str, Any]:
    """Return a desired state with `count` models of one artifact: own sessions and weights, shared mapped tables."""
    version = {"path": str(model.resolve()), "config": config}
    names = [_ASKED, *(f"other-{number}" for number in range(1, count))]
    models = {name: {"baseline": 1, "versions": {"1": version}} for name in names}
    # No requests arrive while they are loaded, so loading need not wait for idle time.
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    return {"schema": 1, "generation": 1, "maintenance_cpus": cpus, "models": models}


def measure(model: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Let one client call the bare model and each host in turns, in one process."""
    config = default_config(usable_cpus())
    engines: list[dict[str, Any]] = [
        {"name": "bare", "engine": "processor", "model": str(model.resolve()), "config": config}
    ]
    with tempfile.TemporaryDirectory() as folder:
        for count in options.models:
            state = Path(folder) / str(count)
            state.mkdir()
            (state / "desired.json").write_text(json.dumps(desired_state(model, config, count)))
            entry = {"name": str(count), "engine": "host", "state_dir": str(state), "model_name": _ASKED}
            engines.append(entry)
        output = run_program(
            find_program("bench_serving", options.bench_dir),
            {
                "requests": ensure_requests(options.cache / "requests", "W2", 1, "tfserving"),
                "protocol": "tfserving",
                "library": find_library(options.library),
                "contestants": json.dumps(engines),
                "threads": 1,
                # Short turns: disturbances of a shared machine affect all alike.
                "seconds": options.seconds / 3,
                "rounds": 5 * options.rounds,
            },
        )
    return summarize(output)


def summarize(output: dict[str, Any]) -> list[dict[str, Any]]:
    """Convert the output of the program to cases; `added_us` are medians of the differences within a round."""
    bare, *hosts = output["engines"]
    cases = []
    for engine in (bare, *hosts):
        pairs = list(zip(engine["rounds"], bare["rounds"], strict=True))
        cases.append(
            {
                "models": None if engine is bare else int(engine["engine"]),
                "load_seconds": engine["load_seconds"],
                "added_us": {name: median(a[name] - b[name] for a, b in pairs) for name in TARGETS},
                "rounds": engine["rounds"],
            }
            | {name: median(turn[name] for turn in engine["rounds"]) for name in TARGETS}
        )
    return cases


def judge(cases: Sequence[dict[str, Any]]) -> list[Target]:
    """Compare the overhead of hosts with the targets."""
    targets = []
    for case in cases:
        if case["models"] is None:
            continue
        loaded = f"{case['models']} model{'s' if case['models'] > 1 else ''} loaded"
        for name, limit in TARGETS.items():
            title = f"ModelHost over the bare model, {loaded}, {name[:3]} µs"
            targets.append(Target(title, case["added_us"][name], limit, at_least=False))
    return targets


def table(cases: Sequence[dict[str, Any]]) -> Table:
    """Return a table of the cases."""
    found = Table(title="W2 optimized, one row, one caller in the process")
    found.add_column("who answers")
    for heading in ("p50 µs", "p99 µs", "added to p50", "added to p99"):
        found.add_column(heading, justify="right")
    for case in cases:
        name = "the bare model" if case["models"] is None else f"ModelHost, {case['models']} loaded"
        added = ("", "") if case["models"] is None else (f"{case['added_us'][figure]:+.1f}" for figure in TARGETS)
        found.add_row(name, *(f"{case[figure]:.1f}" for figure in TARGETS), *added)
    return found
