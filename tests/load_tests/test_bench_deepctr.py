# SPDX-License-Identifier: Apache-2.0
"""Check the inputs and targets of the benchmark of DeepCTR's models, and run it briefly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from load_tests.bench_deepctr import inputs_of, judge, main, summarize


def _output(stock: float, fused: float) -> dict[str, Any]:
    figures = {"p50_us": 1.0, "p99_us": 2.0, "cpu_s_per_1000": 1.0}
    engines = [
        {
            "engine": name,
            "max_abs_difference": 1e-7,
            "rounds": [figures | {"requests_per_s": rate + i} for i in (-1, 0, 1)],
        }
        for name, rate in (("stock", stock), ("fused", fused))
    ]
    return {"engines": engines}


def test_model_slower_than_stock_misses_its_target() -> None:
    cases = [summarize("DeepFM", 1, _output(100.0, 450.0)), summarize("BST", 128, _output(100.0, 99.0))]
    assert [case["speedup"] for case in cases] == [4.5, 0.99]
    assert [target.ok for target in judge(cases)] == [True, False]


def test_generated_histories_end_at_their_length() -> None:
    specs = [
        {"name": "hist_item_id", "dtype": "DT_INT32", "shape": [-1, 20]},
        {"name": "seq_length", "dtype": "DT_INT32", "shape": [-1, 1]},
        {"name": "city", "dtype": "DT_STRING", "shape": [-1, 1]},
        {"name": "I0", "dtype": "DT_FLOAT", "shape": [-1, 1]},
        {"name": "C3", "dtype": "DT_INT64", "shape": [-1, 1]},
    ]
    inputs = inputs_of(specs, 7, np.random.default_rng(0))
    np.testing.assert_array_equal((inputs["hist_item_id"] > 0).sum(1), inputs["seq_length"][:, 0])
    assert [inputs[spec["name"]].shape for spec in specs] == [(7, 20), (7, 1), (7, 1), (7, 1), (7, 1)]
    assert inputs["city"].dtype == object
    assert inputs["I0"].dtype == np.float32
    assert inputs["C3"].max() < 400


@pytest.mark.slow
def test_quick_run(bench_serving: Path, library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "results.json"
    arguments = ["--quick", "--models", "DeepFM", "--rows", "3", "--output", str(output), "--library", str(library)]
    assert main([*arguments, "--bench-dir", str(bench_serving.parent)]) == 0
    (case,) = json.loads(output.read_text())["cases"]
    assert (case["model"], case["rows"]) == ("DeepFM", 3)
    assert case["engines"]["fused"]["max_abs_difference"] <= 2e-5
    assert "the outputs agree" in capsys.readouterr().out
