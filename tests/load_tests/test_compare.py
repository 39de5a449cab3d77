# SPDX-License-Identifier: Apache-2.0
"""Check the comparison of two result files."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from load_tests.compare import main


def _serving(rates: list[float]) -> dict[str, Any]:
    def rounds(values: list[float]) -> list[dict[str, float]]:
        return [{"requests_per_s": v, "p50_us": 10.0, "p99_us": 20.0, "cpu_s_per_1000": 0.1} for v in values]

    def engine(values: list[float]) -> dict[str, Any]:
        return {"requests_per_s": sorted(values)[len(values) // 2], "p99_us": 20.0, "rounds": rounds(values)}

    stock = [100.0] * len(rates)
    case = {
        "workload": "W2",
        "rows": 1,
        "protocol": "eas",
        "speedup": sorted(rates)[len(rates) // 2] / 100.0,
        "engines": {"stock": engine(stock), "processor": engine(rates)},
    }
    return {"benchmark": "serving", "quick": False, "cases": [case]}


def _memory(cost: float, growth: float, threads: int = 0) -> dict[str, Any]:
    return {
        "benchmark": "memory",
        "quick": False,
        "sessions": [{"workload": "W2", "cost_mb": cost}],
        "targets": [
            {"name": "10,000 cycles, growth after 100, MB", "value": growth},
            {"name": "10,000 cycles, change of threads", "value": threads},
        ],
    }


def _compare(folder: Path, old: dict[str, Any], new: dict[str, Any], *arguments: str) -> int:
    (folder / "old.json").write_text(json.dumps(old))
    (folder / "new.json").write_text(json.dumps(new))
    return main([str(folder / "old.json"), str(folder / "new.json"), *arguments])


def test_slower_beyond_the_band_is_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _compare(tmp_path, _serving([300.0] * 5), _serving([280.0] * 5)) == 1
    assert "0 better, 1 worse, 0 within" in capsys.readouterr().out


def test_change_inside_the_band_is_noise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _compare(tmp_path, _serving([300.0] * 5), _serving([290.0] * 5)) == 0
    assert "0 better, 0 worse, 1 within" in capsys.readouterr().out


def test_faster_beyond_the_band_is_better(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _compare(tmp_path, _serving([300.0] * 5), _serving([320.0] * 5)) == 0
    assert "1 better, 0 worse" in capsys.readouterr().out


def test_rounds_that_scatter_widen_the_band(tmp_path: Path) -> None:
    scattered = [220.0, 250.0, 280.0, 310.0, 340.0]
    assert _compare(tmp_path, _serving([300.0] * 5), _serving(scattered)) == 0


def test_lower_latency_is_better(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = _serving([300.0] * 5), _serving([300.0] * 5)
    new["cases"][0]["engines"]["processor"]["p99_us"] = 15.0
    assert _compare(tmp_path, old, new, "--metric", "p99_us") == 0
    assert "1 better" in capsys.readouterr().out
    assert _compare(tmp_path, new, old, "--metric", "p99_us") == 1


def test_memory_within_a_megabyte_is_noise_and_threads_never_are(tmp_path: Path) -> None:
    assert _compare(tmp_path, _memory(5.0, 0.1), _memory(5.9, 0.9)) == 0
    assert _compare(tmp_path, _memory(5.0, 0.1), _memory(6.5, 0.1)) == 1
    assert _compare(tmp_path, _memory(5.0, 0.1), _memory(5.0, 0.1, threads=1)) == 1


def test_files_that_cannot_be_compared_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = _serving([300.0] * 5)
    assert _compare(tmp_path, good, _memory(5.0, 0.1)) == 2
    assert _compare(tmp_path, good, good | {"quick": True}) == 2
    other = copy.deepcopy(good)
    other["cases"][0]["rows"] = 16
    assert _compare(tmp_path, good, other) == 2
    assert main([str(tmp_path / "old.json"), str(tmp_path / "missing.json")]) == 2
    assert "quick run" in capsys.readouterr().out


def _load_test(p99: float, failed: float = 0.0, scenario: str = "steady", rate: float = 150.0) -> dict[str, Any]:
    phase = {"phase": "steady", "p50_us": 5000.0, "p99_us": p99, "windows_us": [p99 * 0.98, p99 * 1.02] * 10}
    figures = {"failed": failed}
    settings = {"host": "go", "workload": "W2", "rate": rate, "seconds": 60.0, "shared": False}
    return {
        "benchmark": "load-test", "quick": False, "scenario": scenario, "settings": settings, "phases": [phase],
        "figures": figures,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("new", "status"),
    [
        (_load_test(20_800.0), 0),  # within the band
        (_load_test(26_000.0), 1),
        (_load_test(15_000.0), 0),  # better
        (_load_test(20_000.0, failed=1.0), 1),
        (_load_test(20_000.0, scenario="burst"), 2),  # nothing to compare
        (_load_test(20_000.0, rate=300.0), 2),
    ],
)
def test_scenario_results_are_compared(tmp_path: Path, new: dict[str, Any], status: int) -> None:
    files = [tmp_path / "old.json", tmp_path / "new.json"]
    for path, results in zip(files, (_load_test(20_000.0), new), strict=True):
        path.write_text(json.dumps(results))
    assert main([str(path) for path in files]) == status
