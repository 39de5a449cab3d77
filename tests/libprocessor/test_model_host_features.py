# SPDX-License-Identifier: Apache-2.0
"""Hosts of several releases follow one state: each says what it can do, and refuses what it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import processor
from helpers.hosts.state_directory import StateDirectory, entry, model_of, wait_for_status
from helpers.proxies.proxy_runs import environment_of_checkout
from helpers.system.waiting import wait_until


def test_file_that_only_says_to_wait_is_no_fault_and_no_state(state: StateDirectory, tiny_model: Path) -> None:
    state.desire({}, waiting="for the first state")
    with processor.Host(state.path) as host:
        status = host.status()
        assert (status["state"], status["desired_error"]) == ("starting", None)
        assert status["waiting"] == "for the first state"
        state.serve(host, {"m": model_of(tiny_model)})
        assert (host.status()["state"], host.status()["waiting"]) == ("ready", None)
        state.desire({}, waiting="again")
        wait_for_status(host, lambda status: status["waiting"] == "again")
        assert entry(host, "m", 1)["state"] == "ready", "the state before is still followed"
    with processor.Host(state.path) as again:
        wait_for_status(again, lambda status: status["state"] == "ready")
        assert entry(again, "m", 1)["state"] == "ready"


def test_host_says_what_it_can_do(state: StateDirectory, host: processor.Host) -> None:
    wait_until(lambda: (state.path / "hosts/host-0/actual.json").exists())
    found = state.actual()
    assert found["version"]
    assert {"desired:waiting", "host:drained", "model:shadow", "version:needs", "op:RecDenseTower"} <= {
        *found["features"]
    }
    assert found["features"] == sorted(set(found["features"]))


def test_version_that_needs_more_than_the_host_can_is_refused_alone(
    host: processor.Host, state: StateDirectory, tiny_model: Path
) -> None:
    state.serve(host, {"m": model_of(tiny_model, needs=["op:RecDenseTower", "version:limits"])})
    model = model_of(tiny_model)
    model["versions"]["2"] = {"path": str(tiny_model), "needs": ["op:RecLater", "version:limits"]}
    state.desire({"m": model})
    wait_for_status(host, lambda status: "2" in status["models"]["m"]["versions"])
    wait_for_status(host, lambda _: entry(host, "m", 2)["state"] == "failed")
    error = entry(host, "m", 2)["error"]
    assert "needs op:RecLater, which this host (release " in error
    assert "version:limits" not in error
    assert host.status()["desired_error"] is None
    assert entry(host, "m", 1)["state"] == "ready"


def test_features_can_be_taken_away(repository: Path, state: StateDirectory, tiny_model: Path) -> None:
    model = model_of(tiny_model)
    model["versions"]["2"] = {"path": str(tiny_model), "limits": {"max_queue": 5}}
    model["versions"]["3"] = {"path": str(tiny_model), "needs": ["op:RecDenseTower"]}
    state.desire({"m": model})
    command = [sys.executable, str(repository / "tests/helpers/hosts/plain_host.py"), str(state.path)]
    environment = environment_of_checkout() | {"PROCESSOR_WITHOUT_FEATURES": "version:limits,op:RecDenseTower"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == b"ready"
            found = state.actual()
            assert not {"version:limits", "op:RecDenseTower"} & {*found["features"]}

            def versions() -> dict[str, Any]:
                found: dict[str, Any] = state.actual()["models"]["m"]["versions"]
                return found

            wait_until(lambda: [versions()[number]["state"] for number in "123"] == ["ready", "failed", "failed"])
            assert "limits: unknown key" in versions()["2"]["error"]
            assert "needs op:RecDenseTower" in versions()["3"]["error"]
        finally:
            process.kill()


def test_drained_host_is_not_ready_before_the_drain_is_over(state: StateDirectory, tiny_model: Path) -> None:
    state.desire({"m": model_of(tiny_model)}, hosts={"*": {"drained": True}, "host-1": {}})
    with processor.Host(state.path) as host:
        wait_for_status(host, lambda status: "m" in status["models"])
        wait_for_status(host, lambda _: entry(host, "m", 1)["state"] == "ready")
        assert host.status()["state"] == "starting"
        state.serve(host, {"m": model_of(tiny_model)}, hosts={"host-1": {"drained": True}})
        wait_for_status(host, lambda status: status["state"] == "ready")
        # The process is not the host's, so it is not asked to end.
        generation = state.desire({"m": model_of(tiny_model)}, hosts={"host-0": {"drained": True}})
        wait_for_status(host, lambda status: status["generation"] == generation)
        assert host.status()["state"] == "ready"
