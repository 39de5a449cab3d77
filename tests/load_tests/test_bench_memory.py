# SPDX-License-Identifier: Apache-2.0
"""Check the targets of the memory benchmark, and run it briefly."""

import json
from pathlib import Path

import pytest

from load_tests.bench_memory import judge_cycles, judge_sessions, main, session_cost


def test_cost_of_a_session_is_the_largest_increase() -> None:
    points = [{"sessions": n, "used_mb": mb} for n, mb in ((4, 412.0), (1, 400.0), (2, 410.0), (8, 420.0))]
    assert session_cost(points) == pytest.approx(10.0)


def test_session_that_copies_its_variables_misses_the_target() -> None:
    shared, copied = judge_sessions([{"workload": "W1", "cost_mb": 12.0}, {"workload": "W2", "cost_mb": 170.0}])
    assert (shared.ok, copied.ok) == (True, False)


def test_memory_threads_and_descriptors_are_judged_separately() -> None:
    def state(rss: int, threads: int, descriptors: int) -> dict[str, int]:
        return {"rss_kb": rss, "threads": threads, "descriptors": descriptors}

    cycles = {
        "cycles": 1000,
        "baseline": 100,
        "first": state(100_000, 5, 7),
        "last": state(101_000, 5, 8),
        "low": state(99_000, 5, 7),
        "high": state(108_000, 5, 8),
    }
    assert [target.ok for target in judge_cycles(cycles)] == [True, True, False]
    cycles["last"] = state(103_000, 5, 7)
    cycles["high"] = state(108_000, 6, 7)
    assert [target.ok for target in judge_cycles(cycles)] == [False, False, True]


def test_quick_run_measures_sessions_and_cycles(bench_lifecycle: Path, library: Path, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    arguments = ["--quick", "--workloads", "tiny", "--rows", "16", "--cycles", "40", "--baseline", "10"]
    arguments += ["--library", str(library)]
    assert main([*arguments, "--output", str(output), "--bench-dir", str(bench_lifecycle.parent)]) == 0
    results = json.loads(output.read_text())
    (tiny,) = results["sessions"]
    assert [point["sessions"] for point in tiny["points"]] == [1, 2]
    for point in tiny["points"]:
        assert 0 < point["before_mb"] < point["loaded_mb"]
    cycles = results["cycles"]
    assert len(cycles["rss_kb"]) == 4
    # A freed model leaves no thread and no open file.
    assert cycles["high"]["threads"] == cycles["low"]["threads"]
    assert cycles["high"]["descriptors"] == cycles["low"]["descriptors"]


def test_one_number_of_sessions_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--sessions", "2"])
    assert "--sessions" in capsys.readouterr().err
