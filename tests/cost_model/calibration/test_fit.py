# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cost_model.calibration import Trace, calibrate, load_calibration, load_trace
from cost_model.calibration.check import check_runs, simulate_runs
from cost_model.errors import ProfileError
from cost_model.interference import default_interference
from helpers.system.calibration_runs import CPU, make_profile, simulate_run

PROFILES = [make_profile("small", {1: 300.0, 16: 600.0}), make_profile("large", {64: 2000.0})]
TRUTH = {"overhead_us": 60.0, "factor": 1.2, "stall_us": 5000.0, "stalls_per_s": 4.0, "idle_start_us": 200.0}
SMALL, LARGE = {1: 0.5, 16: 0.5}, {64: 1.0}


@pytest.fixture(scope="module")
def trace() -> Trace:
    runs = [simulate_run([(PROFILES[0], SMALL, qps)], seed, 60, **TRUTH) for seed, qps in ((1, 500), (2, 1000))]
    runs += [simulate_run([(PROFILES[1], LARGE, qps)], seed, 120, **TRUTH) for seed, qps in ((3, 150), (4, 250))]
    both = [(PROFILES[0], SMALL, 400.0), (PROFILES[1], LARGE, 120.0)]
    runs += [simulate_run(both, seed, 120, switch=0.15, **TRUTH) for seed in (5, 6)]
    return Trace(CPU, tuple(runs), {"commit": "abc"})


def test_fit_recovers_the_disturbance_of_simulated_runs(trace: Trace) -> None:
    made = calibrate(PROFILES, trace)
    assert made.disturbance.overhead_us == pytest.approx(60, abs=15)
    assert made.disturbance.factor == pytest.approx(1.2, rel=0.03)
    # The work between stalls includes the stalls themselves.
    assert made.disturbance.stalled == pytest.approx(4 * 5000e-6, rel=0.25)
    assert made.interference.idle_start_us == pytest.approx(200, rel=0.1)
    assert made.interference.switch == pytest.approx(0.15, abs=0.06)
    assert made.interference.bandwidth == default_interference().bandwidth


def test_calibrated_predictions_agree_with_other_runs(trace: Trace) -> None:
    made = calibrate(PROFILES, trace)
    runs = [simulate_run([(PROFILES[0], SMALL, qps)], 10 + qps, 120, **TRUTH) for qps in (450, 800, 1150)]
    runs.append(simulate_run([(PROFILES[0], SMALL, 500), (PROFILES[1], LARGE, 100)], 20, 120, switch=0.15, **TRUTH))
    others = Trace(CPU, tuple(runs))
    with_it, without = check_runs(PROFILES, others, made), check_runs(PROFILES, others, None)
    assert max(abs(line.p99_off) for line in with_it) < 0.15
    assert max(abs(line.p50_off) for line in with_it) < 0.15
    assert max(abs(line.p99_off) for line in without) > 0.3
    # These runs have one queue; the simulator has one for each model of a core.
    by_events = simulate_runs(PROFILES, replace(others, runs=others.runs[:3]), made, seeds=(1, 2, 3, 4))
    assert max(abs(line.p99_off) for line in by_events) < 0.15


def test_trace_and_calibration_files_round_trip(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("files")
    trace.save(folder / "trace.json")
    again = load_trace(folder / "trace.json")
    assert again.environment == {"commit": "abc"}
    assert again.runs[0].models[0].latency.at(0.99) == pytest.approx(trace.runs[0].models[0].latency.at(0.99), abs=0.01)
    made = calibrate(PROFILES, again)
    made.save(folder / "calibration.json")
    read = load_calibration(folder / "calibration.json", any_cpu=True)
    assert read.disturbance.factor == pytest.approx(made.disturbance.factor, abs=1e-4)
    assert len(read.disturbance.stalls) == len(made.disturbance.stalls)
    assert read.interference.idle_start_us == pytest.approx(made.interference.idle_start_us, abs=1e-4)


def test_one_number_of_rows_fits_only_a_factor(trace: Trace) -> None:
    made = calibrate(PROFILES[1:], Trace(CPU, trace.runs[2:4]))
    assert made.disturbance.overhead_us == 0
    assert made.disturbance.factor == pytest.approx(1.2 + 60 / 2000, rel=0.03)


def test_fit_recovers_a_negative_overhead() -> None:
    truth = {"overhead_us": -100.0, "factor": 1.1, "spread": 0.15}
    profile = make_profile("wide", {1: 300.0, 16: 900.0})
    runs = [simulate_run([(profile, SMALL, qps)], seed, 60, **truth) for seed, qps in ((1, 600), (2, 1200))]
    made = calibrate([profile], Trace(CPU, tuple(runs)))
    assert made.disturbance.overhead_us == pytest.approx(-100, abs=15)
    assert made.disturbance.factor == pytest.approx(1.1, rel=0.04)
    # 0.15 of the time before the overhead is subtracted.
    assert made.disturbance.cv == pytest.approx(0.19, abs=0.03)
    # Variation must not count as stalls.
    assert made.disturbance.stalled < 0.005


def test_graphs_that_ran_alone_get_their_own_values(tmp_path: Path) -> None:
    runs = [
        simulate_run([(PROFILES[0], SMALL, 800)], 1, 60),
        simulate_run([(PROFILES[1], LARGE, 200)], 2, 120, factor=1.5),
    ]
    made = calibrate(PROFILES, Trace(CPU, tuple(runs)))
    made.save(tmp_path / "calibration.json")
    for calibration in (made, load_calibration(tmp_path / "calibration.json", any_cpu=True)):
        small, large = (calibration.disturbance_of(profile.service) for profile in PROFILES)
        assert small.factor == pytest.approx(1, rel=0.03)
        assert large.factor == pytest.approx(1.5, rel=0.03)
        assert large.stalls == small.stalls
        unknown = calibration.disturbance_of(make_profile("third", {1: 300.0}).service)
        assert unknown == calibration.disturbance


def test_traces_that_cannot_be_fitted_are_refused(trace: Trace) -> None:
    with pytest.raises(ProfileError, match=r"runs\[2\] of large: a graph without a profile found"):
        calibrate(PROFILES[:1], trace)
    with pytest.raises(ProfileError, match="no run of a model alone"):
        calibrate(PROFILES, Trace(CPU, trace.runs[4:]))
    with pytest.raises(ProfileError, match="expected one from the trace's 'another'"):
        calibrate(PROFILES, replace(trace, cpu_model="another"))
    lost = replace(trace.runs[0], models=(replace(trace.runs[0].models[0], failed=3),))
    with pytest.raises(ProfileError, match="3 failed requests found, expected none"):
        calibrate(PROFILES, Trace(CPU, (lost,)))


@pytest.mark.parametrize(
    ("graphs", "message"),
    [([], "mapping"), ({"a": 3}, "graphs.a"), ({"a": {"overhead_us": 1.0, "factor": 0}}, "graphs.a.factor: 0 found")],
)
def test_damaged_graphs_of_a_calibration_are_reported(
    trace: Trace, tmp_path: Path, graphs: object, message: str
) -> None:
    made = calibrate(PROFILES, trace).to_json() | {"graphs": graphs}
    (tmp_path / "calibration.json").write_text(json.dumps(made))
    with pytest.raises(ProfileError, match=message):
        load_calibration(tmp_path / "calibration.json", any_cpu=True)
