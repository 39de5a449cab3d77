# SPDX-License-Identifier: Apache-2.0
"""Check the figures and targets of the benchmark of hosts, and run it briefly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from load_tests._programs import ROOT
from load_tests.bench_hosts import main
from load_tests.hosts import churn, overhead, startup, throughput
from load_tests.hosts.changes import KINDS
from load_tests.latencies import Latencies
from load_tests.request_files import encode_request, name_model
from load_tests.workloads import ensure_model


def test_overhead_is_the_difference_within_a_round() -> None:
    bare = [{"p50_us": 200.0, "p99_us": 300.0}, {"p50_us": 400.0, "p99_us": 900.0}, {"p50_us": 210.0, "p99_us": 310.0}]

    def engine(name: str, p50: float, p99: float) -> dict[str, Any]:
        rounds = [{"p50_us": turn["p50_us"] + p50, "p99_us": turn["p99_us"] + p99} for turn in bare]
        return {"engine": name, "load_seconds": 1.0, "rounds": rounds}

    cases = overhead.summarize({"engines": [engine("bare", 0, 0), engine("1", 9.0, 31.0), engine("40", 11.0, 29.0)]})
    assert [case["models"] for case in cases] == [None, 1, 40]
    assert [target.ok for target in overhead.judge(cases)] == [True, False, False, True]


@pytest.mark.parametrize(("rate", "p50", "reached"), [(10_000.0, 400.0, True), (4999.0, 801.0, False)])
def test_targets_of_throughput(rate: float, p50: float, reached: bool) -> None:
    figures = {"host": "go", "requests_per_s": rate, "p50_us": p50}
    cases = [figures | {"over": over, "clients": clients} for over in ("grpc", "rest") for clients in (1, 16)]
    assert [target.ok for target in throughput.judge(cases)] == [reached] * 4


@pytest.mark.parametrize(("seconds", "resident_mb", "reached"), [(1.5, 360.0, True), (1.6, 361.0, False)])
def test_memory_of_hosts_is_judged_beyond_that_of_tensorflow(seconds: float, resident_mb: float, reached: bool) -> None:
    cases: list[dict[str, Any]] = [
        {"what": "import processor", "seconds": 0.2},
        {"what": "TensorFlow alone", "resident_mb": 300.0},
        {"what": "go", "seconds": seconds, "resident_mb": resident_mb},
    ]
    assert [target.ok for target in startup.judge(cases)] == [True, reached, reached]


def _latencies() -> Latencies:
    """A thousand requests a second for ten seconds, 1 to 100 us; ten times that after second 5 for a second."""
    at = np.arange(10_000) / 1000 + 0.0005
    microseconds = 1.0 + np.arange(at.size) % 100
    microseconds[(at >= 5) & (at < 6)] *= 10
    order = np.random.default_rng(0).permutation(at.size)
    return Latencies(at[order], microseconds[order])


def test_latencies_in_spans_and_around_moments() -> None:
    found = _latencies()
    assert found.within(0, 1).size == 1000
    late = Latencies(np.array([0.0, 1.0, 2.0]), np.array([1.5e6, 2.5e6, 0.5e6]))
    assert [late.answered(0, 1), late.answered(1, 2), late.answered(2, 4)] == [0, 1, 2], "by when they were answered"
    assert found.windows([(0, 2.5), (5, 6)], 1.0) == [99.0, 99.0, 990.0]
    course = found.around([5.0, 20.0], 0.2, 0.1)
    assert [window["from"] for window in course] == [-0.2, -0.1, 0.0, 0.1]
    assert [window["requests"] for window in course] == [100] * 4
    assert [window["p50_us"] for window in course] == [50, 50, 500, 500]
    assert found.around([20.0], 0.1, 0.1) == [{"from": -0.1, "requests": 0.0}, {"from": 0.0, "requests": 0.0}]


def _case(busy: tuple[float, float], failed: dict[str, int], memory: list[int]) -> dict[str, Any]:
    quiet: tuple[list[list[churn.Span]], list[list[churn.Span]]] = ([[(0, 1)]], [[(1, 2)]])
    figures = churn.summarize(_latencies(), quiet, [busy], {"ready": [5.0]}, KINDS["deployments"])
    sizes = [{"resident": size, "anonymous": size} for size in memory]
    return {"host": "go", "changes": "deployments", "cycles": 4, "failed": failed, "memory": sizes} | figures


def test_cost_of_changes_is_compared_with_quiet_periods() -> None:
    flat = [500, *[1000] * 18, 1050]
    good = _case((3, 5), {}, flat)
    assert (good["ratio"], good["spread"], good["courses"]["ready"]["switches"]) == (1.0, 0.0, 1)
    assert [target.ok for target in churn.judge([good])] == [True, True, True]
    assert churn.memory_spread(good["memory"]) == pytest.approx(0.05)
    bad = _case((4, 7), {"UNAVAILABLE": 1}, [500, 500, *[1000] * 17, 1051])
    assert bad["ratio"] == pytest.approx(9.7, abs=0.2)
    assert [target.ok for target in churn.judge([bad])] == [False, False, False]


def test_one_disturbed_round_does_not_decide() -> None:
    quiet: tuple[list[list[churn.Span]], list[list[churn.Span]]] = (
        [[(0, 1)], [(5, 6)], [(6, 7)]],
        [[(1, 2)], [(2, 3)], [(7, 8)]],
    )
    busy = [(2.0, 3.0), (3.0, 4.0), (5.0, 6.0)]
    figures = churn.summarize(_latencies(), quiet, busy, {}, KINDS["pinning"])
    assert [figure["busy_us"] for figure in figures["rounds"]] == [99.0, 99.0, 990.0]
    assert [turn["quiet_us"] for turn in figures["rounds"]] == [[99.0, 99.0], [990.0, 99.0], [99.0, 99.0]]
    assert (figures["ratio"], figures["spread"]) == (1.0, 0.0)
    assert figures["busy"]["p99_us"] > 900


def test_a_request_names_its_model() -> None:
    protos = pytest.importorskip("tensorflow_serving.apis.predict_pb2")
    request = encode_request({"x": np.ones((1, 2), np.float32)}, "tfserving")
    found = protos.PredictRequest.FromString(name_model(request, "ranking"))
    assert (found.model_spec.name, found.model_spec.signature_name) == ("ranking", "serving_default")
    assert list(found.inputs) == ["x"]


@pytest.mark.slow
def test_quick_run(bench_serving: Path, library: Path, tmp_path: Path) -> None:
    # One kind suffices for the program; tests/conformance and the demos serve with both.
    kinds = ["go" if (ROOT / "build" / "host-go" / "recprocessor-host").is_file() else "python"]
    if not (ROOT / "build" / "host-go" / "loadgen").is_file():
        pytest.skip("no load generator; `make host-go` makes it")
    output = tmp_path / "results.json"
    # The model as it was exported: the other quick runs optimize theirs.
    arguments = ["--quick", "--model", str(ensure_model("W2")), "--models", "2", "--cycles", "1", "--hosts", *kinds]
    arguments += ["--output", str(output), "--library", str(library)]
    assert main([*arguments, "--bench-dir", str(bench_serving.parent)]) == 0
    results = json.loads(output.read_text())
    assert {case["what"] for case in results["startup"]} == {"import processor", "TensorFlow alone", *kinds}
    assert [case["models"] for case in results["overhead"]] == [None, 2]
    assert {case["host"] for case in results["throughput"]} == {"none: the bare model", *kinds}
    assert [case["changes"] for case in results["churn"]] == list(KINDS) * len(kinds)
    for case in results["churn"]:
        # An overloaded machine may refuse requests, but no other failure is allowed.
        assert set(case["failed"]) <= {"RESOURCE_EXHAUSTED"}, case["failed"]
        assert case["busy"]["requests"] > 0
        assert len(case["memory"]) == case["cycles"]
    assert set(results["churn"][0]["courses"]) == {"deploy", "loading", "ready", "undeploy", "unloaded"}
