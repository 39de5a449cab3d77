# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from cost_model.errors import MachineError
from cost_model.fleet.machines import parse_fleet

HOST = {"name": "a", "cores": 8, "memory_gb": 32}


def test_group_is_spread_over_zones() -> None:
    fleet = parse_fleet({"machines": [{"group": "m", "count": 5, "cores": 4, "memory_gb": 8, "zones": ["x", "y"]}]})
    assert [machine.name for machine in fleet.machines] == ["m-0", "m-1", "m-2", "m-3", "m-4"]
    assert [machine.zone for machine in fleet.machines] == ["x", "y", "x", "y", "x"]
    assert fleet.zones == ("x", "y")
    assert fleet.machines[0].cost == 4


def test_features_of_the_cpu_make_models_faster() -> None:
    fast = HOST | {"name": "b", "speed": 1.5, "features": ["avx512_bf16"]}
    fleet = parse_fleet({"machines": [HOST, fast]})
    assert fleet.speeds(()) == (1.0, 1.5)
    assert fleet.speeds((("avx512_bf16", 2.0),)) == (1.0, 3.0)


@pytest.mark.parametrize(
    ("machines", "message"),
    [
        ([HOST, HOST], "machines: 'a' found twice"),
        ([HOST | {"cpus": 3}], r"machines\[0\] \(a\): unknown member 'cpus' found"),
        ([HOST | {"memory_gb": 0}], r"machines\[0\] \(a\).memory_gb: 0 found, expected a number above 0"),
        ([{"name": "a", "memory_gb": 3}], r"\(a\).cores: nothing found"),
        ([HOST, HOST | {"name": "b", "zone": "z"}], "no zone of 'a' found"),
        ([HOST | {"zones": ["x"]}], "zones of a single machine found"),
        ([HOST | {"features": "avx"}], r"features: 'avx' found, expected a list"),
        ([], "machines: list \\[\\]|machines: \\[\\] found"),
    ],
)
def test_faults_are_named(machines: list[Any], message: str) -> None:
    with pytest.raises(MachineError, match=message):
        parse_fleet({"machines": machines})
