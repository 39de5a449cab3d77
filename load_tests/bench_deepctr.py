# SPDX-License-Identifier: Apache-2.0
"""Measure well-known architectures, from DeepCTR through Keras 2, fused against stock TensorFlow.

    python -m load_tests.bench_deepctr            # the figures: about eight minutes
    python -m load_tests.bench_deepctr --quick    # checks outputs and the program only

Trains and exports the models and optimizes each with `graph-tools optimize`, by default in fp32. `bench_serving` then
sends the same requests to all in turns. Prints a table and writes results/bench_deepctr.json.
docs/benchmarks/fused_models.md explains it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from load_tests._benchmark import BenchmarkParser, Measured, engine_medians, measure_engines, run_benchmark
from load_tests._environment import usable_cpus
from load_tests._programs import ROOT, ProgramError
from load_tests._report import Target
from load_tests.bench_fused import PRECISIONS, TOLERANCES, optimize
from load_tests.bench_serving import default_config
from load_tests.request_files import encode_request, write_requests
from load_tests.workloads import ensure_deepctr_models

__all__ = ["MODELS", "inputs_of", "judge", "main", "summarize"]

#: Models in the printed table; `make_deepctr.py` describes them.
MODELS = ("DeepFM", "DCN", "xDeepFM", "AutoInt", "DIN", "BST", "MMOE", "PLE")
ROWS = (1, 128)
REQUESTS = 64
FIGURES = ("requests_per_s", "p50_us", "p99_us", "cpu_s_per_1000")

# Ids are below these; a history contains 0 after its length.
_SIZES = {
    "C0": 100,
    "C1": 200,
    "C2": 300,
    "C3": 400,
    "hist": 60,
    "user": 300,
    "gender": 3,
    "item_id": 500,
    "cate_id": 40,
}
_DTYPES = {"DT_FLOAT": np.float32, "DT_INT32": np.int32, "DT_INT64": np.int64}


def inputs_of(specs: Sequence[dict[str, Any]], rows: int, random: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    """Generate the inputs of one request.

    Parameters
    ----------
    specs : sequence of dict
        The inputs of the signature: `name`, `dtype` (for example "DT_FLOAT"), `shape`.
    rows : int
    random : numpy.random.Generator

    Returns
    -------
    inputs : dict
        By name, each with `rows` rows.
    """
    inputs: dict[str, npt.NDArray[Any]] = {}
    lengths = random.integers(1, 21, rows)
    for spec in specs:
        name, shape = spec["name"], (rows, *spec["shape"][1:])
        if spec["dtype"] == "DT_STRING":
            words = [b"city %d" % number for number in random.integers(0, 40, rows)]
            inputs[name] = np.array(words, object).reshape(shape)
            continue
        if name == "seq_length":
            values: npt.NDArray[Any] = lengths.reshape(shape)
        elif name.startswith("hist_"):
            ids = random.integers(1, _SIZES[name.removeprefix("hist_")] + 1, shape)
            values = ids * (np.arange(shape[1]) < lengths[:, None])
        elif name in _SIZES:
            values = random.integers(0, _SIZES[name], shape)
        else:
            values = random.standard_normal(shape)
        inputs[name] = values.astype(_DTYPES[spec["dtype"]])
    return inputs


def signature_of(model: Path, library: Path) -> list[dict[str, Any]]:
    """Return the inputs of a model's default signature, read through the library, in the format of `inputs_of`."""
    code = (
        "import json, sys, processor\n"
        "model = processor.Model(sys.argv[1], config={'session_num': 1})\n"
        "inputs = next(found for found in model.signatures.values() if found.is_default).inputs.values()\n"
        "print(json.dumps([{'name': spec.name, 'dtype': spec.type, 'shape': spec.shape} for spec in inputs]))\n"
    )
    environment = os.environ | {"PROCESSOR_LIBRARY": str(library)}
    command = [sys.executable, "-c", code, str(model)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    if done.returncode:
        raise ProgramError("processor", done.returncode, done.stderr)
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def summarize(model: str, rows: int, output: dict[str, Any]) -> dict[str, Any]:
    """Convert the output of one run of the program to one case of the results.

    Returns
    -------
    case : dict
        `engines`: for each name the medians over the rounds, and the rounds; `speedup`: fused requests/s over stock.
    """
    engines = engine_medians(output, FIGURES)
    speedup = engines["fused"]["requests_per_s"] / engines["stock"]["requests_per_s"]
    return {"model": model, "rows": rows, "speedup": round(speedup, 4), "engines": engines}


def judge(cases: Sequence[dict[str, Any]]) -> list[Target]:
    """Return the targets: no model may be slower than stock TensorFlow."""
    return [
        Target(
            f"{case['model']} at {case['rows']} row{'s' if case['rows'] > 1 else ''}, requests/s over stock",
            case["speedup"],
            1.0,
            at_least=True,
        )
        for case in cases
    ]


def _table(cases: Sequence[dict[str, Any]], precision: str) -> Table:
    table = Table(title=f"DeepCTR's models, fused in {precision}, beside stock TensorFlow")
    table.add_column("model")
    for heading in ("rows", "stock req/s", "fused req/s", "over stock", "p99 ms", "CPU s/1,000", "max |Δ|"):
        table.add_column(heading, justify="right", no_wrap=True)
    for number, case in enumerate(cases):
        stock, fused = case["engines"]["stock"], case["engines"]["fused"]
        first = number == 0 or cases[number - 1]["model"] != case["model"]
        table.add_row(
            case["model"] if first else "",
            str(case["rows"]),
            f"{stock['requests_per_s']:,.0f}",
            f"{fused['requests_per_s']:,.0f}",
            f"[bold]{case['speedup']:.2f}[/]",
            f"{fused['p99_us'] / 1000:.3f}",
            f"{fused['cpu_s_per_1000']:.3f}",
            f"{fused['max_abs_difference']:.1e}",
        )
    return table


def _measure(options: argparse.Namespace, console: Console) -> Measured:
    cases: list[dict[str, Any]] = []
    console.print("Training and exporting the models that are not in the cache")
    exported = ensure_deepctr_models(options.models, options.cache)
    for model in options.models:
        console.print(f"Optimizing and measuring {model}")
        source = exported / model
        fused = optimize(source, options.cache / "fused" / f"deepctr-{model}", options.precision, options.library)
        specs = signature_of(source, options.library)
        for rows in options.rows:
            random = np.random.default_rng([rows, *model.encode()])
            requests = options.cache / "requests" / f"deepctr-{model}-{rows}-eas.bin"
            write_requests(requests, (encode_request(inputs_of(specs, rows, random), "eas") for _ in range(REQUESTS)))
            engines = [
                {"name": "stock", "engine": "stock", "model": str(source.resolve())},
                {
                    "name": "fused",
                    "engine": "processor",
                    "model": str(fused.resolve()),
                    "config": default_config(usable_cpus()),
                    "tolerance": TOLERANCES[options.precision],
                },
            ]
            cases.append(summarize(model, rows, measure_engines(options, requests, contestants=engines)))
    return Measured(cases, _table(cases, options.precision), judge(cases))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, and return its exit status."""
    parser = BenchmarkParser(
        "bench_deepctr", "Measure DeepCTR's models, fused, against stock TensorFlow.", rounds=5, seconds=1
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="models")
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS), help="batch sizes (default 1 128)")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="precision of dense layers")
    parser.add_programs()
    return run_benchmark("deepctr", parser.parse(arguments), _measure)


if __name__ == "__main__":
    sys.exit(main())
