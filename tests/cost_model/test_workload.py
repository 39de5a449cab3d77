# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from cost_model.errors import WorkloadError
from cost_model.workload import RowDistribution, Sine, load_workload, parse_workload

BOX = Path(__file__).resolve().parents[2] / "cost_model" / "scenarios" / "box128.yaml"

GOOD: dict[str, Any] = {
    "machine": {"cores": 4},
    "models": [
        {"name": "a", "role": "baseline", "fixed_us": 10, "per_row_us": 1, "cv": 0.3, "rows": {"constant": 5}}
        | {"slo_p99_ms": 5, "share": 0.5},
        {"group": "b", "count": 2, "role": "variant", "of": "a", "fixed_us": 10, "per_row_us": [1, 3], "cv": 0.3}
        | {"rows": "same", "slo_p99_ms": 5, "share": 0.5},
    ],
    "traffic": [{"name": "t", "kind": "poisson", "minutes": 1}],
}


def changed(path: str, value: object) -> dict[str, Any]:
    """Return GOOD with one member set, or removed if the value is None."""
    data = copy.deepcopy(GOOD)
    *way, last = path.split(".")
    inner: Any = data
    for step in way:
        inner = inner[int(step) if step.isdigit() else step]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return data


def test_box128_scenario_is_read_completely() -> None:
    box = load_workload(BOX)
    assert box.machine is not None
    assert (len(box.machine.cores), box.machine.nodes) == (128, (0, 1))
    assert len(box.models) == 41
    assert sum(model.share or 0 for model in box.models) == pytest.approx(1)
    assert [box.model(f"variant-{i}").service.per_row_us for i in (0, 29)] == [10, 16]  # type: ignore[union-attr]
    assert box.model("heavy-3").rows == box.model("ranking").rows
    assert box.model("recall-0").rows == RowDistribution.constant(1)
    assert box.traffic[1].level == Sine(3600, 0.35, 1.0)
    assert box.traffic[4].events[1].service_factor == 1
    assert box.seeds == (1, 2, 3, 4)
    assert sum(box.qps_by_model(1000).values()) == pytest.approx(1000)


def test_sine_level_stays_between_low_and_high() -> None:
    sine = Sine(40, 0.2, 1.0)
    assert [sine.at(t) for t in (0, 10, 30)] == pytest.approx([0.6, 1.0, 0.2])


def test_model_with_its_own_rate_needs_no_total_rate() -> None:
    data = changed("models.0.share", None)
    data["models"][0]["qps"] = 30
    data["models"][1]["share"] = 1
    rates = parse_workload(data).qps_by_model(100)
    assert rates == {"a": 30, "b-0": 50, "b-1": 50}
    with pytest.raises(WorkloadError, match="share of an unknown total"):
        parse_workload(GOOD).qps_by_model()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("models.0.rows", None, r"models\[0\] \(a\)\.rows: nothing found"),
        ("models.0.rows", "same", "'same' without `of`"),
        ("models.0.rows", {"constant": 0}, "constant: 0 found"),
        ("models.0.rows", {"lognormal": {"mean": math.nan, "cv": 1}}, "mean: nan found"),
        ("models.0.rows", {"table": {}}, "expected a mapping of rows to weights"),
        ("models.0.share", -0.5, "share: -0.5 found"),
        ("models.0.share", math.nan, "share: nan found"),
        ("models.0.share", 0.4, "sum 0.9 found, expected 1"),
        ("models.0.qps", 4, "both share and qps"),
        ("models.0.role", "main", "'main' found, expected 'baseline' or 'variant'"),
        ("models.0.role", "variant", "no baseline found"),
        ("models.0.slo_p99_ms", 0, "slo_p99_ms: 0 found, expected a number above 0"),
        ("models.0.cv", "much", "cv: 'much' found"),
        ("models.0.cvv", 1, "unknown member 'cvv'"),
        ("models.1.of", "z", "'z' found, expected a model that stands before"),
        ("models.1.count", 0, "count: 0 found"),
        ("models.1.per_row_us", [1, 2, 3], r"expected a number, or \[first, last\]"),
        ("models.1.group", None, "either a name or a group"),
        ("models", [], "at least one item"),
        ("total_qps", -1, "total_qps: -1 found"),
        ("seeds", ["x"], "seeds: 'x' found"),
        ("traffic.0.minutes", 0, "minutes: 0 found"),
        ("traffic.0.kind", "mmpp", "0 states with kind 'mmpp'"),
        ("traffic.0.level", -1, "level: -1 found"),
        ("traffic.0.events", [{"at_s": 1, "model": "z", "service_factor": 2}], "model: 'z' found"),
        ("traffic.0.reshare", {"every_s": 1, "groups": ["z"], "dirichlet_alpha": 1}, "groups: 'z' found"),
        ("traffic.0.reshare", {"every_s": 1, "groups": [[1]], "dirichlet_alpha": 1}, r"groups: \[1\] found"),
        ("machine.cores", -3, "cores: -3 found"),
    ],
)
def test_bad_member_is_named(path: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_workload(changed(path, value))


def test_duplicate_model_name_is_refused() -> None:
    data = copy.deepcopy(GOOD)
    data["models"][1] |= {"group": "a", "of": "a"}
    data["models"].append(data["models"][0] | {"name": "a-0"})
    with pytest.raises(WorkloadError, match="'a-0' twice"):
        parse_workload(data)


def test_error_message_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    with pytest.raises(WorkloadError, match=r"w\.yaml: No such file"):
        load_workload(file)
    file.write_text("models: [")
    with pytest.raises(WorkloadError, match=r"w\.yaml: .* expected YAML"):
        load_workload(file)
    file.write_text("models: 3")
    with pytest.raises(WorkloadError, match=r"w\.yaml: workload\.models: 3 found"):
        load_workload(file)
