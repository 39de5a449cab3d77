# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from load_tests import python_threads


class Shifty:
    """A model that answers something else each time."""

    def __init__(self) -> None:
        self.calls = 0

    def run(self, inputs: object) -> dict[str, np.ndarray]:
        self.calls += 1
        return {"prob": np.full((2, 1), self.calls / 100, np.float32)}


def test_quick_run_writes_results(tiny_model: Path, library: Path, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    arguments = ["--quick", "--workload", "tiny", "--rows", "8", "--cache", str(tiny_model.parent)]
    assert python_threads.main([*arguments, "--output", str(output)]) == 0
    results = json.loads(output.read_text())
    assert results["quick"]
    assert results["targets"] == []
    assert {case["strings"] for case in results["cases"]} == {"fixed width", "objects"}
    for case in results["cases"]:
        assert case["one_thread"] > 0
        assert case["description_us"] > 0
    assert {"commit", "cpu", "versions"} <= set(results["environment"])


def test_differing_outputs_are_detected() -> None:
    forms = python_threads._forms("tiny", 2)
    with pytest.raises(AssertionError):
        python_threads.check_answers(Shifty(), forms)  # type: ignore[arg-type]
