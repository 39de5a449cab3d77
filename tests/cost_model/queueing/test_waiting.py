# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import numpy as np
import pytest

from cost_model.queueing import Waiting, erlang_c, mean_wait_allen_cunneen
from cost_model.queueing.waiting import Renewal
from cost_model.service import Points


def exponential(mean: float) -> Points:
    """Quantiles in the middle of 4000 steps."""
    levels = (np.arange(4000) + 0.5) / 4000
    return Points(-mean * np.log1p(-levels), np.full(4000, 1 / 4000))


def constant(value: float) -> Points:
    return Points(np.array([value]), np.ones(1))


@pytest.mark.parametrize(
    ("servers", "load", "expected"),
    # Tables of Erlang C: 2 servers with 1 erlang 1/3; 1 server: the load.
    [(2, 1.0, 1 / 3), (1, 0.7, 0.7), (5, 4.0, 0.5541), (10, 8.0, 0.4092), (3, 3.0, 1.0), (3, 0.0, 0.0)],
)
def test_erlang_c_equals_published_tables(servers: int, load: float, expected: float) -> None:
    assert erlang_c(servers, load) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("servers", [1, 2, 8, 40])
@pytest.mark.parametrize("utilisation", [0.3, 0.8, 0.95])
def test_wait_is_exact_for_exponential_service_times(servers: int, utilisation: float) -> None:
    mean = 1000.0
    waiting = Waiting(Renewal(exponential(mean)), utilisation * servers / mean, servers)
    probability = erlang_c(servers, utilisation * servers)
    times = np.array([0.0, 0.5, 1.0, 3.0]) * mean / servers / (1 - utilisation)
    # M/M/k: P(W > t) = C exp(-(k - a) t / mean).
    exact = probability * np.exp(-servers * (1 - utilisation) * times / mean)
    assert waiting.tail(times) == pytest.approx(exact, rel=0.04, abs=0.004 * probability)
    assert waiting.mean_us == pytest.approx(probability * mean / servers / (1 - utilisation), rel=0.02)


@pytest.mark.parametrize("utilisation", [0.2, 0.6, 0.9])
@pytest.mark.parametrize("service", [constant(500.0), Points(np.array([10.0, 4000.0]), np.array([0.9, 0.1]))])
def test_mean_wait_of_one_server_equals_pollaczek_khinchine(service: Points, utilisation: float) -> None:
    rate = utilisation / service.mean
    waiting = Waiting(Renewal(service), rate, 1)
    exact = rate * service.second_moment / 2 / (1 - utilisation)
    assert waiting.mean_us == pytest.approx(exact, rel=0.02)
    assert mean_wait_allen_cunneen(1, rate, service.mean, service.second_moment) == pytest.approx(exact)


def test_wait_in_overload_is_infinite() -> None:
    waiting = Waiting(Renewal(constant(100.0)), 0.05, 4)
    assert waiting.mean_us == math.inf
    assert waiting.longest_us == math.inf
    assert waiting.tail(np.array([1e9])) == pytest.approx([1.0])
    assert mean_wait_allen_cunneen(4, 0.05, 100.0, 1e4) == math.inf


def test_wait_without_traffic_is_zero() -> None:
    waiting = Waiting(Renewal(constant(100.0)), 0.0, 4)
    assert waiting.tail(np.array([-1.0, 0.0, 1.0])).tolist() == [1.0, 0.0, 0.0]


def test_tail_falls_with_time_and_with_servers() -> None:
    times = np.linspace(0, 20_000, 200)
    few, many = (Waiting(Renewal(exponential(1000.0)), 0.0035, servers).tail(times) for servers in (4, 5))
    assert np.all(np.diff(few) <= 0)
    assert np.all(many <= few)
