# SPDX-License-Identifier: Apache-2.0
"""Check the requests and targets of the benchmark of the user/item split, and run it briefly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from load_tests._programs import ProgramError, run_program
from load_tests.bench_user_items import ITEMS, USER_INPUTS, ensure_requests, judge, main, summarize
from load_tests.request_files import ensure_requests as plain_requests
from load_tests.request_files import read_requests


def _output(rates: tuple[float, float]) -> dict[str, Any]:
    figures = {"mean_us": 1.0, "p50_us": 1.0, "p99_us": 2.0}
    engines = [
        {
            "engine": name,
            "max_abs_difference": 1e-7,
            "rounds": [figures | {"requests_per_s": rate + i, "cpu_s_per_1000": 1000 / rate} for i in (-1, 0, 1)],
        }
        for name, rate in zip(("unsplit", "split"), rates, strict=True)
    ]
    return {"threads": 2, "engines": engines}


def test_targets_are_of_one_user_in_both_forms() -> None:
    cases = [
        summarize("fp32", "equal rows", _output((100.0, 136.0))),
        summarize("bf16", "one row", _output((100.0, 149.0))),
        summarize("fp32", "rows that differ", _output((100.0, 99.0))),
    ]
    assert [case["speedup"] for case in cases] == [1.36, 1.49, 0.99]
    assert cases[0]["cpu_saved"] == pytest.approx(1.36)
    assert [(target.limit, target.ok) for target in judge(cases)] == [(1.35, True), (1.5, False)]


def test_requests_differ_in_the_users_rows_only(tmp_path: Path) -> None:
    files = ensure_requests(tmp_path)
    equal, one, differ = (read_requests(files[shape]) for shape in ("equal", "one", "differ"))
    assert len(equal) == len(one) == len(differ)
    # A string of eight characters takes ten bytes.
    rows = len(USER_INPUTS) * (ITEMS - 1) * 10
    assert all(rows <= len(a) - len(b) < rows + 200 for a, b in zip(equal, one, strict=True))
    assert [len(each) for each in equal] == [len(each) for each in differ]
    assert equal != differ
    before = files["one"].stat().st_mtime_ns
    assert ensure_requests(tmp_path)["one"].stat().st_mtime_ns == before


def test_an_engine_may_have_requests_of_its_own(bench_serving: Path, tiny_model: Path, tmp_path: Path) -> None:
    files = [plain_requests(tmp_path, "tiny", rows, "eas") for rows in (32, 64)]
    stock = {"engine": "stock", "model": str(tiny_model)}
    arguments = {"requests": files[0], "rounds": 1, "seconds": 0.01, "warmup": 0, "threads": 1}
    same = json.dumps([stock, stock | {"name": "other", "requests": str(files[0])}])
    assert run_program(bench_serving, arguments | {"contestants": same})["answers"]["max_abs_difference"] == 0
    others = json.dumps([stock, stock | {"name": "other", "requests": str(files[1])}])
    with pytest.raises(ProgramError, match=r"64-eas.bin: 16 requests, expected 32") as failure:
        run_program(bench_serving, arguments | {"contestants": others})
    assert failure.value.status == 1


@pytest.mark.slow
def test_quick_run(bench_serving: Path, library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "results.json"
    # Of one user, a form for which the split model has requests of its own; equal rows are sent to the other model.
    forms = ["one row", "rows that differ"]
    arguments = ["--quick", "--precisions", "fp32", "--output", str(output), "--library", str(library)]
    arguments += ["--forms", *forms]
    assert main([*arguments, "--bench-dir", str(bench_serving.parent)]) == 0
    results = json.loads(output.read_text())
    assert [case["form"] for case in results["cases"]] == forms
    for case in results["cases"]:
        assert case["engines"]["split"]["max_abs_difference"] <= 2e-5
        assert all(engine["requests_per_s"] > 0 for engine in case["engines"].values())
    assert "the outputs agree" in capsys.readouterr().out
