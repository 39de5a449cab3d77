# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from serving_proxy.hosts.backoff import delay, failures_after


def test_the_restart_delay_doubles_up_to_a_limit() -> None:
    assert [delay(count) for count in range(1, 9)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert delay(10_000) == 30


def test_a_minute_of_running_resets_the_restart_delay() -> None:
    assert failures_after(5, ran_s=1) == 6
    assert failures_after(5, ran_s=61) == 1
    assert failures_after(0, ran_s=0) == 1


def test_a_host_that_was_ready_is_restarted_soon() -> None:
    count = 0
    for _ in range(10):
        count = failures_after(count, ran_s=5, was_ready=True)
        assert delay(count) <= 1
    assert failures_after(9, ran_s=61, was_ready=True) == 1
