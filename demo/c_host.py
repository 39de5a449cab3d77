# SPDX-License-Identifier: Apache-2.0
"""Serve the model from C: the example host is compiled here and runs as a separate program."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demo import wire
from demo.measure import TOLERANCE, ServingError, Timing, megabytes, run_tool
from demo.workload import Workload


def compile_host(root: Path, library: Path, folder: Path) -> Path:
    """Compile libprocessor/examples/c against the library into `folder`, and return the path of the program."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "host"
    # The options of an outer make are not meant for this make.
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}
    command = ["make", "-C", str(root / "libprocessor" / "examples" / "c"), str(program), f"OUT={folder}"]
    command += [f"PROCESSOR_CFLAGS=-I{root / 'libprocessor' / 'include'}", f"PROCESSOR_LIBDIR={library.parent}"]
    run_tool("C compiler", command, env=environment)
    return program


class CHost:
    """Start the host once per call: it loads the model, and runs a file of requests or its timing loop."""

    name = "libprocessor, C"
    short = "C"
    key = "c"
    tolerance = TOLERANCE

    def __init__(self, program: Path, model: Path, config: Mapping[str, Any], output: str) -> None:
        self.megabytes = megabytes(model)
        self._command = [str(program), str(model), "--protocol", "tfserving", "--config", json.dumps(config), "--json"]
        self._output = output

    def scores(self, work: Workload) -> NDArray[np.float32]:
        answers = work.file.with_suffix(".answers")
        run_tool("C host", [*self._command, "--requests", str(work.file), "--output", str(answers), "--seconds", "0"])
        found = wire.read_framed(answers)
        answers.unlink()
        if len(found) != len(work.messages):
            raise ServingError(f"C host: found {len(found)} answers, expected {len(work.messages)}")
        return np.concatenate([wire.decode_response(answer, self._output) for answer in found])

    def measure(self, work: Workload, threads: int, seconds: float) -> Timing:
        loop = ["--requests", str(work.timed_file), "--threads", str(threads), "--seconds", str(seconds)]
        found = json.loads(run_tool("C host", [*self._command, *loop]))
        latency = found["latency_us"]
        return Timing(float(found["requests_per_second"]), float(latency["p50"]), float(latency["p99"]))
