# SPDX-License-Identifier: Apache-2.0
"""Measure the baseline of the comparison: TensorFlow's C++ Session::Run with default options."""

from __future__ import annotations

import json
from pathlib import Path

from demo.measure import ServingError, Timing, median, megabytes, run_tool
from demo.workload import Workload


class Stock:
    """Run the stock engine of the serving benchmark, which reads its requests before it measures."""

    name = "TensorFlow (C++)"
    key = "tensorflow"

    def __init__(self, program: Path, model: Path) -> None:
        if not program.is_file():
            raise ServingError(f"{program}: not found; run `make build` first")
        self._program, self._model, self.megabytes = program, model, megabytes(model)

    def measure(self, work: Workload, threads: int, seconds: float) -> Timing:
        command = [str(self._program), "--engine", "stock", "--protocol", "tfserving", "--model", str(self._model)]
        command += ["--requests", str(work.timed_file), "--threads", str(threads), "--seconds", str(seconds)]
        command += ["--warmup", "0.2", "--rounds", "1"]
        engine = json.loads(run_tool("TensorFlow", command))["engines"][0]
        return median([Timing(*(float(found[key]) for key in _KEYS)) for found in engine["rounds"]])


_KEYS = ("requests_per_s", "p50_us", "p99_us")
