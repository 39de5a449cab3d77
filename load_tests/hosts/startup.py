# SPDX-License-Identifier: Apache-2.0
"""Measure the start of hosts that serve one small model, the import of `processor`, and their memory."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import numpy as np
from rich.table import Table

from load_tests._environment import usable_cpus
from load_tests._programs import ROOT, ProgramError
from load_tests._report import Target
from load_tests.bench_serving import default_config
from load_tests.hosts.memory import memory_of
from load_tests.hosts.throughput import MODEL, PATHS, HostProcess
from load_tests.request_files import encode_request, name_model, random_inputs
from load_tests.workloads import ensure_model

__all__ = ["judge", "measure", "small_model", "table"]

#: Longest import of `processor`, and longest time from the start of a host to its first answer [s].
IMPORT_S, ANSWER_S = 0.3, 1.5
#: Most memory of each kind of host beyond that of TensorFlow alone [MB].
MEMORY_MB = {"go": 60.0, "python": 120.0}
#: Requests before the memory is read, so that each session and thread has been used.
_REQUESTS = 500
_IMPORT = (
    "import sys, time; begin = time.perf_counter(); import processor; print(time.perf_counter() - begin);"
    "assert 'tensorflow' not in sys.modules"
)


def small_model(options: argparse.Namespace) -> tuple[Path, bytes]:
    """Return the demo's click model, which is trained if necessary, and a request; a quick run has a tiny model."""
    if options.quick:
        inputs, model = random_inputs("tiny", 1, np.random.default_rng(1)), ensure_model("tiny", options.cache)
    else:
        from load_tests.workloads.movielens import ensure_click_model

        model, rows = ensure_click_model()
        inputs = {name: column[:1] for name, column in rows.features.items()}
    return model, name_model(encode_request(inputs, "tfserving"), MODEL)


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Start everything once a round, in turns; return one case for each, with the medians of its figures."""
    model, request = small_model(options)
    cases: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.rounds):
        cases.setdefault("import processor", []).append({"seconds": _print_of("-c", _IMPORT)})
        alone = _print_of("-m", "load_tests.hosts.tensorflow_alone", str(model))
        cases.setdefault("TensorFlow alone", []).append({"resident_mb": alone})
        for kind in options.hosts:
            cases.setdefault(kind, []).append(_start(kind, model, request))
    return [
        {"what": what} | {name: median(turn[name] for turn in rounds) for name in rounds[0]} | {"rounds": rounds}
        for what, rounds in cases.items()
    ]


def _print_of(*arguments: str) -> float:
    """Return the number that a fresh interpreter prints."""
    ended = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise ProgramError("python", ended.returncode, ended.stderr)
    return float(ended.stdout)


def _start(kind: str, model: Path, request: bytes) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        host = HostProcess(kind, model, Path(folder), default_config(usable_cpus()))
        try:
            with grpc.insecure_channel(host.addresses["grpc"]) as channel:
                call = channel.unary_unary(PATHS["grpc"])
                call(request, timeout=30)
                seconds = time.monotonic() - begin
                for _ in range(_REQUESTS):
                    call(request, timeout=30)
            return {"seconds": seconds, "resident_mb": memory_of(host.pid)["resident"] / 1e6}
        finally:
            host.close()


def judge(cases: Sequence[dict[str, Any]]) -> list[Target]:
    """Compare the cases with the targets; the memory of hosts is compared with that of TensorFlow alone."""
    found = {case["what"]: case for case in cases}
    seconds = found["import processor"]["seconds"]
    targets = [Target("import processor, s", seconds, IMPORT_S, at_least=False)]
    for kind in (kind for kind in MEMORY_MB if kind in found):
        more = found[kind]["resident_mb"] - found["TensorFlow alone"]["resident_mb"]
        targets.append(Target(f"{kind} host, first answer, s", found[kind]["seconds"], ANSWER_S, at_least=False))
        targets.append(Target(f"{kind} host, MB beyond TensorFlow", more, MEMORY_MB[kind], at_least=False))
    return targets


def table(cases: Sequence[dict[str, Any]]) -> Table:
    """Return a table of the cases."""
    found = Table(title="Start and size with one small model")
    found.add_column("what")
    for heading in ("seconds", "resident MB"):
        found.add_column(heading, justify="right")
    for case in cases:
        figures = [("seconds", "{:.2f}"), ("resident_mb", "{:.0f}")]
        found.add_row(case["what"], *(form.format(case[name]) if name in case else "" for name, form in figures))
    return found
