# SPDX-License-Identifier: Apache-2.0
"""Run `cost-model simulate` as a user does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cost_model.cli.app import app, load_verbs

WORKLOAD = """
machine: {cores: 4}
models:
  - {name: base, role: baseline, fixed_us: 900, per_row_us: 100, cv: 0.3, rows: {constant: 1}, slo_p99_ms: 10,
     share: 0.6}
  - {group: v, count: 2, role: variant, fixed_us: 900, per_row_us: 100, cv: 0.3, rows: {constant: 1}, slo_p99_ms: 10,
     share: 0.4}
traffic:
  - {name: steady, kind: poisson, minutes: 0.2}
  - {name: bursts, kind: mmpp, minutes: 0.2, states: [{level: 0.5, mean_s: 2}, {level: 1.5, mean_s: 1}]}
"""


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "workload.yaml"
    path.write_text(WORKLOAD)
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    load_verbs()
    answer = CliRunner().invoke(app, ["simulate", *map(str, arguments)])
    return answer.exit_code, answer.stdout, answer.stderr


def test_search_prints_the_capacity_of_a_policy(workload: Path) -> None:
    code, out, error = run(workload, "--policy", "shared", "--traffic", "steady", "--seed", 1, "--json")
    assert code == 0, error
    (row,) = json.loads(out)["capacities"]
    assert 2500 < row["qps"] < 4100
    assert row["qps"] < row["bound_qps"]


def test_run_at_a_rate_shows_each_model_and_draws(workload: Path, tmp_path: Path) -> None:
    picture = tmp_path / "cores.png"
    options = ("--policy", "dynamic", "--qps", 2000, "--traffic", "bursts", "--plot", picture)
    code, out, error = run(workload, *options, "--json")
    assert code == 0, error
    (found,) = json.loads(out)["runs"]
    assert [model["name"] for model in found["models"]] == ["base", "v-0", "v-1"]
    assert found["met"]
    assert picture.read_bytes()[:4] == b"\x89PNG"
    code, out, _ = run(workload, "--policy", "dynamic", "--qps", 2000, "--traffic", "bursts")
    assert code == 0
    assert "every model meets its SLO" in out
    assert "p99 [ms]" in out
    assert "judged" not in out


def test_model_slowed_by_an_event_is_reported_as_not_judged(workload: Path) -> None:
    event = ", events: [{at_s: 3, model: v-1, service_factor: 30}, {at_s: 6, model: v-1, service_factor: 1}]}"
    workload.write_text(WORKLOAD.replace("kind: poisson, minutes: 0.2}", "kind: poisson, minutes: 0.2" + event))
    options = ("--policy", "dynamic", "--traffic", "steady", "--seed", 1)
    why = "v-1 is not judged from 3 to 6 s: at 30 times its service time, 100% of its requests miss its SLO"
    code, out, error = run(workload, *options, "--qps", 200)
    assert code == 0, error
    assert "200 requests/s: no judged model misses more than it may" in out
    assert "v-1 *" in out
    assert why in out
    code, out, error = run(workload, *options)
    assert code == 0, error
    assert f"steady: {why}" in out
    code, out, _ = run(workload, *options, "--qps", 200, "--json")
    (found,) = json.loads(out)["unjudged"]
    assert (found["traffic"], found["name"], found["from_s"], found["until_s"]) == ("steady", "v-1", 3, 6)


def test_higher_limit_of_a_model_that_misses_alone_is_reported(workload: Path) -> None:
    # A mean of 1 ms with a coefficient of variation of 0.3: 2.5 % are above 1.7 ms.
    workload.write_text(WORKLOAD.replace("slo_p99_ms: 10", "slo_p99_ms: 1.7", 1))
    code, out, error = run(workload, "--policy", "shared", "--traffic", "steady", "--qps", 100)
    assert code == 0, error
    assert "no judged model misses more than it may" in out
    assert "may miss more than 1% (twice the part that they miss alone on idle cores, at most 10%): base 4.9%" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--policy", "best"), "--policy: 'best' found, expected one of shared"),
        (("--seed", "-1"), "--seed"),
        (("--minutes-scale", "inf"), "--minutes-scale: inf found, expected a finite number"),
        (("--plot", "x.foo"), "--plot: 'x.foo' found, expected a name that ends in"),
        (("--traffic", "storm"), "--traffic: 'storm' found, expected one of steady, bursts"),
    ],
)
def test_wrong_usage_prints_one_line(workload: Path, options: tuple[str, str], message: str) -> None:
    code, _, error = run(workload, *options)
    assert code == 2
    assert message in error
    assert "Traceback" not in error


def test_model_that_no_policy_serves_is_reported(workload: Path) -> None:
    workload.write_text(WORKLOAD.replace("slo_p99_ms: 10", "slo_p99_ms: 1", 1))
    code, out, error = run(workload, "--policy", "shared", "--traffic", "steady", "--qps", 10, "--json")
    assert code == 0, error
    assert "base misses its SLO on idle cores" in error
    data = json.loads(out)
    assert data["unserved"] == ["base"]
    assert not data["runs"][0]["met"]


def test_policy_that_needs_more_cores_is_left_out_of_all(workload: Path) -> None:
    workload.write_text(WORKLOAD.replace("cores: 4", "cores: 2"))
    options = ("--traffic", "steady", "--qps", 100, "--json")
    code, out, error = run(workload, *options)
    assert code == 0, error
    assert "static is left out: it needs 3 cores, and there are 2" in error
    assert [load["policy"] for load in json.loads(out)["runs"]] == ["shared", "baseline-pool", "planned", "dynamic"]
    code, _, error = run(workload, "--policy", "static", *options)
    assert code == 2
    assert "static: 2 cores found, expected at least 3" in error
