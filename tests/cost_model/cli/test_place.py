# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from cost_model.cli.app import app, load_verbs

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "docs" / "schemas" / "placement.schema.json").read_text(encoding="utf-8"))
WORKLOAD = """
models:
  - {name: ranking, role: baseline, fixed_us: 500, per_row_us: 10, cv: 0.4, rows: {constant: 50}, slo_p99_ms: 10,
     qps: 6000, memory_gb: 2, tables: {files: {users: 20GB}}, version: 7}
  - {group: trial, count: 3, role: variant, of: ranking, serves: ranking, fixed_us: 500, per_row_us: 10, cv: 0.4,
     rows: same, slo_p99_ms: 10, qps: 900, memory_gb: 2, tables: {files: {users: 20GB}}}
"""
FLEET = "machines: [{group: host, count: 6, cores: 16, memory_gb: 64, zones: [a, b, c]}]"


@pytest.fixture(scope="module", autouse=True)
def _verbs() -> None:
    load_verbs()


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "workload.yaml").write_text(WORKLOAD, encoding="utf-8")
    (tmp_path / "fleet.yaml").write_text(FLEET, encoding="utf-8")
    return str(tmp_path / "workload.yaml"), str(tmp_path / "fleet.yaml")


def run(workload: str, fleet: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["place", workload, "--machines", fleet, *arguments])


def test_json_conforms_to_the_schema_and_is_the_next_previous_placement(files: tuple[str, str], tmp_path: Path) -> None:
    answer = run(*files, "--json", "--explain")
    assert answer.exit_code == 0, answer.output
    data = json.loads(answer.stdout)
    jsonschema.validate(data, SCHEMA)
    replicas = {(replica["model"], replica["version"], replica["name"]) for replica in data["replicas"]}
    assert ("ranking", "7", "ranking") in replicas
    assert ("ranking", None, "trial-0") in replicas
    trials = [replica for replica in data["replicas"] if replica["name"].startswith("trial")]
    by_machine: dict[str, set[tuple[str, int]]] = {}
    for replica in trials:
        by_machine.setdefault(replica["machine"], set()).add((replica["core_list"], replica["pool"]))
    assert all(len(cores) == 1 for cores in by_machine.values()), "a pool has the same cores for all its models"
    (tmp_path / "placement.json").write_text(answer.stdout, encoding="utf-8")
    again = json.loads(run(*files, "--json", "--previous", str(tmp_path / "placement.json")).stdout)
    assert again["moves"] == []


def test_tables_explain(files: tuple[str, str]) -> None:
    answer = run(*files, "--explain-model", "trial-1")
    assert answer.exit_code == 0, answer.output
    assert "the loss of any zone is survived" in answer.output
    assert "read the same tables, which are in memory once" in answer.output


def test_a_workload_that_does_not_fit_exits_with_1(files: tuple[str, str]) -> None:
    answer = run(*files, "--headroom", "20")
    assert answer.exit_code == 1, answer.output
    assert "not feasible" in answer.output
    assert "too few" in answer.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--survive", "rack"], "--survive: 'rack' found, expected one of none, machine, zone"),
        (["--explain-model", "x"], "x: no such model"),
        (["--previous", "{workload}"], "expected the JSON of `cost-model place --json`"),
    ],
)
def test_faults_exit_with_2(files: tuple[str, str], arguments: list[str], message: str) -> None:
    answer = run(*files, *(argument.format(workload=files[0]) for argument in arguments))
    assert answer.exit_code == 2
    assert message in answer.output.replace("\n", " ")


TRAFFIC = """
traffic:
  - {name: steady, kind: poisson, minutes: 1}
  - {name: high, kind: poisson, minutes: 1, level: 1.6}
"""


def test_a_fleet_is_simulated(files: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "workload.yaml").write_text(WORKLOAD + TRAFFIC, encoding="utf-8")
    picture = tmp_path / "fleet.png"
    arguments = ["simulate", files[0], "--machines", files[1], "--mtbf-days", "0.01", "--rollout-machines", "1"]
    answer = CliRunner().invoke(app, [*arguments, "--json", "--plot", str(picture)])
    assert answer.exit_code == 0, answer.output
    data = json.loads(answer.stdout)
    steady, high = data["runs"]
    assert not steady["losses"]
    assert high["losses"]
    assert steady["worst_loss"]["busiest"] < 1 < high["worst_loss"]["busiest"]
    assert {version["model"] for version in data["bad_versions"]} == {"ranking"}
    assert picture.stat().st_size > 10_000
    text = CliRunner().invoke(app, arguments)
    assert "the loss of any machine or zone is survived" in text.output
    assert "A bad version of ranking" in text.output
    refused = CliRunner().invoke(app, [*arguments, "--policy", "dynamic"])
    assert refused.exit_code == 2
