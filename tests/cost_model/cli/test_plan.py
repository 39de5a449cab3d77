# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from cost_model.calibration import Calibration, Disturbance
from cost_model.cli.app import app, load_verbs
from cost_model.cli.options import read_costs
from cost_model.errors import ProfileError
from cost_model.interference import Interference
from cost_model.profiling.profile import Profile, cpu_model
from cost_model.workload import load_workload

ROOT = Path(__file__).resolve().parents[3]
BOX = str(ROOT / "cost_model" / "scenarios" / "box128.yaml")
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "plan.schema.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module", autouse=True)
def _verbs() -> None:
    load_verbs()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", *arguments])


def test_plan_is_printed() -> None:
    answer = run(BOX, "--total-qps", "20000", "--parallel", "0.8", "--explain")
    assert answer.exit_code == 0, answer.output
    assert "feasible: 41 models on 128 cores, 20,000 requests/s" in answer.output
    assert "A baseline: it has its own cores" in answer.output
    assert "One core less: p99" in answer.output


def test_infeasible_plan_reports_no_growth() -> None:
    answer = run(BOX, "--total-qps", "100")
    assert answer.exit_code == 1, answer.output
    assert "not feasible: 41 models on 128 cores, 100 requests/s\n" in answer.output
    assert "can grow" in run(BOX, "--total-qps", "100", "--parallel", "0.8").output


def test_json_conforms_to_the_schema() -> None:
    answer = run(BOX, "--total-qps", "20000", "--parallel", "0.8", "--explain", "--json", "--add", "x", "--qps", "50")
    assert answer.exit_code == 0, answer.output
    data = json.loads(answer.stdout)
    jsonschema.validate(data, SCHEMA)
    assert data["addition"]["verdict"] == "fits"
    assert sum(len(allocation["cores"]) for allocation in data["allocations"]) == 128
    assert {explanation["model"] for explanation in data["explanations"]} >= {"ranking", "x"}


def test_explain_model_accepts_any_model_name() -> None:
    answer = run(BOX, "--total-qps", "5000", "--explain-model", "recall-1", "--explain-model", "heavy-0", "--json")
    assert [load["model"] for load in json.loads(answer.stdout)["explanations"]] == ["recall-1", "heavy-0"]
    answer = run(BOX, "--total-qps", "5000", "--explain-model", "nobody")
    assert answer.exit_code == 2
    assert "nobody: no such model found in the plan" in answer.stderr


def test_json_of_overload_has_no_infinity() -> None:
    answer = run(BOX, "--total-qps", "200000", "--json")
    assert answer.exit_code == 1
    data = json.loads(answer.stdout)
    jsonschema.validate(data, SCHEMA)
    assert not data["feasible"]
    assert data["reasons"]


def test_plot_is_drawn(tmp_path: Path) -> None:
    out = tmp_path / "plan.png"
    assert run(BOX, "--total-qps", "200000", "--plot", str(out)).exit_code == 1
    assert out.read_bytes().startswith(b"\x89PNG")


def test_verdict_on_an_added_model_ignores_models_that_miss_their_slo_without_it() -> None:
    answer = run(BOX, "--total-qps", "20000", "--add", "x", "--qps", "300")
    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith("x fits: joins ")
    assert "miss their SLOs even without it" in answer.output
    assert "Plan with x not feasible: 42 models on 128 cores, 20,300 requests/s\n" in answer.output
    assert run(BOX, "--total-qps", "20000", "--add", "x", "--qps", "90000").exit_code == 1


def test_model_that_misses_its_slo_on_idle_cores_is_reported_with_its_part() -> None:
    answer = run(BOX, "--total-qps", "20000", "--explain-model", "heavy-5")
    said = r"(heavy-\d): about (\d\.\d)% of its requests take longer than 35 ms even on idle cores"
    late = re.findall(said, answer.output)
    assert [name for name, _ in late] == ["heavy-5", "heavy-4", "heavy-3", "heavy-2"]
    # The simulator's finer tables have 2.7 % to 1.1 %.
    assert [float(part) for _, part in late] == pytest.approx([2.7, 2.1, 1.6, 1.1], abs=0.3)
    assert f"About {late[0][1]}% of its requests" in answer.output


def test_model_that_does_not_fit_exits_with_status_1() -> None:
    arguments = ("--total-qps", "20000", "--parallel", "0.8", "--add", "x", "--qps", "90000", "--slo-p99-ms", "20")
    answer = run(BOX, *arguments)
    assert answer.exit_code == 1
    assert "does not fit, because all SLOs together need" in answer.output


def test_interference_is_scaled(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    file.write_text('{"switch": 0.1, "shared_cache": 0.2, "bandwidth": 0.3}')
    arguments = (BOX, "--total-qps", "100", "--json", "--interference", str(file), "--interference-scale", "2")
    data = json.loads(run(*arguments).stdout)
    assert data["interference"] == {"switch": 0.2, "shared_cache": 0.4, "bandwidth": 0.6}


def test_coefficients_missing_in_the_file_keep_their_values(tmp_path: Path) -> None:
    fitted = Calibration(cpu_model(), Disturbance(), Interference(0.1, 0.2, 0.3, 0.5, 0.25))
    fitted.save(tmp_path / "calibration.json")
    # A profile of one CPU contains no bandwidth.
    Profile("f", cpu_model(), interference={"switch": 0.7, "shared_cache": 0.4}).save(tmp_path / "profile.json")
    workload, costs = read_costs(
        load_workload(BOX), tmp_path / "calibration.json", tmp_path / "profile.json", 1.0, False
    )
    assert costs == Interference(0.7, 0.4, 0.3, 0.5, 0.25)
    (tmp_path / "none.json").write_text('{"interference": {"bandwith": 1}}')
    with pytest.raises(ProfileError, match="no coefficient of interference found, expected one of switch"):
        read_costs(workload, None, tmp_path / "none.json", 1.0, False)


def test_guessed_coefficients_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("cost_model.interference.MEASURED", tmp_path / "interference.json")
    assert "coefficients of interference: guessed" in run(BOX, "--total-qps", "100").output
    (tmp_path / "interference.json").write_text('{"switch": 0.1, "shared_cache": 0.2, "bandwidth": 0.3}')
    assert "guesses" not in run(BOX, "--total-qps", "100").output


def test_profile_path_is_relative_to_the_workload_and_named_if_missing(tmp_path: Path) -> None:
    made = Profile("f", cpu_model())
    made.add(1, 1, np.array([100.0, 110.0]))
    made.save(tmp_path / "profile.json")
    file = tmp_path / "workload.yaml"
    text = (
        "machine: {cores: 2}\nmodels:\n"
        "  - {name: a, role: baseline, profile: NAME, rows: {constant: 1}, slo_p99_ms: 5, qps: 9}\n"
    )
    file.write_text(text.replace("NAME", "profile.json"))
    assert run(str(file)).exit_code == 0
    file.write_text(text.replace("NAME", "none.json"))
    answer = run(str(file))
    assert answer.exit_code == 2
    assert f"{file}: models[0] (a).profile: " in answer.stderr
    assert "none.json" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([BOX], "expected total_qps in the file or --total-qps"),
        ([BOX, "--total-qps", "nan"], "--total-qps: nan found"),
        ([BOX, "--qps", "5"], "found without --add"),
        ([BOX, "--total-qps", "100", "--add", "x"], "--qps: None found"),
        ([BOX, "--total-qps", "100", "--add", "x", "--qps", "-1"], "--qps: -1.0 found"),
        ([BOX, "--total-qps", "100", "--add", "x", "--qps", "1", "--slo-p99-ms", "0"], "--slo-p99-ms: 0.0 found"),
        ([BOX, "--total-qps", "100", "--add", "x", "--qps", "1", "--like", "nobody"], "nobody: no such model"),
        ([BOX, "--total-qps", "100", "--add", "ranking", "--qps", "1"], "found in the plan already"),
        ([BOX, "--total-qps", "1e308"], "--total-qps: 1e+308 found"),
        ([BOX, "--total-qps", "100", "--add", "x", "--qps", "nan"], "--qps: nan found"),
        ([BOX, "--total-qps", "100", "--plot", "x.foo"], "--plot: 'x.foo' found, expected a name that ends in"),
        (["no.yaml"], "no.yaml: No such file"),
        ([BOX, "--machine", "no.yaml"], "no.yaml: No such file"),
        ([BOX, "--total-qps", "100", "--interference", "no.json"], "no.json"),
    ],
)
def test_wrong_usage_exits_with_status_2(arguments: list[str], message: str) -> None:
    answer = run(*arguments)
    assert answer.exit_code == 2, answer.output
    assert message in answer.stderr


def test_cpu_that_the_machine_lacks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "machine.yaml").write_text("cpus: '0,4095'\n")
    answer = run(BOX, "--total-qps", "100", "--machine", str(tmp_path / "machine.yaml"))
    assert answer.exit_code == 2
    assert "CPU 4095, which this machine does not have" in answer.stderr


def test_python_m_cost_model_runs() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "cost_model", "plan", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "--slo-p99-ms" in answer.stdout
