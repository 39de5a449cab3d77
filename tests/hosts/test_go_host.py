# SPDX-License-Identifier: Apache-2.0
"""What only the Go host has: its profile, its threads, its load generator. tests/conformance has the rest."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hosts.contract_messages import encode
from helpers.hosts.message_files import frame
from helpers.hosts.served_hosts import ServedHost, model, served, version
from helpers.hosts.tfserving_messages import tfserving_request
from helpers.system.background import Background
from helpers.system.go_programs import go_program
from helpers.system.programs import require, run_ok

ROWS = 20_000


@pytest.fixture(scope="module")
def host(host_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHost]:
    """A host with one model on one CPU, and Go's profiler."""
    cpu = str(min(os.sched_getaffinity(0)))
    models = {"ranking": model(7, {7: version(host_model, config={"session_num": 1})})}
    arguments = ("--profile-listen", "127.0.0.1:0", "--cpus", cpu, "--log-format", "text", "--max-message-mb", "16")
    with served("go", tmp_path_factory.mktemp("state"), models, arguments) as started:
        yield started


def load(host: ServedHost, folder: Path, requests: list[bytes], *arguments: str) -> dict[str, Any]:
    """Let the load generator send requests; return its report."""
    path = folder / "requests.bin"
    path.write_bytes(frame(requests))
    command = [go_program("loadgen"), "--requests", path, "--warmup", "100ms", *arguments]
    report: dict[str, Any] = json.loads(run_ok(command))
    assert report["failed"] == {}
    assert report["requests"] > 0
    return report


def test_load_generator_gets_responses_over_grpc_and_rest(
    host: ServedHost, inputs: list[dict[str, Any]], tmp_path: Path
) -> None:
    over_grpc = [tfserving_request(source, name="ranking") for source in inputs]
    load(host, tmp_path, over_grpc, "--address", host.grpc, "--clients", "4", "--time", "1s")
    raw = [encode(example) for example in inputs]
    rest = ("--address", host.rest, "--over", "rest", "--path", "/v1/models/ranking:eas", "--clients", "8")
    report = load(host, tmp_path, raw, *rest, "--time", "1s", "--rate", "100", "--interval", "250ms")
    assert len(report["intervals"]) == 4
    assert report["latency_us"]["p50"] > 0


def test_process_keeps_to_its_cpus(host: ServedHost) -> None:
    cpus = {min(os.sched_getaffinity(0))}
    for task in Path(f"/proc/{host.pid}/task").iterdir():
        # Some threads end meanwhile.
        with contextlib.suppress(ProcessLookupError):
            assert os.sched_getaffinity(int(task.name)) == cpus


def test_waiting_requests_hold_no_thread(host: ServedHost, tmp_path: Path) -> None:
    """Many at once wait in the library, each without a thread of its own."""
    slow = tfserving_request({"size": np.int32(400)}, name="ranking", signature_name="slow")
    before = len(os.listdir(f"/proc/{host.pid}/task"))
    seen = []

    def watch(ended: threading.Event) -> None:
        while not ended.wait(0.02):
            seen.append(len(os.listdir(f"/proc/{host.pid}/task")))

    with Background(watch):
        load(host, tmp_path, [slow], "--address", host.grpc, "--clients", "100", "--time", "2s", "--timeout", "60s")
    assert max(seen) < before + 30


def test_no_message_is_decoded_in_go(host: ServedHost, tmp_path: Path) -> None:
    """A profile under large requests holds no work on their contents, but for the library's."""
    require("go")
    found = re.search(r"profiler: listening on (\S+?)[\"\s]", host.log.read_text())
    assert found
    large = {"x": np.ones((ROWS, 3), np.float32), "s": np.full(ROWS, b"some item", object)}
    request = tfserving_request(large, name="ranking")
    profile = tmp_path / "profile"

    def take() -> None:
        url = f"http://{found[1]}/debug/pprof/profile?seconds=2"
        profile.write_bytes(urllib.request.urlopen(url, timeout=60).read())

    taking = threading.Thread(target=take)
    taking.start()
    load(host, tmp_path, [request], "--address", host.grpc, "--clients", "2", "--time", "3s")
    taking.join()
    text = run_ok(["go", "tool", "pprof", "-top", "-cum", "-nodecount=100000", profile])
    assert "processor.(*Host).Process" in text
    decoders = r"proto\.Unmarshal|protowire\.|impl\.\(\*MessageInfo\)|UnmarshalOptions"
    assert [line for line in text.splitlines() if re.search(decoders, line)] == []
