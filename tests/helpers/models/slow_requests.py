# SPDX-License-Identifier: Apache-2.0
"""Create requests to `model_builders.build_slow` with a given duration."""

from __future__ import annotations

import time

import numpy as np

from helpers.hosts.contract_messages import encode
from processor import Model

ENDLESS = 10**7  # loops of a millisecond


def loops_for(model: Model, seconds: float) -> int:
    """Return how many loops take at least about `seconds` on this machine."""

    def run(loops: int) -> float:
        begin = time.monotonic()
        model.run({"x": [0.0], "loops": loops})
        return time.monotonic() - begin

    run(1)  # the first request initializes state that later ones use
    # A busy machine makes a run longer, never shorter: the shortest run shows the cost of a loop.
    return max(int(20 * seconds / min(run(20) for _ in range(5))), 1)


def slow_request(loops: int) -> bytes:
    """Return a request for `build_slow` that runs this many loops."""
    return encode({"x": np.zeros(1, np.float32), "loops": np.int32(loops)})
