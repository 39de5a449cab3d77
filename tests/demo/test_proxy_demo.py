# SPDX-License-Identifier: Apache-2.0
"""Run the demo of the proxy as `make demo-proxy` does, with short stages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from helpers.system.programs import start_module

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


def start(tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    # The cache of the checkout: data and models are fetched and trained once for all runs.
    files = ("--json", tmp_path / "demo-proxy.json", "--picture", tmp_path / "page.png")
    return start_module("demo.proxy", *files, *options)


def left_behind(out: str) -> list[str]:
    """List the processes that name the state directory of a demo, which it printed."""
    states = [word for word in out.split() if "demo-proxy/state-" in word]
    assert states, out
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [command for command in commands if Path(states[0]).name in command]


def test_demo_loses_no_request_and_runs_every_stage(tmp_path: Path) -> None:
    # Models are optimized in idle time, which is rare while tests run; other tests cover it.
    demo = start(tmp_path, "--seconds", "3", "--no-optimize")
    out, err = demo.communicate(timeout=500)
    assert demo.returncode == 0, out + err
    assert err == ""
    found = json.loads((tmp_path / "demo-proxy.json").read_text())
    assert (found["lost"], found["wrong"], found["faults"]) == (0, 0, [])
    assert found["max_abs_difference"] <= 1e-5
    assert {client["client"] for client in found["clients"]} == {"tensorflow_serving_grpc", "triton_grpc", "http_json"}
    for client in found["clients"]:
        assert client["requests"] > 20
        assert client["lost"] == 0
        assert 0 < client["p50_us"] <= client["p99_us"]
    stages = {stage["stage"]: stage for stage in found["stages"]}
    assert list(stages) == ["shadow", "split", "promoted", "rolled_back"]
    assert stages["split"]["users_on_more_than_one"] == 0
    assert 5 < stages["split"]["versions"]["2"]["users_percent"] < 40
    share = {name: stage["versions"]["2"]["percent"] for name, stage in stages.items()}
    assert (share["shadow"], share["promoted"], share["rolled_back"]) == (0, 100, 0)
    assert max(len(line) for line in out.splitlines()) <= 80
    for verb in ("serve --state-dir", "deploy movielens", "traffic movielens 2=20", "promote movielens 2", "rollback"):
        assert f"$ serving-proxy {verb}" in out
    assert "http://127.0.0.1:" in out
    assert left_behind(out) == []


def test_interrupt_ends_demo_and_proxy_quietly(tmp_path: Path) -> None:
    demo = start(tmp_path)
    assert demo.stdout is not None
    said = ""
    try:
        # The proxy runs, and the first deployment has begun.
        for line in demo.stdout:
            said += line
            if "$ serving-proxy deploy" in line:
                break
        time.sleep(1.0)
        # A terminal also sends it to the whole process group.
        os.killpg(demo.pid, signal.SIGINT)
        _, err = demo.communicate(timeout=300)
    finally:
        if demo.poll() is None:
            os.killpg(demo.pid, signal.SIGKILL)
    assert demo.returncode == 130
    assert err == "make demo-proxy: interrupted; nothing is left running\n"
    assert left_behind(said) == []
    assert not (tmp_path / "demo-proxy.json").exists()
