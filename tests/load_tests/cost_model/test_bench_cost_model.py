# SPDX-License-Identifier: Apache-2.0
"""Run the benchmark of the cost model for a part of its minutes; CI keeps its pictures in results/cost-model."""

from __future__ import annotations

import json

import pytest

from load_tests._programs import ROOT
from load_tests.bench_cost_model import main

PICTURES = ROOT / "results" / "cost-model"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_quick_run_writes_results_and_pictures() -> None:
    out = PICTURES / "bench_cost_model_quick.json"
    out.unlink(missing_ok=True)
    # One process, because each further one would import all modules again.
    arguments = ["--quick", "--minutes-scale", "0.002", "--policies", "baseline-pool,dynamic", "--jobs", "1"]
    assert main([*arguments, "--out", str(out)]) == 0
    results = json.loads(out.read_text())
    assert results["quick"]
    kinds = {result["traffic"] for result in results["capacities"]}
    assert kinds == {"steady", "diurnal", "bursts", "shifting-experiments", "slow-variant"}
    # In so few seconds, some kinds of traffic have a model that no policy serves; they are not compared.
    carried = [result for result in results["capacities"] if result["interference"] == 1.0 and result["qps"]]
    assert {result["policy"] for result in carried} == {"baseline-pool", "dynamic"}
    assert all(0 < result["qps"] < 1.05 * result["bound_qps"] for result in carried)
    pictures = [path for path in PICTURES.glob(f"{out.stem}_*.png") if path.stat().st_mtime >= out.stat().st_mtime]
    assert len(pictures) == len({row["traffic"] for row in results["capacities"] if row["qps"]})
