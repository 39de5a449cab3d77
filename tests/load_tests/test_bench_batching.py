# SPDX-License-Identifier: Apache-2.0
"""Check the summary and the targets of the benchmark of batching, and run it briefly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from load_tests import bench_batching
from load_tests.bench_batching import MODES, judge, main, summarize
from load_tests.workloads import ensure_model


def _output(rates: dict[str, float], p99: dict[str, float]) -> dict[str, Any]:
    figures = {"mean_us": 1.0, "p50_us": 1.0, "cpu_s_per_1000": 0.1}
    counts = {"count": 4, "mean": 4.0, "max": 8, "buckets": {"1": 1, "8": 3}}
    engines = [
        {
            "engine": mode,
            "max_abs_difference": 0.0,
            "statistics_after": {"batching": {"requests": counts}},
            "rounds": [figures | {"requests_per_s": rates[mode] * i, "p99_us": p99[mode]} for i in (1, 2, 3)],
        }
        for mode in MODES
    ]
    return {"threads": 16, "engines": engines}


@pytest.mark.parametrize(("rate", "p99", "reached"), [(151.0, 900.0, [True, True]), (149.0, 1001.0, [False, False])])
def test_targets_are_those_of_zero_wait(rate: float, p99: float, reached: list[bool]) -> None:
    output = _output({"off": 100.0, "zero_wait": rate, "timed": 1.0}, {"off": 1000.0, "zero_wait": p99, "timed": 1e6})
    case = summarize("W1", 1, output)
    assert case["ratios"]["zero_wait"] == {"requests_per_s": rate / 100, "p99_us": p99 / 1000}
    assert case["engines"]["zero_wait"]["runs"] == {"requests_per_run": 4.0, "most": 8, "shared": 0.9375}
    assert [target.ok for target in judge([case])] == reached
    assert judge([summarize("W2", 1, output)]) == []


def test_quick_run(bench_serving: Path, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The model as it was exported: the other quick runs optimize theirs.
    monkeypatch.setattr(bench_batching, "fuse", lambda workload, *_: ensure_model(workload))
    output = tmp_path / "results.json"
    arguments = ["--quick", "--workloads", "W2", "--output", str(output), "--library", str(library)]
    assert main([*arguments, "--bench-dir", str(bench_serving.parent)]) == 0
    results = json.loads(output.read_text())
    (case,) = results["cases"]
    assert set(case["engines"]) == set(MODES)
    assert case["engines"]["timed"]["runs"]["most"] > 1
    assert results["quick"] is True
    assert results["targets"] == []
