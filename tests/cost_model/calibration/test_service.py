# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from cost_model.calibration import CalibratedService, Disturbance
from cost_model.service import RowDistribution, Service, ServiceTime
from helpers.system.calibration_runs import make_profile

AT_WORK = Disturbance(50.0, 1.3, 0.15, ((200.0, 30.0), (4000.0, 5.0)))
ROWS = RowDistribution("table", maximum=64, table=((1, 0.5), (64, 0.5)))
BASES = [ServiceTime(100.0, 12.0, 0.3), make_profile("a", {1: 300.0, 64: 1500.0}).service]


@pytest.mark.parametrize("base", BASES)
def test_points_agree_with_samples(base: ServiceTime) -> None:
    service: Service = CalibratedService(base, AT_WORK)
    rng = np.random.default_rng(3)
    drawn = service.sample(rng, ROWS.sample(rng, 400_000))
    points = service.points(ROWS)
    assert points.weights.sum() == pytest.approx(1)
    assert points.mean == pytest.approx(drawn.mean(), rel=0.01)
    assert points.second_moment == pytest.approx(float((drawn**2).mean()), rel=0.03)
    order = np.argsort(points.values)
    below = np.cumsum(points.weights[order])
    for level in (0.25, 0.9, 0.99, 0.998):  # the longest stalls begin at 0.995
        found = points.values[order][np.searchsorted(below, level)]
        assert found == pytest.approx(np.quantile(drawn, level), rel=0.06), level


@pytest.mark.parametrize("base", BASES)
def test_mean_includes_stalls(base: ServiceTime) -> None:
    service = CalibratedService(base, AT_WORK)
    assert float(service.mean_us([64.0])[0]) == pytest.approx(
        service.points(RowDistribution.constant(64)).mean, rel=0.01
    )
    assert AT_WORK.stalled == pytest.approx(200e-6 * 30 + 4000e-6 * 5)
    assert AT_WORK.stall_rate == 35.0


def test_fitted_stalls_replace_those_of_the_profile() -> None:
    base = make_profile("a", {1: 300.0}).service
    quiet = CalibratedService(base, Disturbance()).points(RowDistribution.constant(1))
    assert base.points(RowDistribution.constant(1)).values.max() > 900
    assert quiet.values.max() < 350
    assert quiet.mean < base.points(RowDistribution.constant(1)).mean


def test_variation_widens_the_distribution_but_keeps_the_mean() -> None:
    base, rows = make_profile("a", {1: 300.0}).service, RowDistribution.constant(1)
    steady, varied = (CalibratedService(base, Disturbance(cv=cv)).points(rows) for cv in (0.0, 0.3))
    assert varied.mean == pytest.approx(steady.mean, rel=0.001)
    assert varied.second_moment / varied.mean**2 - 1 == pytest.approx(0.3**2, rel=0.1)


@pytest.mark.parametrize("base", BASES)
def test_negative_overhead_keeps_times_positive(base: ServiceTime) -> None:
    service = CalibratedService(base, Disturbance(-1000.0))
    assert service.points(ROWS).values.min() > 0
    assert service.sample(np.random.default_rng(1), np.ones(1000)).min() > 0
    assert float(service.mean_us([1.0])[0]) > 0
