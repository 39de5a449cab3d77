# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from load_tests.fleet import placement
from load_tests.fleet.setup import Setup


def test_placement_is_measured_and_judged() -> None:
    case = placement.measure(Setup(quick=True))
    assert case["models"] == 30
    assert case["gap"]["greatest"] < 0.5
    assert case["moved_after_change"]["greatest"] < 0.5
    missed = {"seconds": {"greatest": 11.0}, "gap": {"greatest": 0.06}}
    assert [target.ok for target in placement.judge(missed)] == [False, False]
