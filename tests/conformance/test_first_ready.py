# SPDX-License-Identifier: Apache-2.0
"""A host accepts requests once its models are ready, and only on ports of its own state directory."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from helpers.hosts.host_requests import ranking_body
from helpers.hosts.served_hosts import ROOT, ServedHost, program, served, version
from helpers.models.deadly_models import build_deadly
from helpers.system.waiting import wait_until
from load_tests.ports import free_port


def ports_of(host: ServedHost) -> tuple[str, ...]:
    return tuple(part for name in ("grpc", "rest") for part in (f"--{name}-port", getattr(host, name).split(":")[1]))


def takes_connections(address: str) -> bool:
    name, _, port = address.rpartition(":")
    try:
        socket.create_connection((name, int(port)), timeout=60).close()
    except ConnectionRefusedError:
        return False
    return True


class Clients:
    """Sends each request over a new connection until it is stopped; counts the results."""

    def __init__(self, address: str) -> None:
        self.seen: Counter[str] = Counter()
        self._url = f"http://{address}/api/predict/ranking"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.seen[str(httpx.post(self._url, content=ranking_body(), timeout=60).status_code)] += 1
            except httpx.TransportError:
                self.seen["reconnect"] += 1
            time.sleep(0.002)

    def end(self) -> Counter[str]:
        self._stop.set()
        self._thread.join(60)
        return self.seen


@pytest.mark.slow
def test_nothing_listens_for_requests_before_models_are_ready(
    host_kind: str, tmp_path: Path, served_models: dict[str, Any]
) -> None:
    # What holds it up fails in the end, which settles it.
    endless = version(build_deadly(tmp_path / "endless", "endless"), config={"load_timeout_seconds": 6})
    models = {
        "ranking": {**served_models["ranking"], "versions": {**served_models["ranking"]["versions"], "3": endless}}
    }
    probe = ServedHost(host_kind, tmp_path / "state", models)
    port = free_port()
    command = [*program(host_kind), "--state-dir", str(probe.state_dir), "--health-port", "0"]
    command += ["--grpc-port", "0", "--rest-port", str(port)]
    with probe.log.open("ab") as log:
        probe.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        probe.wait_for(lambda state: "health" in state["endpoints"])
        health = f"http://{probe.actual()['endpoints']['health']}"
        seen = set()
        while True:
            looked = (httpx.get(f"{health}/readyz", timeout=60).status_code, takes_connections(f"127.0.0.1:{port}"))
            assert httpx.get(f"{health}/healthz", timeout=60).status_code == 200
            assert "recprocessor_model_state" in httpx.get(f"{health}/metrics", timeout=60).text
            actual = probe.actual()
            if actual["state"] == "ready":
                break
            seen.add(looked)
            assert actual["endpoints"].keys() == {"health"}
        assert seen == {(503, False)}
        assert httpx.post(f"{health}/api/predict/ranking", content=ranking_body(), timeout=60).status_code == 404
        probe.wait_for(lambda state: state["endpoints"].keys() == {"health", "grpc", "rest"})
        assert probe.actual()["models"]["ranking"]["versions"]["3"]["state"] == "failed"
        answer = httpx.post(f"http://127.0.0.1:{port}/api/predict/ranking", content=ranking_body(), timeout=60)
        assert answer.status_code == 200
        with grpc.insecure_channel(probe.actual()["endpoints"]["grpc"]) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            wait_until(lambda: check(b"", timeout=60) == b"\x08\x01")
        assert httpx.get(f"{health}/readyz", timeout=60).status_code == 200
        assert probe.end() == 0
    finally:
        if probe.process.poll() is None:
            probe.process.kill()


@pytest.mark.slow
def test_clients_of_a_shared_port_only_reconnect(
    start_host: Callable[..., Any], served_models: dict[str, Any], host_kind: str
) -> None:
    models = {"ranking": served_models["ranking"]}
    with (
        start_host(models) as first,
        served(host_kind, first.state_dir, models, ports_of(first), name="host-1") as second,
    ):
        clients = Clients(first.rest)
        for number in (signal.SIGKILL, signal.SIGTERM):
            second.end(number)
            second.start()
        seen = clients.end()
    assert seen["200"] > 20
    assert seen.keys() <= {"200", "reconnect"}, seen


def test_a_port_of_another_state_directory_is_refused(
    start_host: Callable[..., Any], served_models: dict[str, Any], host_kind: str, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with start_host({"ranking": served_models["ranking"]}) as first:
        command = [*program(host_kind), "--state-dir", str(other), *ports_of(first)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 1
        assert re.search(f"port .*{first.state_dir}.*{other}", ended.stderr), ended.stderr
        assert httpx.get(f"http://{first.rest}/readyz", timeout=60).status_code == 200


def test_a_state_directory_that_is_not_there_is_an_error(host_kind: str, tmp_path: Path) -> None:
    command = [*program(host_kind), "--state-dir", str(tmp_path / "absent"), "--grpc-port", "0", "--rest-port", "0"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert f"state_dir '{tmp_path}/absent': no such folder" in ended.stderr
    assert not (tmp_path / "absent").exists()
