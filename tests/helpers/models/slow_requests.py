# SPDX-License-Identifier: Apache-2.0
"""Requests to `model_builders.build_slow`, and how long they take."""

from __future__ import annotations

import time

import numpy as np

from helpers.hosts.contract_messages import encode
from processor import Model


def loops_for(model: Model, seconds: float) -> int:
    """Return how many loops take at least about so long on this machine."""

    def run(loops: int) -> float:
        begin = time.monotonic()
        model.run({"x": [0.0], "loops": loops})
        return time.monotonic() - begin

    run(1)  # the first request makes what later ones find
    # A busy machine makes a run longer, never shorter: the shortest one says what a loop costs.
    return max(int(20 * seconds / min(run(20) for _ in range(5))), 1)


def slow_request(loops: int) -> bytes:
    """Return a request for `slow_model` that takes about so many milliseconds."""
    return encode({"x": np.zeros(1, np.float32), "loops": np.int32(loops)})
