# SPDX-License-Identifier: Apache-2.0
"""Check the numbers and latencies that the closed loop of the demo reports."""

import sys
import threading
import time

import numpy as np
import pytest

from demo.measure import ServingError, Timing, closed_loop, in_order, median, run_tool


def test_closed_loop_measures_a_known_latency() -> None:
    sent: list[int] = []
    began = time.monotonic()
    timing = closed_loop(lambda number: (sent.append(number), time.sleep(0.01)), requests=5, threads=2, seconds=0.4)
    took = time.monotonic() - began
    # Each client begins at a place of its own; a busy machine may leave no time for more.
    assert {0, 2} <= set(sent) <= set(range(5))
    assert 10_000 <= timing.p50_us <= timing.p99_us
    # The time begins before the first request and ends after the last one, each of which takes at least 10 ms.
    assert 0 < timing.requests_per_s <= 200
    assert len(sent) / took <= timing.requests_per_s <= len(sent) / 0.4


def test_closed_loop_uses_as_many_threads_as_asked() -> None:
    together = threading.Barrier(3)
    timing = closed_loop(lambda number: together.wait(timeout=60), requests=1, threads=3, seconds=0.0)
    assert timing.requests_per_s > 0


def test_closed_loop_raises_the_error_of_a_client() -> None:
    def send(number: int) -> None:
        raise ServingError("refused")

    with pytest.raises(ServingError, match="refused"):
        closed_loop(send, requests=1, threads=2, seconds=0.1)


def test_median_is_taken_per_figure() -> None:
    assert median([Timing(1.0, 30.0, 5.0), Timing(3.0, 10.0, 4.0), Timing(2.0, 20.0, 6.0)]) == Timing(2.0, 20.0, 5.0)


def test_in_order_keeps_the_order() -> None:
    found = in_order(lambda number: (time.sleep(0.001 * (number % 3)), np.full(2, number, np.float32))[1], range(20))
    assert found.tolist() == [number for number in range(20) for _ in range(2)]


def test_run_tool_returns_standard_output() -> None:
    assert run_tool("python", [sys.executable, "-c", "print('fine')"]) == "fine\n"


def test_run_tool_reports_a_failure() -> None:
    with pytest.raises(ServingError, match=r"thing: .* ended with status 3\nbroken"):
        run_tool("thing", [sys.executable, "-c", "import sys; print('broken', file=sys.stderr); sys.exit(3)"])


def test_run_tool_names_a_missing_program() -> None:
    with pytest.raises(ServingError, match=r"thing: .*no-such-program"):
        run_tool("thing", ["no-such-program"])
