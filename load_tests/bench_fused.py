# SPDX-License-Identifier: Apache-2.0
"""Measure fused models against stock TensorFlow, bare oneDNN, ONNX Runtime and OpenVINO, in one run.

    python -m load_tests.bench_fused            # the figures: about 15 minutes
    python -m load_tests.bench_fused --quick    # checks outputs and the program only

Optimizes W1 and W2 with `graph-tools optimize`. `bench_serving` (libprocessor/bench) then sends the same requests to
all engines in turns. Prints a table and the targets, and writes results/bench_fused.json.
docs/benchmarks/fused_models.md explains it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from load_tests._benchmark import BenchmarkParser, Measured, engine_medians, measure_engines, run_benchmark
from load_tests._environment import usable_cpus
from load_tests._programs import ROOT, ProgramError
from load_tests._report import Target
from load_tests.bench_serving import default_config
from load_tests.peers import PEERS, ensure_peer_model
from load_tests.request_files import ensure_requests
from load_tests.workloads import WORKLOADS, ensure_model

__all__ = ["PRECISIONS", "TARGETS", "judge", "main", "summarize"]

ROWS = (1, 16, 128, 512)
PRECISIONS = ("fp32", "bf16", "int8")
#: Allowed difference of scores from stock TensorFlow's.
TOLERANCES = {"fp32": 1e-5, "bf16": 5e-2, "int8": 5e-2}
WIDTHS = [429, 1024, 512, 256, 1]
BARE = "oneDNN alone"

#: Least ratio of requests/s, by workload, rows, precision and the engine that it is compared with.
TARGETS = {
    ("W1", 1, "fp32", "stock"): 17.0,
    ("W1", 16, "fp32", "stock"): 4.0,
    ("W1", 128, "fp32", "stock"): 2.0,
    ("W1", 512, "fp32", "stock"): 1.3,
    ("W1", 1, "bf16", "stock"): 25.0,
    ("W1", 16, "bf16", "stock"): 7.0,
    ("W1", 128, "bf16", "stock"): 3.4,
    ("W1", 512, "bf16", "stock"): 2.3,
    ("W1", 1, "int8", "stock"): 40.0,
    ("W1", 128, "int8", "stock"): 9.0,
    ("W2", 1, "fp32", "stock"): 5.0,
    ("W2", 1, "fp32", "ONNX Runtime"): 1.3,
    ("W2", 128, "fp32", "stock"): 1.2,
    ("W2", 128, "fp32", "ONNX Runtime"): 1.1,
    ("W2", 512, "fp32", "stock"): 1.1,
    ("W2", 1, "bf16", "stock"): 7.0,
    ("W2", 128, "bf16", "stock"): 2.1,
    ("W2", 128, "bf16", "OpenVINO bf16"): 1.2,
    ("W2", 512, "bf16", "stock"): 2.0,
    ("W2", 512, "bf16", "OpenVINO bf16"): 1.1,
    ("W2", 1, "int8", "ONNX Runtime"): 3.5,
    ("W2", 128, "int8", "OpenVINO bf16"): 2.4,
    ("W2", 128, "int8", "OpenVINO int8"): 1.3,
}
#: Limit of p99 divided by p50, relative to the same ratio of oneDNN alone.
TAIL = 1.25


def fuse(workload: str, precision: str, cache: Path, library: Path, user_inputs: Sequence[str] = ()) -> Path:
    """Optimize a workload with `graph-tools optimize`, with verification, and return the folder.

    With `user_inputs`, the user's side of the model is split from the items' side.

    Raises
    ------
    ProgramError
        If that failed; the message is its output.
    """
    target = cache / "fused" / f"{workload}-{precision}{'-split' if user_inputs else ''}"
    more = ["--user-inputs", ",".join(user_inputs)] if user_inputs else []
    return optimize(ensure_model(workload, cache), target, precision, library, more)


def optimize(model: Path, target: Path, precision: str, library: Path, more: Sequence[str] = ()) -> Path:
    """Run `graph-tools optimize` on a model, and return the folder; previous content is deleted.

    Raises
    ------
    ProgramError
        If that failed; the message is its output.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "graph_tools", "optimize", str(model), str(target)]
    command += ["--precision", precision, "--op-library", str(library), *more]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise ProgramError("graph-tools optimize", done.returncode, done.stdout + done.stderr)
    return target


def contestants(
    workload: str, rows: int, models: dict[str, Path], cache: Path, peers: bool, config: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the engines of one case in the format of `bench_serving --contestants`; the reference is first."""
    engines: list[dict[str, Any]] = [
        {"name": "stock", "engine": "stock", "model": str(ensure_model(workload, cache).resolve())}
    ]
    for precision, model in models.items():
        engines.append(
            {
                "name": precision,
                "engine": "processor",
                "model": str(model.resolve()),
                "config": config,
                "tolerance": TOLERANCES[precision],
            }
        )
    if workload == "W2" and peers:
        engines += [
            {
                "name": peer.name,
                "engine": "peer",
                "command": peer.command(ensure_peer_model(cache, peer.precision), rows),
                "tolerance": peer.tolerance,
            }
            for peer in PEERS
        ]
    return [*engines, {"name": BARE, "engine": "onednn", "widths": WIDTHS, "rows": rows}]


def summarize(workload: str, rows: int, output: dict[str, Any]) -> dict[str, Any]:
    """Convert the output of one run of the program to one case of the results.

    Returns
    -------
    case : dict
        `engines`: for each name the medians over the rounds, the largest difference from stock's scores, the rounds.
    """
    engines = engine_medians(output)
    for engine in engines.values():
        engine["tail"] = median(turn["p99_us"] / turn["p50_us"] for turn in engine["rounds"])
    return {
        "workload": workload,
        "rows": rows,
        "threads": output["threads"],
        "distinct_requests": output["distinct_requests"],
        "weights": output["weights"],
        "engines": engines,
    }


def judge(cases: Sequence[dict[str, Any]]) -> list[Target]:
    """Compare the cases with the targets: ratios of requests/s, and the tail latency relative to oneDNN alone."""
    found = {(case["workload"], case["rows"]): case["engines"] for case in cases}
    targets = []
    for (workload, rows, precision, other), limit in TARGETS.items():
        engines = found.get((workload, rows), {})
        if precision in engines and other in engines:
            ratio = engines[precision]["requests_per_s"] / engines[other]["requests_per_s"]
            name = f"{workload} at {_rows(rows)}, {precision}, requests/s over {other}"
            targets.append(Target(name, round(ratio, 4), limit, at_least=True))
    for (workload, rows), engines in found.items():
        for precision in PRECISIONS:
            if precision in engines and BARE in engines:
                ratio = engines[precision]["tail"] / engines[BARE]["tail"]
                name = f"{workload} at {_rows(rows)}, {precision}, p99/p50 over that of {BARE}"
                targets.append(Target(name, round(ratio, 4), TAIL, at_least=False))
    return targets


def _rows(rows: int) -> str:
    return f"{rows} row{'s' if rows > 1 else ''}"


def _table(cases: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="Fused models (codec included) and other engines (inputs prepared as tensors)")
    for heading in ("workload", "rows", "engine"):
        table.add_column(heading)
    for heading in ("requests/s", "over stock", "p50 ms", "p99 ms", "p99/p50", "CPU s/1,000", "max |Δ|"):
        table.add_column(heading, justify="right", no_wrap=True)
    for case in cases:
        stock = case["engines"]["stock"]["requests_per_s"]
        for number, (name, engine) in enumerate(case["engines"].items()):
            ours = name in PRECISIONS
            table.add_row(
                case["workload"] if number == 0 else "",
                str(case["rows"]) if number == 0 else "",
                f"[bold]fused, {name}[/]" if ours else name,
                f"{engine['requests_per_s']:,.0f}",
                f"{engine['requests_per_s'] / stock:.2f}",
                f"{engine['p50_us'] / 1000:.3f}",
                f"{engine['p99_us'] / 1000:.3f}",
                f"{engine['tail']:.2f}",
                f"{engine['cpu_s_per_1000']:.3f}",
                "" if name in ("stock", BARE) else f"{engine['max_abs_difference']:.1e}",
                end_section=number + 1 == len(case["engines"]),
            )
    return table


def loaded_precisions(models: dict[str, dict[str, Path]], library: Path) -> dict[str, Any]:
    """Return the precisions of each model's towers, as reported by the library."""
    code = (
        "import json, sys, processor\n"
        "model = processor.Model(sys.argv[1], config={'session_num': 1, 'intra_op_parallelism_threads': 1})\n"
        "info = model.info\n"
        "print(json.dumps({k: info[k] for k in ('precision', 'precision_reason')}))\n"
    )
    answers = {}
    for workload, by_precision in models.items():
        for precision, model in by_precision.items():
            done = subprocess.run(
                [sys.executable, "-c", code, str(model)],
                capture_output=True,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PROCESSOR_LIBRARY": str(library)},
            )
            if done.returncode:
                raise ProgramError("processor", done.returncode, done.stderr)
            answers[f"{workload} {precision}"] = json.loads(done.stdout.splitlines()[-1])
    return answers


def _measure(options: argparse.Namespace, console: Console) -> Measured:
    cases: list[dict[str, Any]] = []
    models: dict[str, dict[str, Path]] = {}
    for workload in options.workloads:
        models[workload] = {}
        for precision in options.precisions:
            console.print(f"Optimizing {workload}, {precision}")
            models[workload][precision] = fuse(workload, precision, options.cache, options.library)
    precisions = loaded_precisions(models, options.library)
    config = default_config(usable_cpus())
    for workload in options.workloads:
        for rows in options.rows:
            console.print(f"Measuring {workload} at {_rows(rows)}")
            requests = ensure_requests(options.cache / "requests", workload, rows, "eas")
            engines = contestants(workload, rows, models[workload], options.cache, not options.no_peers, config)
            output = measure_engines(options, requests, contestants=engines, weights=WORKLOADS[workload].weights)
            cases.append(summarize(workload, rows, output))
    notes = [f"  {name}: {chosen['precision']}; {chosen['precision_reason']}" for name, chosen in precisions.items()]
    return Measured(cases, _table(cases), judge(cases), {"precisions": precisions}, notes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, and return its exit status."""
    parser = BenchmarkParser(
        "bench_fused", "Measure fused models against stock TensorFlow and other engines.", rounds=5, seconds=2
    )
    parser.add_argument("--workloads", nargs="+", choices=("W1", "W2"), default=["W1", "W2"], help="workloads")
    parser.add_argument("--rows", nargs="+", type=int, help=f"batch sizes (default {' '.join(map(str, ROWS))})")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS), help="precisions")
    parser.add_argument("--no-peers", action="store_true", help="do not measure ONNX Runtime and OpenVINO")
    parser.add_threads()
    parser.add_programs()
    options = parser.parse(arguments)
    options.rows = options.rows or ([1, 16] if options.quick else list(ROWS))
    return run_benchmark("fused", options, _measure)


if __name__ == "__main__":
    sys.exit(main())
