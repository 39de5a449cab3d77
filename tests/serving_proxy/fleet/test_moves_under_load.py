# SPDX-License-Identifier: Apache-2.0
"""A model moves between machines with real hosts while clients that read its endpoints send requests."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest

from load_tests.fleet.clients import predict_request
from load_tests.fleet.machine import FleetMachine
from load_tests.fleet.setup import FleetProxy, make_certificates, wait_until
from load_tests.workloads import ensure_model
from serving_proxy import Client
from serving_proxy.agent.cores import machine_of
from serving_proxy.system.cpus import read_cpus

pytestmark = pytest.mark.long

_METHOD = "/tensorflow.serving.PredictionService/Predict"
_READ_S = 2.0
_HANDOVER_S = 10.0


class ListClients:
    """Threads that send requests, without retries, to the addresses of the last list of endpoints in turn."""

    def __init__(self, client: Client, model: str) -> None:
        self.statuses: Counter[str] = Counter()
        self.used: set[str] = set()
        self._client, self._model = client, model
        self._addresses = self._read()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._refresh, self._send, self._send)]

    def _read(self) -> list[str]:
        return [found["addresses"]["grpc"] for found in self._client.endpoints(self._model)["endpoints"]]

    def _refresh(self) -> None:
        while not self._ended.wait(_READ_S):
            self._addresses = self._read()

    def _send(self) -> None:
        channels: dict[str, grpc.Channel] = {}
        turn = 0
        while not self._ended.is_set():
            addresses = self._addresses
            turn += 1
            address = addresses[turn % len(addresses)]
            channel = channels.setdefault(address, grpc.insecure_channel(address))
            try:
                channel.unary_unary(_METHOD)(predict_request(), timeout=20.0)
                status = "OK"
            except grpc.RpcError as error:
                status = f"{error.code().name} of {address}"
            with self._lock:
                self.statuses[status] += 1
                self.used.add(address)
            time.sleep(0.002)
        for channel in channels.values():
            channel.close()

    def __enter__(self) -> ListClients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def _placement(*machines: str) -> dict[str, object]:
    entry = {"name": "tiny", "model": "tiny", "version": None, "cores": 1, "core_list": "0"}
    replicas = [{**entry, "machine": machine} for machine in machines]
    return {"schema": "placement/1", "replicas": replicas}


def test_no_request_is_lost_while_a_model_moves(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    with FleetProxy(tmp_path, options=["--cores", "plan"]) as proxy:
        machines = [FleetMachine(tmp_path, f"machine-{number}", proxy) for number in range(3)]
        try:
            proxy.client.apply_placement(_placement("machine-0", "machine-1"), _HANDOVER_S)
            for machine in machines:
                machine.start()
            proxy.client.deploy("tiny", ensure_model("tiny"), version=1, wait=True, timeout=120)
            with ListClients(proxy.client, "tiny") as clients:
                wait_until(lambda: clients.statuses.total() > 100)
                proxy.client.apply_placement(_placement("machine-2"), _HANDOVER_S)
                # A version that is deployed during the move goes with it.
                proxy.client.deploy(
                    "tiny", ensure_model("tiny"), version=2, traffic=50, wait=True, timeout=120, other_signature=True
                )
                proxy.client.wait_for_placement(120)
                wait_until(lambda: all(not _has_model(proxy, name) for name in ("machine-0", "machine-1")))
                before = clients.statuses.total()
                wait_until(lambda: clients.statuses.total() > before + 100)
            assert set(clients.statuses) == {"OK"}, clients.statuses
            assert clients.used == {machine.address for machine in machines}
            first = machine_of(os.sched_getaffinity(0)).cores[0].cpus
            given = [host["cpuset"] for version in _versions(proxy) for host in version["hosts"].values()]
            assert [read_cpus(cpus) for cpus in given] == [set(first)] * 2
            with grpc.insecure_channel(machines[0].address) as channel, pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(_METHOD)(predict_request(), timeout=20.0)
            assert refused.value.code() == grpc.StatusCode.NOT_FOUND
        finally:
            for machine in machines:
                machine.end(signal.SIGKILL)


def _has_model(proxy: FleetProxy, machine: str) -> bool:
    return any(host.startswith(f"{machine}/") for version in _versions(proxy) for host in version["hosts"])


def _versions(proxy: FleetProxy) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = proxy.client.versions("tiny")["versions"]
    return found
