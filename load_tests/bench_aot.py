# SPDX-License-Identifier: Apache-2.0
"""Measure W2 compiled ahead of time by TensorFlow's own `saved_model_cli aot_compile_cpu`, against stock and fused.

    python -m load_tests.bench_aot                            # the figures: six minutes
    python -m load_tests.bench_aot --parts dense --rows 16    # one case

Two graphs are measured, each at fixed batch sizes and on one CPU: the whole model, and only its part after the lookups,
split where inference graphs are split. Each is compiled and linked with the runtime sources of TensorFlow's package (a
C++ compiler is needed). It is measured in turns with stock TensorFlow and the fused model, after all scores were
compared with stock TensorFlow's. The fused model is passed to the same compiler; the compiler's message is in the
results. Writes results/bench_aot.json.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from load_tests._benchmark import measure_engines
from load_tests._environment import describe_environment, usable_cpus
from load_tests._programs import ROOT, ProgramError, find_library, find_program
from load_tests._report import make_console, write_results
from load_tests.bench_fused import optimize, summarize
from load_tests.bench_serving import default_config
from load_tests.workloads import ensure_model

__all__ = ["COMPILED", "FUSED", "main", "refusal"]

#: Batch sizes that are measured; building a program that contains the tables takes a minute.
ROWS = {"dense": (1, 16, 128), "whole": (16,)}
COMPILED, FUSED, FUSED_COMPILED = "stock, compiled ahead of time", "fused", "fused, compiled ahead of time"
_HERE = Path(__file__).with_name("aot")
#: Sources of the runtime that a model of products and lookups calls.
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
# The tool itself, in a process that has loaded the operations of a fused model.
_COMPILE = (
    "import sys, tensorflow as tf\n"
    "library = sys.argv.pop(1)\n"
    "if library: tf.load_op_library(library)\n"
    "from tensorflow.python.tools import saved_model_cli\n"
    "saved_model_cli.main()\n"
)


def _run(name: str, command: Sequence[str | Path], timeout: float = 300) -> str:
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
    """Return the line of an error that contains the reason."""
    if found := re.search(r"No registered '[^']+' OpKernel for \w+", str(error)):
        return found[0]
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"Error|not registered|unsupported|XLA", line, re.IGNORECASE)]
    return (telling or lines)[-1][:300]


def _this_cpu(compiler: str) -> str:
    """Return the C++ compiler's name of this CPU; LLVM, with which XLA compiles, uses the same names."""
    flags = _run(compiler, [compiler, "-march=native", "-Q", "--help=target"])
    found = re.search(r"^\s*-march=\s+(\S+)", flags, re.MULTILINE)
    return found[1] if found else ""


def _export(source: Path, folder: Path, rows: int, part: str, op_library: Path | None = None) -> None:
    command: list[str | Path] = [sys.executable, "-m", "load_tests.aot.export_fixed", source.resolve(), folder]
    command += [str(rows), "--part", part]
    if op_library:
        command += ["--op-library", op_library]
    _run("export_fixed", command)


def _package() -> Path:
    found = find_spec("tensorflow")
    if found is None or found.origin is None:
        raise FileNotFoundError("tensorflow: not installed, expected it in this environment")
    return Path(found.origin).parent


def _flags(compiler: str) -> list[str | Path]:
    sources = _package() / "xla_aot_runtime_src"
    return [compiler, "-O2", "-march=native", "-std=c++17", "-w", f"-I{_package() / 'include'}", f"-I{sources}"]


def _build_runtime(folder: Path, compiler: str) -> list[Path]:
    """Compile the objects that every compiled model is linked with, once: it takes almost a minute."""

    def build(name: str) -> Path:
        target = folder / f"{Path(name).stem}.o"
        _run(compiler, [*_flags(compiler), "-c", _package() / "xla_aot_runtime_src" / name, "-o", target])
        return target

    with ThreadPoolExecutor(usable_cpus()) as pool:
        return list(pool.map(build, _RUNTIME))


def _compile(folder: Path, compiler: str, runtime: Sequence[Path], op_library: Path | None = None) -> Path:
    """Build the program that runs the compiled `fixed`."""
    command: list[str | Path] = [sys.executable, "-c", _COMPILE, str(op_library or ""), "aot_compile_cpu"]
    command += ["--dir", folder / "fixed", "--tag_set", "serve", "--signature_def_key", "serving_default"]
    command += ["--target_cpu", _this_cpu(compiler), "--output_prefix", folder / "compiled", "--cpp_class", "Compiled"]
    _run("saved_model_cli aot_compile_cpu", command)
    program = folder / "harness"
    command = [*_flags(compiler), f"-I{folder}", _HERE / "harness.cc", *runtime]
    command += [folder / f"compiled{part}.o" for part in ("", "_constants", "_metadata")]
    command += [f"-L{_package()}", f"-Wl,-rpath,{_package()}"]
    command += ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2", "-lpthread", "-o", program]
    _run(compiler, command)
    return program


def _peer(name: str, folder: Path, program: Path) -> dict[str, Any]:
    names = (folder / "names.txt").read_text()
    return {"name": name, "engine": "peer", "command": [str(program), str(folder / "inputs.bin"), names, "prob"]}


def _one_cpu() -> tuple[str, ...]:
    """Return the command that limits a program to one CPU; stock TensorFlow's pools have one thread per CPU."""
    return ("taskset", "-c", str(min(os.sched_getaffinity(0))))


def _measure(
    options: argparse.Namespace,
    part: str,
    rows: int,
    folder: Path,
    runtime: Sequence[Path],
    refused: dict[str, str],
) -> dict[str, Any]:
    """Compile one part at one batch size, and measure all engines in turns."""
    library, whole = options.library, ensure_model("W2", options.cache)
    here = folder / f"{part}-{rows}"
    _export(whole, here, rows, part)
    model = whole if part == "whole" else here / "model"
    fused = optimize(model, folder / f"{part}-{rows}-fused", "fp32", library)
    engines: list[dict[str, Any]] = [
        {"name": "stock", "engine": "stock", "model": str(model.resolve())},
        _peer(COMPILED, here, _compile(here, options.compiler, runtime)),
        {"name": FUSED, "engine": "processor", "model": str(fused), "config": default_config(1)},
    ]
    # Its signature is that of W2, which the export of the whole model reads.
    if part == "whole" and FUSED_COMPILED not in refused:
        there = folder / "fused-compiled"
        try:
            _export(fused, there, rows, "whole", library)
            engines.append(_peer(FUSED_COMPILED, there, _compile(there, options.compiler, runtime, library)))
        except ProgramError as error:
            refused[FUSED_COMPILED] = refusal(error)
    output = measure_engines(
        options,
        here / "requests.bin",
        prefix=_one_cpu(),
        contestants=engines,
        threads=1,
        warmup=options.seconds / 4,
    )
    return {"part": part, **summarize("W2", rows, output)}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure W2 compiled ahead of time.")
    parser.add_argument("--rows", type=int, nargs="+", help="batch sizes (default 1 16 128; for the whole model 16)")
    parser.add_argument("--parts", nargs="+", choices=tuple(ROWS), default=list(ROWS), help="parts of the model")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds of each engine")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a round in seconds")
    parser.add_argument("--compiler", default=os.environ.get("CXX", "g++"), help="C++ compiler")
    parser.add_argument("--bench-dir", type=Path, help="folder of the program bench_serving")
    parser.add_argument("--library", type=Path, help="path of libprocessor.so")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "workloads", help="folder of the cached models")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "bench_aot.json", help="file of the results")
    return parser.parse_args(arguments)


def _table(cases: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="W2 on one CPU, and the dense part of it")
    for heading in ("graph", "rows", "engine"):
        table.add_column(heading)
    for heading in ("requests/s", "over stock", "p50 ms", "p99 ms", "CPU s/1,000", "max |Δ|"):
        table.add_column(heading, justify="right", no_wrap=True)
    for case in cases:
        stock = case["engines"]["stock"]["requests_per_s"]
        for number, (name, engine) in enumerate(case["engines"].items()):
            table.add_row(
                case["part"] if number == 0 else "",
                str(case["rows"]) if number == 0 else "",
                name,
                f"{engine['requests_per_s']:,.0f}",
                f"{engine['requests_per_s'] / stock:.2f}",
                *(f"{engine[figure] / 1000:.3f}" for figure in ("p50_us", "p99_us")),
                f"{engine['cpu_s_per_1000']:.3f}",
                "" if name == "stock" else f"{engine['max_abs_difference']:.1e}",
                end_section=number + 1 == len(case["engines"]),
            )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile, measure, print and write; return 1 if stock's model cannot be compiled or outputs differ."""
    options = _parse(arguments)
    console = make_console()
    environment = describe_environment(ROOT)
    refused: dict[str, str] = {}
    cases = []
    try:
        options.program = find_program("bench_serving", options.bench_dir)
        options.library = find_library(options.library)
        with tempfile.TemporaryDirectory() as shared:
            console.print("Compiling TensorFlow's runtime for compiled models")
            runtime = _build_runtime(Path(shared), options.compiler)
            for part in options.parts:
                for rows in options.rows or ROWS[part]:
                    console.print(f"Compiling and measuring: {part}, rows: {rows}")
                    with tempfile.TemporaryDirectory() as name:
                        cases.append(_measure(options, part, rows, Path(name), runtime, refused))
    except (ProgramError, FileNotFoundError) as error:
        console.print(f"[bold red]The run failed:[/] {escape(str(error))}", soft_wrap=True)
        return 1
    console.print(_table(cases))
    for name, reason in refused.items():
        console.print(f"  {name}: refused by the compiler: {escape(reason)}")
    settings = {name: getattr(options, name) for name in ("rounds", "seconds", "compiler")}
    settings["target_cpu"] = _this_cpu(options.compiler)
    results = {"benchmark": "aot", "quick": False, "environment": environment, "settings": settings}
    write_results(options.output, results | {"cases": cases, "refused": refused})
    console.print(f"Written to {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
