# SPDX-License-Identifier: Apache-2.0
"""Serve the model from Python: processor.Model in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demo.measure import TOLERANCE, ServingError, Timing, closed_loop, in_order, megabytes
from demo.workload import TIMED, Workload


class PythonHost:
    """Send NumPy arrays and receive NumPy arrays."""

    name = "libprocessor, Python"
    short = "Python"
    key = "python"
    tolerance = TOLERANCE

    def __init__(self, model: Any, output: str, size: float) -> None:
        self.megabytes = size
        self._model, self._output = model, output

    def scores(self, work: Workload) -> NDArray[np.float32]:
        return in_order(lambda features: np.asarray(self._model.run(features)[self._output]), work.inputs)

    def measure(self, work: Workload, threads: int, seconds: float) -> Timing:
        run, inputs = self._model.run, work.inputs[:TIMED]
        return closed_loop(lambda number: run(inputs[number]), len(inputs), threads, seconds)


@contextmanager
def python_host(model: Path, config: Mapping[str, Any], output: str) -> Iterator[PythonHost]:
    """Load the model into this process, and close it at the end."""
    import processor

    try:
        with processor.Model(model, config=dict(config)) as loaded:
            yield PythonHost(loaded, output, megabytes(model))
    except processor.ProcessorError as error:
        raise ServingError(f"processor.Model: {error}") from error
