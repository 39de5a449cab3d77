# SPDX-License-Identifier: Apache-2.0
"""Check the targets of the benchmark of the cost model on real hosts, and run it briefly."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_serving.apis import predict_pb2

from load_tests.cores.__main__ import main
from load_tests.cores.measure import late_windows, recovery_s
from load_tests.cores.report import judge, spread_of
from load_tests.latencies import Latencies
from load_tests.request_files import encode_request, name_model


def _sides(alone: float, again: float, planned: float, failed: int = 0) -> dict[str, dict[str, Any]]:
    p99 = {"alone": alone, "alone again": again, "planned": planned, "shared": 10 * planned}
    return {
        name: {"p99_us": value, "failed": {"timeout": failed} if name == "planned" else {}}
        for name, value in p99.items()
    }


def _burst(seconds: float) -> dict[str, dict[str, Any]]:
    return {"variant": {"title": "the variant", "from": "begin", "recovery_s": seconds}}


def test_plan_is_judged_by_the_mean_alone_plus_its_spread() -> None:
    sides = _sides(900.0, 1100.0, 1490.0)
    assert spread_of(sides) == pytest.approx(0.2)
    assert [target.ok for target in judge(sides, _burst(4.5))] == [True, True, True]
    assert [target.ok for target in judge(_sides(900.0, 1100.0, 1510.0, failed=1), _burst(5.5))] == [False] * 3


def test_recovery_needs_two_seconds_without_late_windows() -> None:
    at = np.arange(1000) / 100 + 0.001
    microseconds = np.full(at.size, 100.0)
    late = (at >= 1.0) & (at < 2.3)
    microseconds[late] = 900.0
    assert recovery_s(Latencies(at, microseconds), [(0.0, 10.0)], 500.0) == 2.5
    assert recovery_s(Latencies(at, microseconds), [(3.0, 10.0)], 500.0) == 0.0
    microseconds[(at >= 4.0) & (at < 4.1)] = 900.0
    assert recovery_s(Latencies(at, microseconds), [(0.0, 10.0)], 500.0) == 4.5
    assert late_windows(Latencies(at, microseconds), [(1.0, 5.0)], 500.0) == [True] * 3 + [False] * 3 + [True, False]
    gone = ~((at >= 5.0) & (at < 5.5))
    assert recovery_s(Latencies(at[gone], microseconds[gone]), [(0.0, 10.0)], 500.0) == 5.5, "no answer is no good sign"
    assert recovery_s(Latencies(at, microseconds), [(0.0, 3.0)], 500.0) == 3.0, "it has not"


def test_a_request_may_name_a_version() -> None:
    plain = encode_request({"x": np.ones(3, np.float32)}, "tfserving")
    spec = predict_pb2.PredictRequest.FromString(name_model(plain, "ranking", 300)).model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("ranking", 300, "serving_default")


@pytest.mark.long
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: there is nothing to divide")
def test_a_quick_run_measures_all_sides(tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    assert main(["--quick", "--bursts", "1", "--rows", "16", "--output", str(output)]) == 0
    found = json.loads(output.read_text())
    assert found["sides"].keys() == {"alone", "planned", "shared", "alone again"}
    assert all(side["requests"] > 0 for side in found["sides"].values())
    # The variant is overloaded; the controller decides whether requests are refused in so short a time.
    for name in ("planned", "shared"):
        assert 0 < found["sides"][name]["variant_per_s"] < found["variant_requests_per_s"]
    assert any("Cores (control)" in line for line in found["explained"]["1"])
    assert output.with_suffix(".png").stat().st_size > 10_000
