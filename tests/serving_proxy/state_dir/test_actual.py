# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.proxies.proxy_runs import wait_for
from serving_proxy.state_dir.actual import ActualFiles, is_alive, parse_actual, process_runs, process_ticks
from serving_proxy.system.liveness import HostLiveness, is_stopped

ACTUAL = {
    "schema": 1, "host": "host-0", "pid": 1, "started": "2026-11-21T19:00:00Z", "generation": 42, "desired_error": None,
    "state": "ready", "endpoints": {"grpc": "127.0.0.1:8500"}, "cpus": "0-1",
    "models": {"ranking": {"versions": {
        "3": {"state": "ready", "path": "/m/3", "error": None, "sessions": 2},
        "4": {"state": "failed", "path": "/m/4", "error": "no memory"}}}},
}  # fmt: skip


def write(folder: Path, name: str, data: object) -> None:
    (folder / "hosts" / name).mkdir(parents=True, exist_ok=True)
    beside = folder / "hosts" / name / "new"
    beside.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    beside.rename(folder / "hosts" / name / "actual.json")


def test_reports_of_hosts_are_read() -> None:
    seen = parse_actual("host-0", ACTUAL)
    assert (seen.pid, seen.generation, seen.state, seen.cpus) == (1, 42, "ready", "0-1")
    assert seen.models["ranking"][3].state == "ready"
    assert seen.models["ranking"][4].error == "no memory"
    assert seen.models["ranking"][3].details["sessions"] == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["versions", "3", "state", "pid"]), inner)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*ACTUAL, "more"]), JSON))
def test_any_report_of_a_host_is_read_without_an_error(data: dict[str, Any]) -> None:
    parse_actual("host-0", data)


def test_hosts_are_read_again_when_they_change(tmp_path: Path) -> None:
    files = ActualFiles(tmp_path)
    assert files.read() == ()
    write(tmp_path, "host-1", ACTUAL)
    write(tmp_path, "host-0", {**ACTUAL, "generation": 7})
    assert [(host.name, host.generation) for host in files.read()] == [("host-0", 7), ("host-1", 42)]
    write(tmp_path, "host-0", {**ACTUAL, "generation": 8})
    assert files.read()[0].generation == 8
    (tmp_path / "hosts" / "host-0" / "stats.json").write_text('{"requests": 5}', encoding="utf-8")
    assert files.read()[0].stats == {"requests": 5}


@pytest.mark.parametrize("damage", ["", "{", '{"models"'])
def test_an_incomplete_file_keeps_the_earlier_report(tmp_path: Path, damage: str) -> None:
    files = ActualFiles(tmp_path)
    write(tmp_path, "host-0", damage)
    assert files.read() == ()
    write(tmp_path, "host-0", ACTUAL)
    assert files.read()[0].generation == 42
    write(tmp_path, "host-0", damage)
    assert files.read()[0].generation == 42


def test_folders_without_a_report_are_no_hosts(tmp_path: Path) -> None:
    (tmp_path / "hosts" / "host-0").mkdir(parents=True)
    (tmp_path / "hosts" / "file").touch()
    assert ActualFiles(tmp_path).read() == ()


def test_a_host_lives_while_its_process_holds_its_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not is_alive(lock, os.getpid())
    with lock.open("w") as file:
        assert not is_alive(lock, os.getpid())
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_alive(lock, os.getpid())
        assert not is_alive(lock, 0)


def test_processes_that_have_ended_do_not_run() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ticks = process_ticks(child.pid)
    assert ticks is not None
    assert process_ticks(child.pid) == ticks
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    # A zombie: it has ended, and nobody has asked how.
    assert not process_runs(child.pid)
    child.wait()
    assert not process_runs(child.pid)
    assert not process_runs(-1)


def test_silence_starts_anew_with_each_process(tmp_path: Path) -> None:
    liveness = HostLiveness()
    process = subprocess.Popen(["sleep", "60"])
    try:
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: is_stopped(process.pid))
        for _ in range(3):
            time.sleep(0.05)
            liveness.begin()
            liveness.look("host-0", tmp_path, process.pid)
        assert liveness.silence("host-0", process.pid)[1] >= 0.1
        # The next one has not been seen yet: what the first one did is no sign of it.
        assert liveness.silence("host-0", process.pid + 1) == (0.0, 0.0)
    finally:
        process.kill()
        process.wait()
