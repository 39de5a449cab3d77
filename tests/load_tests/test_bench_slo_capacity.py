# SPDX-License-Identifier: Apache-2.0
"""Check the search and the judgment of the benchmark of the cost model's claim, and run it briefly."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from load_tests.bench_slo_capacity import judge, main
from load_tests.cores.arms import ARMS
from load_tests.cores.moving import PHASES, SLOW, VERSIONS, Judged, judge_model, met
from load_tests.cores.simulated import simulated_capacities
from load_tests.cores.turns import bisect_in_turns


def test_bisection_takes_turns_and_encloses_the_limit_of_each_arm() -> None:
    limits, tried = {"a": 300.0, "b": 700.0, "c": 0.0}, []

    def passes(arm: str, rate: float) -> bool:
        tried.append(arm)
        return rate <= limits[arm]

    found = bisect_in_turns(list(limits), 1000.0, 5, passes)
    for arm, limit in limits.items():
        assert found[arm].passed <= limit < found[arm].failed
        assert found[arm].failed - found[arm].passed == pytest.approx(1000.0 / 2**5)
    assert tried[:6] == ["a", "b", "c", "b", "c", "a"], "no arm is always the first or the last"


def test_a_model_misses_if_more_than_a_hundredth_is_late_or_failed() -> None:
    report = {"failed": {"RESOURCE_EXHAUSTED": 1}, "late_us": {"p99": 10.0}}
    taken = np.full(199, 100.0)
    assert judge_model(report, taken, 500.0, True).met
    taken[0] = 501.0
    assert judge_model(report, taken, 500.0, True).met, "2 of 200"
    taken[1] = 501.0
    missed = judge_model(report, taken, 500.0, True)
    assert (missed.met, missed.requests, missed.late) == (False, 200, 0.015)
    assert judge_model(report, taken, 500.0, False).met, "the slow variant is not judged"
    assert not judge_model({"failed": {}, "late_us": {"p99": 0.0}}, np.empty(0), 500.0, True).met, "no answers"


def test_all_models_must_meet_their_slos() -> None:
    well = Judged(100, {}, 0.0, 1.0, 1.0, 0.0, True)
    assert met({1: well, 2: well})
    assert not met({1: well, 2: Judged(100, {}, 0.02, 1.0, 1.0, 0.0, True)})


def test_phases_share_all_requests_among_all_versions() -> None:
    for phase in PHASES:
        assert sum(phase.shares) == pytest.approx(1.0)
        assert len(phase.shares) == len(VERSIONS)
    assert [phase.slow for phase in PHASES].count(True) == 1
    assert SLOW in VERSIONS


def test_ratios_are_compared_with_the_targets() -> None:
    found = {"none": 400.0, "pool": 480.0, "plan": 520.0, "control": 570.0}
    assert [(target.value, target.ok) for target in judge(found)] == [
        (pytest.approx(1.3), True),
        (pytest.approx(1.2), False),
        (pytest.approx(1.096, abs=1e-3), False),
    ]
    assert judge({"none": 0.0, "plan": 1.0})[0].value == 0.0, "without a rate that passes there is no ratio"


def test_simulation_has_a_rate_for_every_arm() -> None:
    found = simulated_capacities(1500.0, 0.2, 15.0, 20, seeds=(1,))
    assert found.keys() == set(ARMS)
    assert 0 < found["none"] < len(os.sched_getaffinity(0)) / 1500e-6


@pytest.mark.long
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: there is nothing to divide")
def test_a_quick_run_tries_every_arm(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    assert main(["--quick", "--rows", "16", "--output", str(output)]) == 0
    found = json.loads(output.read_text())
    assert found["arms"].keys() == found["simulated"].keys() == set(ARMS)
    assert {entry["arm"] for entry in found["tries"]} == set(ARMS)
    for entry in found["tries"]:
        assert entry["models"].keys() == set(map(str, VERSIONS))
        assert all(model["requests"] > 0 for model in entry["models"].values())
