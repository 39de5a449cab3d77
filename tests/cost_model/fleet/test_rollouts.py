# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from statistics import NormalDist

import pytest

from cost_model.fleet.rollouts import GuardSettings, bad_version, wilson_low
from serving_proxy.guard.bounds import wilson
from serving_proxy.records.guard_settings import GuardSettings as ProxySettings


def test_settings_and_interval_are_those_of_the_guard() -> None:
    ours, theirs = GuardSettings(), ProxySettings()
    assert ours.error_part == theirs.error_percent / 100
    assert (ours.min_requests, ours.window_s, ours.confidence) == (
        theirs.min_requests,
        theirs.window_s,
        theirs.confidence,
    )
    for failed, total in ((0, 10), (3, 200), (50, 1000), (200, 200)):
        assert wilson_low(failed, total, 0.999) == pytest.approx(wilson(failed, total, NormalDist().inv_cdf(0.999))[0])


def test_little_traffic_costs_less_but_takes_longer() -> None:
    few, many = (bad_version("m", 1000, percent, 0.1, GuardSettings(), 1) for percent in (1, 50))
    assert few.stopped_s is not None
    assert many.stopped_s is not None
    assert few.stopped_s > many.stopped_s
    assert few.failed < many.failed
    assert many.stopped_s < 10


def test_a_version_within_the_limit_is_not_stopped() -> None:
    found = bad_version("m", 1000, 10, 0.005, GuardSettings(), 1, runs=3)
    assert found.stopped_s is None
    assert found.requests == pytest.approx(360_000, rel=0.02)
