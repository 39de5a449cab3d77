# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from cost_model.errors import WorkloadError
from cost_model.workload import parse_workload

MODEL = {"name": "a", "role": "baseline", "fixed_us": 9, "per_row_us": 0, "cv": 0, "rows": {"constant": 1}}
MODEL |= {"slo_p99_ms": 5, "qps": 1}


def parse(**more: Any) -> Any:
    return parse_workload({"models": [MODEL | more]}).models[0]


def test_members_are_read() -> None:
    files = {"files": {"t": "90GB"}, "tier": "tiered", "memory": "7GB"}
    model = parse(tables=files, version=3, replicas={"least": 2}, speedups={"avx512_bf16": 1.5}, serves="ranking")
    assert model.footprint.version == "3"
    assert (model.footprint.least_replicas, model.footprint.most_replicas) == (2, None)
    assert model.footprint.speedups == (("avx512_bf16", 1.5),)
    assert model.footprint.serves == "ranking"
    assert list(model.memory.tables.values()) == [7_000_000_000]
    assert list(model.memory.files.values()) == [90_000_000_000]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"replicas": 0}, "replicas: 0 found, expected an integer from 1"),
        ({"replicas": {"least": 3, "most": 2}}, "replicas.most: 2 found, expected an integer from 3"),
        ({"speedups": {"avx": "x"}}, "speedups.avx: 'x' found, expected a number"),
        ({"version": True}, "version: True found, expected a number or a text"),
    ],
)
def test_faults_are_named(model: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        parse(**model)
