# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from load_tests.elastic import binary_codes
from load_tests.elastic.planted_clicks import PlantedClicks


def test_activities_have_a_heavier_tail_with_a_larger_spread() -> None:
    def share_of_the_most_active(spread: float) -> float:
        counts = np.unique(PlantedClicks(5000, seed=1, spread=spread).draw().users, return_counts=True)[1]
        return float(np.sort(counts)[-100:].sum() / counts.sum())

    assert share_of_the_most_active(2.0) > 1.5 * share_of_the_most_active(1.0)


def test_forms_have_the_rows_that_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary_codes, "FORMS", ("none", "full", "code", "frequent"))
    setting = binary_codes.Setting(batch=512, code_bits=12, code_blocks=2, shared_bits=8, shared_blocks=2, share=0.05)
    figures = binary_codes.measure(setting, users=2000, seeds=1)
    turn = figures["turns"][0]
    assert turn["none"]["rows"] == 0
    assert turn["full"]["rows"] > 1000
    assert turn["code"]["rows"] <= 2 * 64
    assert 2 * 16 < turn["frequent"]["rows"] < 0.5 * turn["full"]["rows"]
    assert turn["full"]["auc"] > turn["none"]["auc"] + 0.02
    assert turn["code"]["auc"] > turn["none"]["auc"]


def test_tables_shrink_with_the_number_of_users() -> None:
    whole, half = binary_codes.setting_for(1_000_000), binary_codes.setting_for(500_000)
    assert whole == binary_codes.Setting()
    assert (half.code_bits, half.shared_bits, half.batch) == (36, 20, 2048)


def test_targets_take_the_bound_of_the_pairs() -> None:
    def turn(code: float, frequent: float) -> dict[str, dict[str, float]]:
        return {
            "none": {"auc": 0.75, "rows": 0},
            "full": {"auc": 0.8, "rows": 1000},
            "code": {"auc": code, "rows": 60},
            "frequent": {"auc": frequent, "rows": 50},
        }

    targets = binary_codes.judge({"turns": [turn(0.79, 0.7990), turn(0.79, 0.7992)]})
    assert [target.ok for target in targets] == [True, False, False, True, True]
    # Two pairs: mean 0.1125 %, standard deviation 0.0177 %, and a quantile of 6.314.
    assert targets[4].value == pytest.approx(0.1125 + 6.314 * 0.0125, abs=1e-3)
