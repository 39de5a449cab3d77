# SPDX-License-Identifier: Apache-2.0
"""Check that the table of claims reads the results of benchmarks and reports missing ones."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from load_tests._environment import describe_environment
from load_tests._programs import ROOT, ProgramError
from load_tests.bench_aot import COMPILED, FUSED, refusal
from load_tests.bench_claims import main, read_claim
from load_tests.bench_session_group import main as measure_group
from load_tests.bench_session_group import summarize
from load_tests.claims import CLAIMS

# Writes the results of a bench into a folder, with the environment that the module's tests share.
Write = Callable[[Path, str, dict[str, Any]], None]


@pytest.fixture(scope="module")
def environment() -> dict[str, Any]:
    """Of a quiet machine. Made when a test asks: looking at the machine takes half a second."""
    return describe_environment(ROOT) | {"busy_before": 0.02}


@pytest.fixture
def write(environment: dict[str, Any]) -> Write:
    def made(folder: Path, name: str, results: dict[str, Any]) -> None:
        claim = CLAIMS.get(name) or CLAIMS["cost-model"].beside
        assert claim is not None
        (folder / claim.file).write_text(json.dumps({"environment": environment} | results))

    return made


_ARMS: dict[str, Any] = {
    "arms": {
        name: {"requests_per_s": rate, "missed_at": 1.1 * rate}
        for name, rate in (("none", 400.0), ("pool", 480.0), ("plan", 520.0), ("control", 572.0))
    },
    "simulated": {"none": 440.0, "pool": 500.0, "plan": 500.0, "control": 600.0},
}


def _cases(**engines: dict[str, float]) -> dict[str, Any]:
    return {"cases": [{"workload": "W1", "rows": 1, "engines": engines}]}


def test_every_claim_has_a_row_and_reports_missing_results(tmp_path: Path) -> None:
    assert main(["--results", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "bench_claims.json").read_text())["rows"]
    assert [row["claim"] for row in rows] == [claim.title for claim in CLAIMS.values()]
    assert all(row["missing"].startswith("not measured") for row in rows)


def test_figures_of_fused_models(tmp_path: Path, write: Write, environment: dict[str, Any]) -> None:
    engines = {
        "stock": {"requests_per_s": 100.0, "cpu_s_per_1000": 2.0},
        "fp32": {"requests_per_s": 200.0, "cpu_s_per_1000": 1.5},
        "bf16": {"requests_per_s": 230.0, "cpu_s_per_1000": 1.0},
    }
    settings = {"precisions": {"W1 bf16": {"precision": "bf16 weights"}, "W1 fp32": {"precision": "fp32"}}}
    write(tmp_path, "fusion", _cases(**engines) | {"settings": settings})
    row = read_claim(CLAIMS["fusion"], tmp_path)
    assert row["figures"] == {"W1 at 1 row": 0.75}
    assert "W1 at 1 row -25 % (2.00 to 1.50)" in row["text"]
    assert (row["commit"], row["cpu"]) == (environment["commit"], environment["cpu"])
    row = read_claim(CLAIMS["precision"], tmp_path)
    assert row["figures"] == {"fp32 over stock, W1 at 1 row": 2.0, "bf16 over fp32, W1 at 1 row": pytest.approx(1.15)}
    assert row["short"] == "fp32 +100 % requests/s; bf16 (bf16 weights) over fp32 +15 %"


def test_figures_of_the_cost_model_and_of_cuts(tmp_path: Path, write: Write) -> None:
    targets = [
        {"name": "baseline-pool / shared, mean over all traffic", "value": 1.31},
        {"name": "dynamic / baseline-pool, moving traffic", "value": 1.2},
    ]
    half = {"policy": "baseline-pool", "against": "shared", "interference": 0.5, "mean": 1.1}
    write(tmp_path, "simulated", {"targets": targets, "comparisons": [half], "minutes_scale": 1.0})
    assert "no bench_slo_capacity.json" in read_claim(CLAIMS["cost-model"], tmp_path)["missing"]
    write(tmp_path, "cost-model", _ARMS)
    row = read_claim(CLAIMS["cost-model"], tmp_path)
    measured = {"plan over no plan": 1.3, "baseline pool over no plan": 1.2, "control over plan": 1.1}
    simulated = {"baseline-pool over shared": 1.31, "dynamic over baseline-pool": 1.2}
    assert row["figures"] == {name: pytest.approx(value) for name, value in (measured | simulated).items()}
    assert "plan over no plan +30 % (+18 % to +43 %)" in row["short"]
    assert "simulated, 128 cores: baseline pool +31 %, the controller +20 % more" in row["short"]
    assert "the simulator predicts no plan 440" in row["text"]
    assert "+10 % at 0.5 times the measured interference" in row["text"]
    speed = {"name": "20 bags, one row, stock TensorFlow: times as fast", "value": 2.28}
    size = {"name": "93 % zero rows, deeprec: smaller, bit-exact [%]", "value": 91.5}
    write(tmp_path, "cut", {"targets": [size, speed]})
    assert read_claim(CLAIMS["cut"], tmp_path)["figures"] == {"smaller, deeprec [%]": 91.5, "speed": 2.28}
    assert read_claim(CLAIMS["cut"], tmp_path)["short"] == "-92 % size, +128 % speed"
    write(tmp_path, "cut", {"targets": [speed]})
    assert "expected a whole run" in read_claim(CLAIMS["cut"], tmp_path)["missing"]


def test_arguments_of_make_are_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    makefile = tmp_path / "Makefile"
    inner = f"{shutil.which('make')} -f {makefile} inner"
    claim = dataclasses.replace(CLAIMS["aot"], command=inner)
    monkeypatch.setitem(CLAIMS, "aot", claim)
    makefile.write_text(f"inner:\n\t@echo 'args=$(BENCH_ARGS)' >> {tmp_path}/said\n")
    monkeypatch.setenv("MAKEFLAGS", " -- BENCH_ARGS=--run")
    monkeypatch.setenv("MAKEOVERRIDES", "BENCH_ARGS=--run")
    assert main(["--run", "--only", "aot", "--results", str(tmp_path)]) == 0
    assert (tmp_path / "said").read_text() == "args=\n"


def test_partial_and_quick_runs_give_no_figure(tmp_path: Path, write: Write) -> None:
    write(tmp_path, "cut", {"targets": []})
    assert "expected a whole run" in read_claim(CLAIMS["cut"], tmp_path)["missing"]
    write(tmp_path, "session-group", {"quick": True})
    assert "quick run" in read_claim(CLAIMS["session-group"], tmp_path)["missing"]
    (tmp_path / CLAIMS["aot"].file).write_text("{")
    assert "missing" in read_claim(CLAIMS["aot"], tmp_path)


def test_figures_of_session_groups() -> None:
    figures = ("requests_per_s", "mean_us", "p50_us", "p99_us", "cpu_s_per_1000")
    engines = [
        {"engine": name, "max_abs_difference": 0, "rounds": [dict.fromkeys(figures, rate)] * 3}
        for name, rate in (("one", 100.0), ("group", 150.0))
    ]
    case = summarize("W1", 1, {"threads": 4, "engines": engines})
    assert CLAIMS["session-group"].read({"cases": [case]}).figures == {"W1 at 1 row": 1.5, "mean": pytest.approx(1.5)}


def test_reason_of_a_compiler_refusal_is_extracted() -> None:
    text = "INFO: begun\nValueError: unsupported: Rec (No registered 'Rec' OpKernel for XLA_CPU_JIT devices)\n"
    said = refusal(ProgramError("saved_model_cli", 1, text))
    assert said == "No registered 'Rec' OpKernel for XLA_CPU_JIT"
    assert refusal(ProgramError("saved_model_cli", 1, "ValueError: shape\nbye")).endswith("ValueError: shape")


def test_figures_of_compiled_models() -> None:
    engines = {name: {"requests_per_s": rate} for name, rate in (("stock", 100.0), (COMPILED, 135.0), (FUSED, 150.0))}
    case = {"part": "dense", "rows": 16, "engines": engines}
    reason = "No registered 'Rec' OpKernel for XLA_CPU_JIT"
    measured = CLAIMS["aot"].read({"cases": [case], "refused": {"fused, compiled ahead of time": reason}})
    assert measured.figures == {f"dense, {COMPILED}, 16 rows": 1.35, f"dense, {FUSED}, 16 rows": 1.5}
    assert f"{COMPILED}: 16 rows +35 %" in measured.text
    assert measured.short == "split dense part: compiled ahead of time +35 %, fused +50 %"
    assert measured.text.endswith(f"refused by the compiler ({reason})")
    with pytest.raises(KeyError):
        CLAIMS["aot"].read({"cases": [], "refused": {}})


def _everything(folder: Path, write: Write) -> None:
    """Write what every bench writes, with figures of no meaning."""
    fused = {"stock": (100.0, 2.0), "fp32": (200.0, 1.5), "bf16": (230.0, 1.0)}
    engines = {name: {"requests_per_s": rate, "cpu_s_per_1000": cpu} for name, (rate, cpu) in fused.items()}
    settings = {"precisions": {"W1 bf16": {"precision": "bf16 weights"}}}
    write(folder, "fusion", _cases(**engines) | {"settings": settings})
    write(folder, "session-group", _cases(one={"requests_per_s": 1.0}, group={"requests_per_s": 1.2}))
    compiled = {name: {"requests_per_s": rate} for name, rate in (("stock", 100.0), (COMPILED, 135.0))}
    write(folder, "aot", {"cases": [{"part": "dense", "rows": 16, "engines": compiled}], "refused": {}})
    cost = [
        {"name": f"{name}", "value": 1.3}
        for name in ("baseline-pool / shared, mean", "dynamic / baseline-pool, moving")
    ]
    write(folder, "simulated", {"targets": cost, "comparisons": [], "minutes_scale": 1.0})
    write(folder, "cost-model", _ARMS)
    cut = {"93 % zero rows, deeprec: smaller, bit-exact [%]": 93.7, "20 bags, one row, stock": 2.0}
    write(folder, "cut", {"targets": [{"name": name, "value": value} for name, value in cut.items()]})


def test_documents_are_updated_between_their_markers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], write: Write, environment: dict[str, Any]
) -> None:
    (tmp_path / "docs").mkdir()
    documents = [tmp_path / "README.md", tmp_path / "docs" / "claims.md"]
    for path in documents:
        path.write_text("before\n<!-- claims -->\nold\n<!-- /claims -->\nafter\n")
    update = ["--results", str(tmp_path), "--documents", str(tmp_path), "--update"]
    # A row without a figure must not replace an existing one.
    assert main(update) == 1
    assert "old" in documents[0].read_text()
    _everything(tmp_path, write)
    for _ in range(2):
        assert main(update) == 0
    for path in documents:
        text = path.read_text()
        assert text.startswith("before\n<!-- claims -->\n\n| claim |")
        assert text.endswith("\n<!-- /claims -->\nafter\n")
        assert text.count("\n| ") == 1 + 1 + len(CLAIMS)
        assert "old" not in text
    assert f"| {environment['commit'][:7]}" in documents[0].read_text()
    assert environment["versions"]["tensorflow"] in documents[1].read_text()
    busy = environment | {"busy_before": 0.5}
    aot = json.loads((tmp_path / CLAIMS["aot"].file).read_text())
    (tmp_path / CLAIMS["aot"].file).write_text(json.dumps(aot | {"environment": busy}))
    assert main(update) == 0
    assert "compiled ahead of time +35 % (on a busy machine)" in documents[0].read_text()
    documents[0].write_text("no marks")
    with pytest.raises(ValueError, match="0 pairs of marks of claims, expected one"):
        main(update)


def test_documents_have_every_claim_with_its_command() -> None:
    for path in (ROOT / "README.md", ROOT / "docs" / "claims.md"):
        table = path.read_text().partition("<!-- claims -->\n")[2].partition("<!-- /claims -->")[0]
        rows = [[cell.strip() for cell in line.split(" | ")] for line in table.strip().splitlines()[2:] if "|" in line]
        assert [row[0].removeprefix("| ") for row in rows] == [claim.title for claim in CLAIMS.values()], path
        for row, claim in zip(rows, CLAIMS.values(), strict=True):
            assert (row[1], row[3]) == (claim.published, f"`{claim.command}`")
            # No figure without its commit and date.
            assert re.fullmatch(r"[0-9a-f]{7}\*? \d{4}-\d\d-\d\d \|", row[4]), row[4]


@pytest.mark.slow
def test_quick_run_of_session_groups(bench_serving: Path, library: Path, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    arguments = ["--quick", "--only", "group", "--workloads", "tiny", "--rows", "1"]
    arguments += ["--output", str(output), "--library", str(library), "--bench-dir", str(bench_serving.parent)]
    assert measure_group(arguments) == 0
    (case,) = json.loads(output.read_text())["cases"]
    assert case["engines"]["group"]["max_abs_difference"] < 1e-5
