# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from cost_model.service import Points, RowDistribution, ServiceTable, ServiceTime

ROWS = RowDistribution.lognormal(200, 0.9, 1000)


def test_points_have_the_moments_of_samples() -> None:
    service, rng = ServiceTime(60, 11, 0.35), np.random.default_rng(7)
    drawn = service.sample(rng, ROWS.sample(rng, 2_000_000))
    points = service.points(ROWS)
    assert points.weights.sum() == pytest.approx(1)
    assert points.mean == pytest.approx(drawn.mean(), rel=0.005)
    assert points.second_moment == pytest.approx((drawn**2).mean(), rel=0.02)


def test_rows_are_whole_and_cut() -> None:
    drawn = ROWS.sample(np.random.default_rng(1), 100_000)
    assert drawn.min() >= 1
    assert drawn.max() == 1000
    assert np.array_equal(drawn, np.rint(drawn))
    assert ROWS.mean == pytest.approx(drawn.mean(), rel=0.01)
    assert ROWS.second_moment == pytest.approx((drawn**2).mean(), rel=0.02)


def test_table_of_rows_is_drawn_by_weight() -> None:
    rows = RowDistribution("table", maximum=8, table=((1, 3.0), (8, 1.0)))
    drawn = rows.sample(np.random.default_rng(1), 40_000)
    assert set(drawn) == {1.0, 8.0}
    assert rows.mean == pytest.approx(2.75)
    assert drawn.mean() == pytest.approx(2.75, rel=0.02)


def test_threads_divide_the_parallel_part() -> None:
    service = ServiceTime(100, 10, 0.0, parallel=0.5)
    assert service.mean_us(100).item() == 1100
    assert service.mean_us(100, 2).item() == 850
    assert ServiceTime(100, 10, 0.0).most_threads == 1


def table() -> ServiceTable:
    return ServiceTable(
        (1, 2), (1, 101), (0.0, 0.5, 1.0), (((10, 20, 30), (110, 120, 130)), ((10, 20, 30), (60, 70, 80)))
    )


def test_measured_table_is_interpolated_in_rows() -> None:
    assert table().mean_us([1, 51, 101]).tolist() == [20, 70, 120]
    assert table().mean_us(201).item() == pytest.approx(220)
    assert table().mean_us(101, 2).item() == 70
    assert table().mean_us(101, 3).item() == 70


def test_times_beyond_the_measured_rows_keep_their_shape() -> None:
    levels = (0.0, 0.5, 1.0)
    narrower = ServiceTable((1,), (100, 200), levels, (((100, 200, 500), (290, 300, 310)),))
    for rows in (1, 50, 300, 5000):
        quantiles = narrower._quantiles(np.array([float(rows)]), 1)[0]
        assert np.all(np.diff(quantiles) > 0), (rows, quantiles)
    assert narrower._quantiles(np.array([400.0]), 1)[0].tolist() == pytest.approx([290 * 5 / 3, 500, 310 * 5 / 3])
    falling = ServiceTable((1,), (100, 200), levels, (((200, 210, 220), (100, 110, 120)),))
    assert falling.mean_us([200, 400, 5000]).tolist() == pytest.approx([110, 110, 110])
    assert falling.mean_us([1, 100]).tolist() == pytest.approx([210, 210])


def test_share_of_requests_outside_the_measured_rows_is_returned() -> None:
    rows = RowDistribution("table", maximum=200, table=((1, 1.0), (101, 2.0), (200, 1.0)))
    assert table().outside(rows) == pytest.approx(0.25)
    assert ServiceTime(1, 1, 0.0).outside(rows) == 0


def test_samples_of_a_measured_table_follow_its_quantiles() -> None:
    rng, rows = np.random.default_rng(1), RowDistribution.constant(51)
    drawn = table().sample(rng, rows.sample(rng, 50_000))
    assert 60 <= drawn.min() < 61
    assert 79 < drawn.max() <= 80
    assert table().points(rows).mean == pytest.approx(drawn.mean(), rel=0.01)


def test_quantile_of_points_is_weighted() -> None:
    points = Points(np.array([3.0, 1.0, 2.0]), np.array([0.01, 0.5, 0.49]))
    assert [points.quantile(level) for level in (0.0, 0.4, 0.6, 0.98, 0.995, 1.0)] == [1, 1, 2, 2, 3, 3]
