# SPDX-License-Identifier: Apache-2.0
"""Check the figures of load scenarios and the comparison with their limits."""

from __future__ import annotations

import numpy as np
import pytest

from load_tests.latencies import Latencies
from load_tests.scenarios.arrivals import Phase
from load_tests.scenarios.generators import Sent, uses_locust
from load_tests.scenarios.judging import (
    Limit,
    growth,
    judge,
    p99_ratio,
    phase_figures,
    recovery_s,
    spread_of,
    totals,
)

PHASES = [Phase("quiet", 10.0, 100.0), Phase("busy", 10.0, 100.0), Phase("quiet again", 10.0, 100.0)]


def _sent() -> Sent:
    """A hundred requests a second; 1 ms when quiet, 2 ms when busy, then 90 ms for a second, then 1.2 ms."""
    at = np.arange(3000) / 100
    us = np.select([at < 10, at < 20, at < 21], [1000.0, 2000.0, 90_000.0], 1200.0)
    refused = {"HTTP 429": 3, "HTTP 500": 1}
    spans = [(0.0, 10.0), (10.0, 20.0), (20.0, 30.0)]
    return Sent("locust", Latencies(at, us), spans, [1000, 1006, 1000], [{}, refused, {}])


def test_figures_of_phases() -> None:
    found = phase_figures(PHASES, _sent())
    assert [figures["answered"] for figures in found] == [1000, 1000, 1000]
    assert [figures["p50_us"] for figures in found] == [1000, 2000, 1200]
    assert found[1]["answered_per_s"] == 100
    assert found[2]["windows_us"][:2] == [90_000, 1200]
    # Six requests of the second phase were not answered, of which four failed.
    assert totals(found) == {"failed": 4, "failed_otherwise": 1, "unanswered": 2}


def test_ratio_and_spread_of_quiet_phases() -> None:
    found = [{"phase": name, "p99_us": us} for name, us in (("a", 900.0), ("b", 1100.0), ("busy", 2000.0))]
    assert p99_ratio(found, "busy", ["a", "b"]) == 2
    assert spread_of(found, ["a", "b"]) == pytest.approx(0.2)
    with pytest.raises(ValueError, match="no request was completed in gone"):
        p99_ratio(found, "gone", ["a"])


def test_recovery_ends_when_latency_stays_below_the_limit() -> None:
    sent = _sent()
    assert recovery_s(sent, (20.0, 30.0), 50_000) == 1.0
    assert recovery_s(sent, (22.0, 30.0), 50_000) == 0.0
    assert recovery_s(sent, (29.0, 32.0), 50_000) == 3.0  # no answers are no recovery


def test_limits_pass_and_fail() -> None:
    limits = [
        Limit("failed", 0.0, "failed"),
        Limit("ratio", 1.3, "p99", spread="spread"),
        Limit("goodput", 0.5, "goodput", at_least=True),
    ]
    good = judge("steady", limits, {"failed": 0, "ratio": 1.45, "spread": 0.2, "goodput": 0.6})
    assert [target.ok for target in good] == [True] * 3
    bad = judge("steady", limits, {"failed": 1, "ratio": 1.45, "spread": 0.1, "goodput": 0.4})
    assert [target.ok for target in bad] == [False] * 3
    with pytest.raises(KeyError):
        judge("steady", limits, {"failed": 0})


def test_the_generator_is_chosen_by_the_rate() -> None:
    assert uses_locust([Phase("only", 1.0, 500.0)])
    assert not uses_locust([Phase("calm", 1.0, 100.0), Phase("burst", 1.0, 501.0)])


def test_growth_ignores_short_peaks() -> None:
    leak = [20.0 + number // 10 for number in range(100)]
    assert growth(leak) == 8.0
    assert growth([9.0] * 10 + [30.0] * 10 + [27.0] * 60 + [28.0] * 17 + [36.0] * 3) == -2.0
    assert growth([3.0, 4.0]) == 0.0
