# SPDX-License-Identifier: Apache-2.0
"""Run the whole demo as `make demo` does, with short measurements."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.system.process_state import catches
from helpers.system.programs import start_module
from helpers.system.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


def start(json_path: Path, *options: str) -> subprocess.Popen[str]:
    # The cache of the checkout: wheel and model are fetched and trained once for all runs.
    return start_module("demo", "--json", json_path, *options)


@pytest.mark.slow
def test_demo_serves_in_every_way_and_agrees_with_tensorflow(tmp_path: Path) -> None:
    demo = start(tmp_path / "demo.json", "--rounds", "1", "--seconds", "0.1")
    out, err = demo.communicate(timeout=500)
    assert demo.returncode == 0, out + err
    assert err == ""
    found = json.loads((tmp_path / "demo.json").read_text())
    ways = {"tensorflow", "c", "optimized_fp32_c", "optimized_bf16_c", "optimized_int8_c", "python"} | (
        {"go_grpc"} if shutil.which("go") else set()
    )
    if os.environ.get("CI") == "true":
        assert shutil.which("go"), "Go is missing, expected it where CI=true"
    assert {(entry["way"], entry["rows_per_request"]) for entry in found["results"]} == {
        (way, rows) for way in ways for rows in (1, 100)
    }
    limits = {"optimized_bf16_c": 1e-2, "optimized_int8_c": 5e-2}
    for entry in found["results"]:
        assert 0.76 < entry["auc"] < 0.82
        assert entry["median"]["requests_per_s"] > 0
        assert 0 < entry["median"]["p50_us"] <= entry["median"]["p99_us"]
        if entry["way"] != "tensorflow":
            assert entry["max_abs_difference"] <= limits.get(entry["way"], 1e-5)
            assert entry["scores_compared"] >= 10_000
    size = {entry["way"]: entry["model_megabytes"] for entry in found["results"]}
    assert max(size["optimized_bf16_c"], size["optimized_int8_c"]) < size["c"] == size["tensorflow"]
    assert len(found["environment"]["cpu"]) > 0
    assert "…" not in out
    assert max(len(line) for line in out.splitlines()) <= 80
    for title in ("served by", "TensorFlow (C++)", "libprocessor, C", "optimized fp32, C", "libprocessor, Python"):
        assert title in out


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.5, 2.5, 6.0])
def test_interrupt_ends_the_demo_quietly(tmp_path: Path, seconds: float) -> None:
    demo = start(tmp_path / "demo.json", "--rounds", "100")
    # Before that, the interrupt would be one of Python's start.
    wait_until(lambda: catches(demo.pid, signal.SIGHUP), "a demo that handles signals")
    time.sleep(seconds)
    # A terminal also sends it to the whole process group.
    os.killpg(demo.pid, signal.SIGINT)
    try:
        _, err = demo.communicate(timeout=300)
    finally:
        if demo.poll() is None:
            os.killpg(demo.pid, signal.SIGKILL)
    assert demo.returncode == 130
    assert err == "make demo: interrupted; finished steps stay in the cache\n"
    assert not (tmp_path / "demo.json").exists()


IN_CODE_FROM_A_STRING = 'exec("raise KeyboardInterrupt")'
IN_A_DESTRUCTOR = """
class Session:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)

Session()
time.sleep(60)
"""


@pytest.mark.parametrize("code", [IN_CODE_FROM_A_STRING, IN_A_DESTRUCTOR])
def test_interrupt_in_any_code_ends_the_demo_quietly(tmp_path: Path, code: str) -> None:
    finder = f"""
import os, signal, sys, time

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "demo.cli":
            exec({code!r})

sys.meta_path.insert(0, Interrupt())
"""
    (tmp_path / "sitecustomize.py").write_text(finder)
    command = [sys.executable, "-m", "demo"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300
    )
    assert done.returncode == 130
    assert done.stderr == "make demo: interrupted; finished steps stay in the cache\n"


def test_demo_without_the_library_says_how_to_build_it(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "demo", tmp_path / "demo", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "graph_tools").symlink_to(ROOT / "graph_tools")
    command = [sys.executable, "-m", "demo"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert "libprocessor.so" in done.stderr
    assert "run `make build` first" in done.stderr
    assert "Traceback" not in done.stderr
