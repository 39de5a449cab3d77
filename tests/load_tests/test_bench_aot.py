# SPDX-License-Identifier: Apache-2.0
"""Check the dense part of W2, and the program around compiled models, which speaks the protocol of peers."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from load_tests._programs import ROOT
from load_tests.request_files import default_count, random_inputs, read_requests

HARNESS = ROOT / "load_tests" / "aot" / "harness.cc"
#: What the compiler writes for a model of two rows that adds up its inputs.
COMPILED = r"""
#include <cstdint>
#include <string>
class Compiled {
 public:
  int LookupArgIndex(const std::string& name) { return name == "feed_a" ? 0 : name == "feed_b" ? 1 : -1; }
  int LookupResultIndex(const std::string& name) { return name == "fetch_sum" ? 0 : -1; }
  int arg_size(int index) { return index == 0 ? sizeof a_ : sizeof b_; }
  int result_size(int) { return sizeof sums_; }
  void* arg_data(size_t index) { return index == 0 ? static_cast<void*>(a_) : b_; }
  const void* result_data(size_t) { return sums_; }
  bool Run() {
    for (int row = 0; row < 2; row++) sums_[row] = a_[row] + static_cast<float>(b_[row]);
    return b_[0] >= 0;
  }
  std::string error_msg() { return "negative"; }
 private:
  float a_[2], sums_[2];
  int64_t b_[2];
};
"""


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("harness")
    (folder / "compiled.h").write_text(COMPILED)
    subprocess.run([compiler, "-std=c++17", f"-I{folder}", str(HARNESS), "-o", str(folder / "harness")], check=True)
    return folder / "harness"


def _ask(harness: Path, folder: Path, questions: str, names: str = "a,b") -> subprocess.CompletedProcess[str]:
    requests = [([1.0, 2.0], [10, 20]), ([0.5, 0.25], [3, -4]), ([0.0, 0.0], [-1, 0])]
    inputs = b"".join(np.array(a, np.float32).tobytes() + np.array(b, np.int64).tobytes() for a, b in requests)
    (folder / "inputs.bin").write_bytes(inputs)
    # The arguments that bench_serving appends are for peers that read messages.
    command = [harness, folder / "inputs.bin", names, "sum", "--threads", "1"]
    return subprocess.run(list(map(str, command)), input=questions, capture_output=True, text=True, timeout=120)


def test_harness_answers_requests_and_measures(harness: Path, tmp_path: Path) -> None:
    done = _ask(harness, tmp_path, "ready\nanswer 1\nanswer 0\n")
    ready, second, first = map(json.loads, done.stdout.splitlines())
    assert ready == {}
    assert first == {"sum": {"shape": [2, 1], "values": [11.0, 22.0]}}
    assert second == {"sum": {"shape": [2, 1], "values": [3.5, -3.75]}}


def test_harness_reports_errors(harness: Path, tmp_path: Path) -> None:
    for questions, names, message in (
        ("answer 2\n", "a,b", "negative"),
        ("ready\n", "a,c", "no input 'c' in the compiled model"),
        ("ready\n", "b", "72 bytes of inputs, expected a multiple of 16"),
    ):
        done = _ask(harness, tmp_path, questions, names)
        assert done.returncode == 1
        assert message in done.stderr


def test_measurement_ends_if_a_request_fails(harness: Path, tmp_path: Path) -> None:
    done = _ask(harness, tmp_path, "measure 0.2\n")
    assert (done.returncode, done.stdout) == (1, "")


def test_harness_returns_the_figures_of_a_peer(harness: Path, tmp_path: Path) -> None:
    (tmp_path / "good.bin").write_bytes(np.array([1, 2], np.float32).tobytes() + np.array([1, 2], np.int64).tobytes())
    command = [str(harness), str(tmp_path / "good.bin"), "a,b", "sum"]
    done = subprocess.run(command, input="measure 0.2\n", capture_output=True, text=True, timeout=120)
    figures = json.loads(done.stdout)
    assert 0.2 <= figures["seconds"] < 30
    assert 0 < figures["cpu_seconds"] < 2
    assert figures["mean_us"] == pytest.approx(1e6 * figures["seconds"] / figures["requests"], rel=0.01)
    assert figures["p50_us"] <= figures["p99_us"] <= figures["max_us"]


@pytest.mark.slow
def test_dense_part_starts_after_the_lookups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tf = pytest.importorskip("tensorflow")
    from load_tests.aot.export_fixed import NAMES, export_dense
    from load_tests.workloads import make_idwdl

    # W2 with narrow tables and layers.
    monkeypatch.setattr(make_idwdl, "DIM", 2)
    monkeypatch.setattr(make_idwdl, "WIDTHS", [13 + 26 * 2, 8, 4, 4, 1])
    whole = make_idwdl.WideAndDeep()
    tf.saved_model.save(whole, str(tmp_path / "whole"), signatures={"serving_default": whole.serve})
    rows = 128
    export_dense(tmp_path / "whole", tmp_path / "dense", rows)
    fixed = tf.saved_model.load(str(tmp_path / "dense" / "fixed")).signatures["serving_default"]
    assert fixed.structured_input_signature[1]["features"].shape == (rows, 65)

    rng = np.random.default_rng([rows, *b"W2"])
    inputs = np.fromfile(tmp_path / "dense" / "inputs.bin", np.float32).reshape(default_count(rows), rows, 65)
    for features in inputs[:2]:
        drawn = random_inputs("W2", rows, rng)
        expected = whole.serve(*(tf.constant(drawn[name]) for name in NAMES))["prob"].numpy()
        np.testing.assert_allclose(
            fixed(features=tf.constant(features))["prob"].numpy(), expected, rtol=1e-5, atol=1e-6
        )
    requests = read_requests(tmp_path / "dense" / "requests.bin")
    assert len(requests) == default_count(rows)
    assert all(part.tobytes() in request for part, request in zip(inputs, requests, strict=True))
