# SPDX-License-Identifier: Apache-2.0
import os
import time

import pytest

from load_tests.cost_model.interference import Copying, fit_bandwidth


def test_coefficient_is_that_of_the_slow_down_beyond_the_knee() -> None:
    points = [(traffic, 0.5 * max(0.0, traffic / 100 - 0.6) / 0.4) for traffic in (20.0, 50.0, 70.0, 90.0)]
    assert fit_bandwidth(points, 100.0, 0.6) == pytest.approx(0.5)
    assert fit_bandwidth(points[:2], 100.0, 0.6) is None, "nothing was beyond the knee"
    assert fit_bandwidth([(90.0, -0.1)], 100.0, 0.6) == 0.0


def test_pace_sets_the_traffic() -> None:
    cpu = min(os.sched_getaffinity(0))

    def rate(pace: float) -> float:
        with Copying([cpu], pace) as copying:
            time.sleep(0.5)
            return copying.rate()

    # Other programs may take the CPU from one of the two.
    assert any(0 < rate(0.3) < rate(1.0) for _ in range(10))
