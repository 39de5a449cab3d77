# SPDX-License-Identifier: Apache-2.0
"""Measure W2 compiled ahead of time by TensorFlow's own `saved_model_cli aot_compile_cpu`, against stock and fused.

    python -m load_tests.bench_aot [--rows 16]

Exports W2 with its batch fixed, compiles it, links it with the runtime sources that TensorFlow's package holds (a C++
compiler is needed), compares its scores with stock TensorFlow's, and measures all on one thread. The fused model goes
through the same compiler; what that says stands in the results. Writes results/bench_aot.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from rich.markup import escape
from rich.table import Table

from load_tests._environment import describe_environment
from load_tests._programs import ROOT, ProgramError, find_library, find_program, run_program
from load_tests._report import make_console, write_results
from load_tests.bench_fused import FIGURES, fuse
from load_tests.bench_serving import default_config
from load_tests.request_files import ensure_requests
from load_tests.workloads import ensure_model

__all__ = ["main", "refusal"]

_HERE = Path(__file__).with_name("aot")
#: Of the runtime: what a model of products and lookups calls.
_RUNTIME = (
    "tensorflow/compiler/tf2xla/allocator.cc",
    "tensorflow/compiler/tf2xla/xla_compiled_cpu_function.cc",
    "xla/backends/cpu/runtime/dot_lib_f32.cc",
    "xla/executable_run_options.cc",
    "xla/service/custom_call_status.cc",
    "xla/tsl/concurrency/async_value.cc",
    "xla/tsl/concurrency/async_value_ref.cc",
    "xla/tsl/framework/contraction/eigen_contraction_kernel.cc",
)
# The tool itself, in a process that knows the operations of a fused model.
_COMPILE = (
    "import sys, tensorflow as tf\n"
    "library = sys.argv.pop(1)\n"
    "if library: tf.load_op_library(library)\n"
    "from tensorflow.python.tools import saved_model_cli\n"
    "saved_model_cli.main()\n"
)


def _run(name: str, command: Sequence[str | Path], timeout: float = 500) -> str:
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ}
    try:
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, cwd=ROOT, env=environment, timeout=timeout
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProgramError(name, 1, str(error)) from error
    if done.returncode:
        raise ProgramError(name, done.returncode, done.stderr)
    return done.stdout


def refusal(error: ProgramError) -> str:
    """Answer the line of an error that says what was wrong."""
    if found := re.search(r"No registered '[^']+' OpKernel for \w+", str(error)):
        return found[0]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"Error|not registered|unsupported|XLA", line, re.IGNORECASE)]
    return (telling or lines)[-1][:300]


def _compile(source: Path, folder: Path, rows: int, op_library: Path | None) -> None:
    """Make `folder/compiled.*` of a model."""
    library = str(op_library) if op_library else ""
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "load_tests.aot.export_fixed",
        source.resolve(),
        folder / "model",
        str(rows),
    ]
    _run("export_fixed", [*command, *([library] if library else [])])
    command = [
        sys.executable,
        "-c",
        _COMPILE,
        library,
        "aot_compile_cpu",
        "--dir",
        folder / "model",
        "--tag_set",
        "serve",
    ]
    command += ["--signature_def_key", "serving_default", "--output_prefix", folder / "compiled"]
    _run("saved_model_cli aot_compile_cpu", [*command, "--cpp_class", "Compiled"])


def _link(folder: Path, compiler: str) -> Path:
    """Make the program that runs the compiled model."""
    found = find_spec("tensorflow")
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    program = folder / "harness"
    command: list[str | Path] = [compiler, "-O2", "-march=native", "-std=c++17", "-w", f"-I{folder}"]
    command += [f"-I{package / 'include'}", f"-I{package / 'xla_aot_runtime_src'}", _HERE / "harness.cc"]
    command += [package / "xla_aot_runtime_src" / name for name in _RUNTIME]
    command += [folder / f"compiled{part}.o" for part in ("", "_constants", "_metadata")]
    command += [f"-L{package}", f"-Wl,-rpath,{package}", "-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
    _run(compiler, [*command, "-lpthread", "-o", program])
    return program


def _compiled(options: argparse.Namespace, model: Path, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    _compile(model, folder, options.rows, None)
    program = _link(folder, options.compiler)
    inputs = [folder / "model" / "inputs.bin", folder / "model" / "answers.bin"]
    output: dict[str, Any] = json.loads(
        _run("harness", [*_one_cpu(), program, *inputs, str(options.rounds), str(options.seconds)])
    )
    return output


def _one_cpu() -> tuple[str, ...]:
    """Answer what holds a program to one CPU: the pools of stock TensorFlow have a thread for each."""
    return ("taskset", "-c", str(min(os.sched_getaffinity(0))))


def _others(options: argparse.Namespace, fused: Path) -> list[dict[str, Any]]:
    """Measure stock TensorFlow and the fused model on one thread, in turns."""
    engines = [
        {"name": "stock", "engine": "stock", "model": str(ensure_model("W2", options.cache).resolve())},
        {"name": "fused", "engine": "processor", "model": str(fused.resolve()), "config": default_config(1)},
    ]
    output = run_program(
        find_program("bench_serving", options.bench_dir),
        {
            "requests": ensure_requests(options.cache / "requests", "W2", options.rows, "eas"),
            "protocol": "eas",
            "library": find_library(options.library),
            "contestants": json.dumps(engines),
            "threads": 1,
            "seconds": options.seconds,
            "warmup": 0.5,
            "rounds": options.rounds,
        },
        prefix=_one_cpu(),
    )
    return list(output["engines"])


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure W2 compiled ahead of time.")
    parser.add_argument("--rows", type=int, default=16, help="of the fixed batch (default 16)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round")
    parser.add_argument("--compiler", default=os.environ.get("CXX", "g++"))
    parser.add_argument("--bench-dir", type=Path, help="folder of the program bench_serving")
    parser.add_argument("--library", type=Path, help="libprocessor.so")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "workloads", help="where models are kept")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "bench_aot.json")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, measure, print and write; answer 1 if stock's model cannot be compiled or answers differ."""
    options = _parse(arguments)
    console = make_console()
    environment = describe_environment(ROOT)
    refused = []
    try:
        fused = fuse("W2", "fp32", options.cache, find_library(options.library))
        with tempfile.TemporaryDirectory() as name:
            console.print("Compiling W2 ahead of time")
            measured = _compiled(options, ensure_model("W2", options.cache), Path(name) / "stock")
            console.print("Asking the compiler for the fused W2")
            try:
                (Path(name) / "fused").mkdir()
                _compile(fused, Path(name) / "fused", options.rows, find_library(options.library))
                refused.append("fused W2: it was compiled, and not measured")
            except ProgramError as error:
                refused.append(f"the fused W2 is refused by the compiler: {refusal(error)}")
        engines = [*_others(options, fused), {"engine": "stock, compiled ahead of time", **measured}]
    except (ProgramError, FileNotFoundError) as error:
        console.print(f"[bold red]The run failed:[/] {escape(str(error))}")
        return 1
    table = Table(title=f"W2 at {options.rows} rows on one CPU")
    for heading in ("engine", "requests/s", "p50 ms", "p99 ms", "CPU s/1,000", "max |Δ|"):
        table.add_column(heading, justify="right")
    found = {}
    for one in engines:
        figures = {name: median(each[name] for each in one["rounds"]) for name in FIGURES}
        found[one["engine"]] = {**figures, "max_abs_difference": one["max_abs_difference"], "rounds": one["rounds"]}
        table.add_row(
            one["engine"],
            f"{figures['requests_per_s']:,.0f}",
            *(f"{figures[name] / 1000:.3f}" for name in ("p50_us", "p99_us")),
            f"{figures['cpu_s_per_1000']:.3f}",
            f"{one['max_abs_difference']:.1e}",
        )
    console.print(table)
    for line in refused:
        console.print(f"  {escape(line)}")
    settings = {name: getattr(options, name) for name in ("rows", "rounds", "seconds", "compiler")}
    results = {"benchmark": "aot", "quick": False, "environment": environment, "settings": settings}
    write_results(options.output, results | {"engines": found, "refused": refused})
    console.print(f"Written to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
