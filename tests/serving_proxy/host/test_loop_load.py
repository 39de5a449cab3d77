# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time

import pytest

from serving_proxy.host.loop_load import LoopLoad


class Clocks:
    """Replaces the clocks of a thread that computes for a share of the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cpus: int) -> None:
        self.now = self.used = 0.0
        monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cpus)))
        monkeypatch.setattr(time, "monotonic_ns", lambda: int(self.now))
        monkeypatch.setattr(time, "thread_time_ns", lambda: int(self.used))

    def run(self, seconds: float, share: float) -> None:
        self.now += seconds * 1e9
        self.used += share * seconds * 1e9


@pytest.mark.parametrize(("share", "saturated"), [(0.5, False), (0.8, False), (0.95, True), (1.0, True)])
def test_thread_that_computes_nearly_all_of_the_time_is_saturated(
    monkeypatch: pytest.MonkeyPatch, share: float, saturated: bool
) -> None:
    clocks = Clocks(monkeypatch, cpus=2)
    load = LoopLoad()
    clocks.run(0.1, share)
    assert load.is_saturated() is saturated
    clocks.run(10, 0)
    assert not load.is_saturated()


def test_load_counts_over_a_period(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch, cpus=2)
    load = LoopLoad()
    for _ in range(10):
        clocks.run(0.001, 1.0)
        assert not load.is_saturated(), "one long request does not mean that the loop is saturated"
    clocks.run(0.05, 1.0)
    assert load.is_saturated()


def test_process_with_one_cpu_has_nothing_to_hand_over_to(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch, cpus=1)
    load = LoopLoad()
    clocks.run(0.1, 1.0)
    assert not load.is_saturated()
