# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from cost_model.cli.app import app, load_verbs

ROOT = Path(__file__).resolve().parents[3]
SCHEMAS = ROOT / "docs" / "schemas"
SCHEMA = json.loads((SCHEMAS / "placement.schema.json").read_text(encoding="utf-8"))
SIMULATION = json.loads((SCHEMAS / "fleet_simulation.schema.json").read_text(encoding="utf-8"))
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
    jsonschema.validate(data, SIMULATION)
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


def test_a_placement_in_use_is_simulated(files: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "workload.yaml").write_text(WORKLOAD + TRAFFIC, encoding="utf-8")
    file = tmp_path / "placement.json"
    made = json.loads(run(*files, "--json").stdout)
    file.write_text(json.dumps(made), encoding="utf-8")
    arguments = ["simulate", files[0], "--machines", files[1], "--mtbf-days", "0.01", "--json"]

    def simulate(*more: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--placement", str(file), *more])

    same = simulate()
    assert same.exit_code == 0, same.output
    assert json.loads(same.stdout) == json.loads(CliRunner().invoke(app, arguments).stdout)
    # With a core less for each replica, the same requests keep the cores busier.
    less = [replica | {"cores": max(1, replica["cores"] - 1)} for replica in made["replicas"]]
    file.write_text(json.dumps(made | {"replicas": less}), encoding="utf-8")
    before, after = (json.loads(answer.stdout)["runs"][0]["worst_loss"]["busiest"] for answer in (same, simulate()))
    assert after > before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda replica: replica | {"machine": "host-99"}, "machine 'host-99' found, expected one of the fleet"),
        (lambda replica: replica | {"name": "other"}, "model 'other' found, expected one of the workload"),
        (lambda replica: replica | {"cores": 0}, "cores"),
        (lambda replica: replica | {"cores": 16}, "cores placed, expected at most 16"),
        (lambda replica: replica | {"name": "trial-0", "pool": None}, "no replica of ranking found"),
    ],
)
def test_placement_of_something_else_is_refused(
    files: tuple[str, str], tmp_path: Path, change: Callable[[dict[str, Any]], dict[str, Any]], message: str
) -> None:
    (tmp_path / "workload.yaml").write_text(WORKLOAD + TRAFFIC, encoding="utf-8")
    file = tmp_path / "placement.json"
    made = json.loads(run(*files, "--json").stdout)
    file.write_text(json.dumps(made | {"replicas": [change(replica) for replica in made["replicas"]]}))
    answer = CliRunner().invoke(app, ["simulate", files[0], "--machines", files[1], "--placement", str(file)])
    assert answer.exit_code == 2, answer.output
    assert message in " ".join(answer.output.split())
    alone = CliRunner().invoke(app, ["simulate", files[0], "--placement", str(file)])
    assert "expected both" in alone.output
