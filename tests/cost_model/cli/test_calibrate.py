# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cost_model.calibration import Trace
from cost_model.cli.app import app, load_verbs
from helpers.system.calibration_runs import CPU, make_profile, simulate_run

BOX = str(Path(__file__).resolve().parents[3] / "cost_model" / "scenarios" / "box128.yaml")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    load_verbs()
    folder = tmp_path_factory.mktemp("calibrate")
    profile = make_profile("small", {1: 300.0})
    profile.save(folder / "profile.json")
    run = simulate_run([(profile, {1: 1.0}, 1000.0)], 1, 20, factor=1.5, idle_start_us=60.0)
    Trace(CPU, (run,)).save(folder / "trace.json")
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_calibration_is_written_and_accepted_by_plan_and_simulate(files: Path) -> None:
    out = files / "calibration.json"
    answer = run("calibrate", files / "profile.json", "--trace", files / "trace.json", "--out", out, "--any-cpu")
    assert answer.exit_code == 0, answer.output
    assert "1.5" in answer.output
    assert "small" in answer.output
    made = json.loads(out.read_text())
    assert made["factor"] == pytest.approx(1.5, rel=0.03)
    assert made["interference"]["idle_start_us"] == pytest.approx(60, abs=9)
    foreign = run("plan", BOX, "--total-qps", "5000", "--calibration", out)
    assert foreign.exit_code == 2
    assert "a calibration from 'Example CPU' found" in foreign.stderr
    usual = json.loads(run("plan", BOX, "--total-qps", "5000", "--json").stdout)
    slower = json.loads(run("plan", BOX, "--total-qps", "5000", "--json", "--any-cpu", "--calibration", out).stdout)

    def p99(answer: dict[str, list[dict[str, dict[str, dict[str, float]]]]]) -> float:
        return next(
            allocation["predicted"]["ranking"]["p99_ms"]
            for allocation in answer["allocations"]
            if "ranking" in allocation["predicted"]
        )

    assert p99(slower) > 1.4 * p99(usual)
    more = ("--policy", "shared", "--traffic", "steady", "--minutes-scale", "0.003", "--qps", "8000", "--json")
    fast, slow = (
        json.loads(run("simulate", BOX, *more, *some).stdout)["runs"][0]["models"][0]["p50_ms"]
        for some in ((), ("--calibration", out, "--any-cpu"))
    )
    assert slow > 1.4 * fast


def test_bad_input_is_reported_in_one_line(files: Path) -> None:
    answer = run("calibrate", files / "profile.json", "--trace", files / "profile.json", "--any-cpu")
    assert answer.exit_code == 2
    assert "schema" in answer.output
    answer = run("calibrate", files / "profile.json", "--trace", files / "trace.json")
    assert answer.exit_code == 2
    assert "a profile from 'Example CPU' found" in answer.output


@pytest.mark.parametrize(
    ("member", "value", "message"),
    [
        ("qps", -1, "qps: -1 found"),
        ("requests", 0, "requests: 0 found"),
        ("rows", [["a", 1]], "rows[0].rows: 'a' found"),
        ("rows", [[1, "a"]], "rows[0].weight: 'a' found"),
        ("rows", [3], "rows: [3] found, expected pairs"),
    ],
)
def test_damaged_trace_is_reported_in_one_line(files: Path, member: str, value: object, message: str) -> None:
    damaged = json.loads((files / "trace.json").read_text())
    damaged["runs"][0]["models"][0][member] = value
    (files / "damaged.json").write_text(json.dumps(damaged))
    answer = run("calibrate", files / "profile.json", "--trace", files / "damaged.json", "--any-cpu")
    assert answer.exit_code == 2
    assert message in " ".join(answer.output.split())
