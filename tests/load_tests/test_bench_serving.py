# SPDX-License-Identifier: Apache-2.0
"""Check the summary and the targets of the serving benchmark, and run it briefly."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from load_tests._programs import ROOT, ProgramError, run_program
from load_tests.bench_serving import default_config, judge, main, summarize
from load_tests.request_files import ensure_requests, write_requests


def _round(rate: float, p99: float) -> dict[str, float]:
    return {"requests_per_s": rate, "mean_us": 1.0, "p50_us": 1.0, "p99_us": p99, "cpu_s_per_1000": 0.1}


def _output(rates: list[float], p99: float) -> dict[str, Any]:
    before = {"overhead_us": {"count": 10, "mean": 100.0, "p50": 5.0, "p99": 9.0}}
    after = {"overhead_us": {"count": 110, "mean": 10.0, "p50": 5.0, "p99": 9.0}}
    stock = {"engine": "stock", "load_seconds": 1.0, "statistics_before": None, "statistics_after": None}
    ours = {"engine": "processor", "load_seconds": 1.0, "statistics_before": before, "statistics_after": after}
    return {
        "threads": 2,
        "distinct_requests": 16,
        "answers": {"compared": 16, "max_abs_difference": 0.0},
        "weights": {"bytes": 4000, "read_us": 1.0},
        "engines": [
            stock | {"rounds": [_round(100.0, 50.0)] * len(rates)},
            ours | {"rounds": [_round(rate, p99) for rate in rates]},
        ],
    }


def test_summary_contains_medians_and_the_overhead_of_the_rounds() -> None:
    case = summarize("W2", 1, "eas", _output([250.0, 310.0, 900.0], p99=40.0))
    assert case["engines"]["processor"]["requests_per_s"] == 310.0
    assert case["speedup"] == pytest.approx(3.1)
    # 110 requests of 10 µs, less 10 of 100 µs from before the rounds.
    assert case["engines"]["processor"]["overhead"]["mean_us"] == pytest.approx(1.0)
    assert case["engines"]["stock"]["overhead"] is None


def test_targets_compare_rate_and_p99_with_stock() -> None:
    rate, latency = judge([summarize("W2", 1, "eas", _output([310.0], p99=51.0))])
    assert (rate.ok, latency.ok) == (True, False)
    rate, latency = judge([summarize("W2", 1, "eas", _output([299.0], p99=50.0))])
    assert (rate.ok, latency.ok) == (False, True)
    assert judge([summarize("W2", 16, "eas", _output([1.0], p99=99.0))]) == []


@pytest.mark.parametrize("protocol", ["eas", "tfserving"])
def test_quick_run_compares_answers_and_writes_results(
    bench_serving: Path, library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: str
) -> None:
    output = tmp_path / "results.json"
    arguments = ["--quick", "--workloads", "tiny", "--rows", "1", "16", "--protocol", protocol, "--output", str(output)]
    arguments += ["--library", str(library)]
    assert main([*arguments, "--bench-dir", str(bench_serving.parent)]) == 0
    results = json.loads(output.read_text())
    assert [case["rows"] for case in results["cases"]] == [1, 16]
    assert results["environment"]["versions"]["tensorflow"]
    for case in results["cases"]:
        assert case["answers"]["compared"] == case["distinct_requests"] > 0
        assert case["answers"]["max_abs_difference"] <= 2e-5
        for engine in case["engines"].values():
            assert engine["requests_per_s"] > 0
            assert 0 < engine["p50_us"] <= engine["p99_us"]
        assert case["engines"]["processor"]["overhead"]["mean_us"] > 0
    assert "the outputs agree" in capsys.readouterr().out


def test_one_engine_alone_is_measured_without_the_library(
    bench_serving: Path, tiny_model: Path, tmp_path: Path
) -> None:
    requests = ensure_requests(tmp_path, "tiny", 16, "tfserving")
    output = run_program(
        bench_serving,
        {
            "engine": "stock",
            "model": tiny_model,
            "requests": requests,
            "protocol": "tfserving",
            "library": "/nonexistent",
            "rounds": 2,
            "seconds": 0.05,
            "warmup": 0,
            "threads": 2,
        },
    )
    (engine,) = output["engines"]
    assert engine["engine"] == "stock"
    assert [turn["requests"] > 0 for turn in engine["rounds"]] == [True, True]
    assert output["answers"] is None


def test_differing_outputs_end_the_run(bench_serving: Path, library: Path, tiny_model: Path, tmp_path: Path) -> None:
    # The processor loads a model of the same shape with other weights.
    other = tmp_path / "other"
    script = (ROOT / "load_tests" / "workloads" / "make_tiny.py").read_text()
    changed = script.replace("default_rng(0)", "default_rng(1)")
    assert changed != script
    (tmp_path / "make_other.py").write_text(changed)
    subprocess.run([sys.executable, tmp_path / "make_other.py", other], check=True, capture_output=True)
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    arguments = {
        "model": model,
        "requests": ensure_requests(tmp_path, "tiny", 16, "eas"),
        "library": library,
        "config": json.dumps(default_config(1) | {"savedmodel_dir": str(other)}),
        "rounds": 1,
        "seconds": 0.05,
        "warmup": 0,
    }
    with pytest.raises(ProgramError, match="the answers differ: processor: request 0: output 'prob'") as failure:
        run_program(bench_serving, arguments)
    assert failure.value.status == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"requests": "missing.bin"}, "missing.bin: cannot be read"),
        ({"model": "missing"}, "stock: "),
        ({"protocol": "json"}, "--protocol: 'json', expected eas or tfserving"),
        ({"seconds": "soon"}, "--seconds: 'soon', expected a number"),
        ({"unknown": 1}, "--unknown: unknown argument"),
    ],
)
def test_bad_arguments_are_reported(
    bench_serving: Path, tiny_model: Path, tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    requests = tmp_path / "requests.bin"
    arguments: dict[str, object] = {"engine": "stock", "model": tiny_model, "requests": requests, "warmup": 0}
    arguments |= {"rounds": 1, "seconds": 0.01}
    write_requests(requests, [b""])
    with pytest.raises(ProgramError) as failure:
        run_program(bench_serving, arguments | changed)
    assert failure.value.status == 1
    assert message in str(failure.value)


def test_missing_program_is_reported_without_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--bench-dir", str(tmp_path)]) == 1
    assert "make build" in capsys.readouterr().out
