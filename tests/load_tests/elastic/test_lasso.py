# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from load_tests.elastic import lasso, planted_study
from load_tests.elastic.planted_clicks import PlantedClicks, auc


def test_auc_counts_pairs() -> None:
    random = np.random.default_rng(0)
    scores = random.integers(0, 5, 60).astype(np.float32)
    clicked = (random.random(60) < 0.4).astype(np.float32)
    higher = scores[clicked > 0][:, None] - scores[clicked == 0][None]
    assert auc(scores, clicked) == pytest.approx(((higher > 0) + 0.5 * (higher == 0)).mean())


def test_clicks_follow_their_chances_and_most_users_click_as_the_average() -> None:
    world = PlantedClicks(5000, seed=1)
    clicks = world.draw()
    assert clicks.clicked.mean() == pytest.approx(clicks.chance.mean(), abs=0.02)
    assert 0.05 < world.planted.mean() < 0.09
    planted = np.isin(clicks.users, world.keys(np.flatnonzero(world.planted)))
    by_item = {int(item): np.ptp(clicks.chance[~planted & (clicks.items == item)]) for item in range(20)}
    assert max(by_item.values()) < 1e-6
    assert np.ptp(clicks.chance[planted]) > 0.9
    again = PlantedClicks(5000, seed=1).draw()
    np.testing.assert_array_equal(again.users, clicks.users)


def test_lasso_removes_the_users_without_tastes() -> None:
    figures = lasso.measure(lasso.Setting(batch=512, l21=4e-3), users=2000, seeds=1)
    turn = figures["turns"][0]
    assert turn["plain"]["zero_rows"] == 0
    assert turn["lasso"]["rows"] == turn["plain"]["rows"] > 1500
    assert turn["lasso"]["zero_rows"] > 0.8 * turn["lasso"]["rows"]
    assert turn["lasso"]["missed"] < 0.4
    assert turn["lasso"]["auc"] > turn["none"]["auc"] + 0.05
    # Rows that are not zero are all that is left.
    assert turn["lasso"]["kept_keys"] == turn["lasso"]["rows"] - turn["lasso"]["zero_rows"]
    assert turn["lasso"]["cut_bytes"] < 0.3 * turn["lasso"]["exported_bytes"]


def test_targets_take_the_bound_of_the_pairs() -> None:
    def turn(none: float, plain: float, with_lasso: float) -> dict[str, dict[str, float]]:
        return {
            "none": {"auc": none},
            "plain": {"auc": plain},
            "lasso": {"auc": with_lasso, "rows": 100, "zero_rows": 92, "exported_bytes": 100, "cut_bytes": 9},
        }

    targets = lasso.judge({"turns": [turn(0.6, 0.8, 0.7999), turn(0.6, 0.8, 0.7997)]})
    # Two pairs: mean 0.025 %, standard deviation 0.0177 %, and a quantile of 6.314.
    assert targets[2].value == pytest.approx(0.025 + 6.314 * 0.0125, abs=1e-3)
    assert [target.ok for target in targets] == [True, True, False, True]
    assert planted_study.upper_bound([1.0]) == 1.0
