# SPDX-License-Identifier: Apache-2.0
"""Call a host in this process; each of its models multiplies by a different number."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import processor
from helpers.hosts.contract_messages import decode, encode
from helpers.models import model_builders
from helpers.system.background import Background
from helpers.system.waiting import wait_until

X = np.array([[1.0, 2.0, 3.0]], np.float32)
ONE = encode({"x": X})
# One request at a time, so that tests can let other requests wait.
QUICK = {
    "intra_op_parallelism_threads": 1,
    "inter_op_parallelism_threads": 1,
    "warmup_runs": 1,
    "worker_threads": 1,
}


def build_scaled(folder: Path) -> dict[int, Path]:
    """Export models that multiply by 1, 2 and 3, and return their paths by that number."""
    return {scale: model_builders.build_linear(folder / f"scale{scale}", float(scale)) for scale in (1, 2, 3)}


def scale_of(answer: processor.Answer) -> float:
    """Return the factor of the version that served the request."""
    return float(decode(answer.data)["y"][0, 0] / model_builders.linear_score(X)[0, 0])


class Clients(Background):
    """Run threads that send requests without a pause, and record every failure."""

    def __init__(self, host: processor.Host, number: int = 4, **request: Any) -> None:
        self.answers: list[list[processor.Answer]] = [[] for _ in range(number)]
        self.failures: list[Exception] = []
        super().__init__(*(partial(self._send, host, index, request) for index in range(number)))

    def _send(self, host: processor.Host, index: int, request: dict[str, Any], ended: threading.Event) -> None:
        while not ended.is_set():
            try:
                self.answers[index].append(host.process("eas", ONE, **request))
            except Exception as failure:
                self.failures.append(failure)
            time.sleep(0.0005)

    def wait_for_more(self, number: int = 20) -> None:
        counts = [len(answers) for answers in self.answers]
        wait_until(
            lambda: all(len(a) >= n + number for a, n in zip(self.answers, counts, strict=True)),
            "answers of every client",
        )
