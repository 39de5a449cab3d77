# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cost_model.calibration import Calibration, Disturbance
from cost_model.cli.app import app, load_verbs
from cost_model.errors import ProfileError, WorkloadError
from cost_model.interference import NONE, Interference, load_interference
from cost_model.machine import Machine
from cost_model.planning import explain, plan
from cost_model.profiling.fingerprint import fingerprint
from cost_model.profiling.measure import profile_model, slow_down
from cost_model.profiling.profile import LEVELS, Profile, cpu_model, load_profile
from cost_model.service import RowDistribution
from cost_model.workload import parse_workload
from helpers.models.model_builders import build_linear, build_string


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    build_linear(folder / "one")
    build_linear(folder / "two", scale=3.0)
    build_string(folder / "text")
    return folder


@pytest.fixture
def measured(models: Path, tmp_path: Path) -> Path:
    out = tmp_path / "profile.json"
    profile_model(models / "one", [0], [1, 64], [1], out=out, seconds=0.02)
    return out


def test_fingerprint_depends_on_the_graph_and_not_on_the_weights(models: Path) -> None:
    assert fingerprint(models / "one") == fingerprint(models / "two")
    assert fingerprint(models / "one") != fingerprint(models / "text")


def test_damaged_model_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="expected a SavedModel"):
        fingerprint(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"\x12\xff\xff\xff")
    with pytest.raises(ProfileError, match="damaged data"):
        fingerprint(tmp_path)


def test_profile_contains_the_requested_points(measured: Path) -> None:
    made = load_profile(measured)
    assert set(made.points) == {(1, 1), (1, 64)}
    assert made.cpu_model == cpu_model()
    assert {"switch", "shared_cache"} <= set(made.interference)
    assert made.service.points(RowDistribution.constant(64)).mean > 0


def test_cpu_use_of_other_processes_is_reported_and_stored(models: Path, tmp_path: Path) -> None:
    cpu, out, noted = min(os.sched_getaffinity(0)), tmp_path / "profile.json", list[str]()
    hog = f"import os; os.sched_setaffinity(0, {{{cpu}}}); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", hog], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            profile_model(models / "one", [cpu], [64], [1], out=out, seconds=0.3, warn=noted.append)
            beside = profile_model(models / "one", [cpu], [64], [1], seconds=0.05, beside=True, warn=noted.append)
        finally:
            other.kill()
    assert re.match(rf"other processes use \d+% of CPUs {cpu}: service times will be too long", noted[0])
    assert re.match(r"other processes used up to \d+% of the CPUs", noted[1])
    # With `beside`, processor time is measured, and the use of CPUs by others is not watched.
    assert len(noted) == 2
    assert (beside.busy_before, beside.busy_during) == (None, None)
    assert "busy_before" not in beside.to_json()
    made = load_profile(out)
    assert made.busy_before is not None
    assert made.busy_before > 0.5
    assert made.busy_during is not None
    assert 0.1 < made.busy_during <= 1


def test_profile_of_a_busy_machine_is_named_in_plans(tmp_path: Path) -> None:
    told = "rofile was measured while others used 40% of the CPUs: its service times may be too long"
    file = tmp_path / "profile.json"
    for busy, expected in ((0.4, ("a: its p" + told,)), (0.04, ()), (None, ())):
        kept = Profile("f", cpu_model(), busy_before=busy, busy_during=0.01 if busy else None)
        kept.add(1, 1, np.array([100.0, 110.0]))
        kept.save(file)
        model = {"name": "a", "role": "baseline", "profile": str(file), "slo_p99_ms": 50, "qps": 10}
        workload = parse_workload({"models": [model | {"rows": {"constant": 1}}]})
        made = plan(workload, Machine.even(2), interference=NONE)
        assert made.reasons == expected
        assert (f"Its p{told}." in explain(made, "a").why) == bool(expected)
        calibrated = Calibration(cpu_model(), Disturbance(), NONE).workload(workload)
        assert plan(calibrated, Machine.even(2), interference=NONE).reasons == expected


def test_profiling_continues_an_interrupted_run(models: Path, measured: Path) -> None:
    before = load_profile(measured).points[1, 1]
    steps: list[str] = []
    totals: list[int] = []
    profile_model(
        models / "one",
        [0],
        [1, 64, 128],
        [1],
        out=measured,
        seconds=0.02,
        progress=steps.append,
        set_total=totals.append,
    )
    assert steps == ["128 rows on 1 core"]
    assert totals == [1]
    assert load_profile(measured).points[1, 1] == before


def test_reused_profile_of_other_weights_needs_one_check_point(
    models: Path, measured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = load_profile(measured).points[1, 64][LEVELS.index(0.5)]
    # Times of microseconds on a shared machine may be anything: what is measured is given here, what is judged is not.
    monkeypatch.setattr("cost_model.profiling.measure._times_us", lambda *_, **__: np.full(9, 1.10 * known))
    steps: list[str] = []
    made = profile_model(models / "two", [0], [1, 64], [1], reuse=measured, seconds=0.02, progress=steps.append)
    assert steps == ["check point"]
    assert made.points == load_profile(measured).points
    monkeypatch.setattr("cost_model.profiling.measure._times_us", lambda *_, **__: np.full(9, 1.20 * known))
    steps.clear()
    profile_model(models / "two", [0], [1], [1], reuse=measured, seconds=0.02, progress=steps.append)
    assert steps == ["check point", "1 rows on 1 core", "interference"]


def test_profile_without_a_check_point_is_refused(models: Path, measured: Path) -> None:
    data = json.loads(measured.read_text())
    for point in data["points"]:
        point["cores"] = 2
    measured.write_text(json.dumps(data))
    with pytest.raises(ProfileError, match="no times for 1 core found"):
        profile_model(models / "two", [0], [1], [1], reuse=measured, seconds=0.02)


def test_profile_of_another_graph_or_cpu_is_refused(models: Path, measured: Path) -> None:
    with pytest.raises(ProfileError, match="another graph"):
        profile_model(models / "text", [0], [1], [1], out=measured)
    data = json.loads(measured.read_text())
    measured.write_text(json.dumps(data | {"cpu_model": "Z80"}))
    with pytest.raises(ProfileError, match="from 'Z80' found"):
        load_profile(measured)
    assert load_profile(measured, any_cpu=True).cpu_model == "Z80"


def test_recorded_inputs_are_used(models: Path) -> None:
    with pytest.raises(ProfileError, match=r"inputs \['z'\] found, expected \['x'\]"):
        profile_model(models / "one", [0], [1], [1], records={"z": np.zeros((1, 3))})
    records = {"x": np.ones((2, 3), np.float32)}
    made = profile_model(models / "one", [0], [5], [1], records=records, seconds=0.02)
    assert (1, 5) in made.points


def test_slow_down_without_interference_is_zero() -> None:
    rng = np.random.default_rng(3)
    alone, beside = (rng.lognormal(5, 0.5, 200_000) for _ in range(2))
    for middle in (np.mean, np.median):
        assert slow_down(beside, alone, middle) < 0.01
        assert slow_down(1.3 * beside, alone, middle) == pytest.approx(0.3, abs=0.01)


def test_slow_down_on_two_cores_is_not_stored_as_a_coefficient(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "two.json"
    cpus = sorted(os.sched_getaffinity(0))
    made = profile_model(models / "one", cpus[:2], [1], [1], out=out, seconds=0.02)
    assert set(made.interference) == {"switch", "shared_cache", *(["side_by_side"] if len(cpus) > 1 else [])}
    assert load_interference(out).bandwidth == Interference().bandwidth
    data = json.loads(out.read_text())
    data["interference"]["bandwidth"] = data["interference"].pop("side_by_side", 0.1)
    out.write_text(json.dumps(data))
    assert set(load_profile(out).interference) == {"switch", "shared_cache"}


def test_string_inputs_are_generated(models: Path) -> None:
    assert profile_model(models / "text", [0], [4], [1], seconds=0.02).points


def test_missing_rows_are_reported() -> None:
    times = np.array([1.0, 2.0])
    made = Profile("f", "c")
    made.add(1, 1, times)
    made.add(1, 8, times)
    made.add(2, 8, times)
    with pytest.raises(ProfileError, match="no times for 1 rows on 2 cores"):
        _ = made.service


def test_more_cores_than_cpus_are_refused(models: Path) -> None:
    with pytest.raises(ProfileError, match="--cores: 2 found, expected at most the 1 CPUs"):
        profile_model(models / "one", [0], [1], [2])


def test_workload_reads_service_times_from_a_profile(measured: Path) -> None:
    model = {"name": "a", "role": "baseline", "profile": str(measured), "rows": {"constant": 8}, "slo_p99_ms": 50}
    workload = parse_workload({"models": [model | {"qps": 10}]})
    assert workload.models[0].points().mean > 0


def test_rows_outside_the_profile_are_reported(models: Path, measured: Path, tmp_path: Path) -> None:
    out = tmp_path / "one.json"
    profile_model(models / "one", [0], [64], [1], out=out, seconds=0.02)
    model = {"name": "a", "role": "baseline", "profile": str(out), "slo_p99_ms": 50, "qps": 10}
    parse_workload({"models": [model | {"rows": {"constant": 64}}]})
    with pytest.raises(
        WorkloadError, match=r"rows: others than the 64 rows of its profile found, expected \{constant: 64"
    ):
        parse_workload({"models": [model | {"rows": {"constant": 8}}]})
    wide = parse_workload({"models": [model | {"profile": str(measured), "rows": {"table": {1: 9, 100: 1}}}]})
    made = plan(wide, Machine.even(2), interference=NONE)
    assert made.feasible
    assert (
        "a: its profile does not cover the rows of 10% of its requests; their service times are guessed" in made.reasons
    )


def test_command_prints_a_table(models: Path, tmp_path: Path) -> None:
    load_verbs()
    arguments = ["profile", str(models / "one"), "--rows", "1,2", "--seconds", "0.02", "--out", str(tmp_path / "p")]
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 0, answer.output
    assert "sharing costs: switch" in answer.stdout
    assert set(load_profile(tmp_path / "p").points) == {(1, 1), (1, 2)}
    wrong = CliRunner().invoke(app, ["profile", str(models / "one"), "--rows", "x"])
    assert wrong.exit_code == 2
    assert "--rows: 'x' found" in wrong.stderr
