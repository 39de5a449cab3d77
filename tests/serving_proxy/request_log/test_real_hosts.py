# SPDX-License-Identifier: Apache-2.0
"""Two machines with real hosts: their requests are recorded, merged by the proxy, replayed, and warm up a version."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest

from graph_tools.readers import read_model
from graph_tools.verification.requests import read_requests
from helpers.hosts.contract_messages import encode
from helpers.proxies.agent_runs import Machine
from helpers.proxies.proxy_runs import ProxyThread, wait_for
from helpers.system.certificates import make_authority, make_certificate
from serving_proxy import Client

pytestmark = pytest.mark.slow


def test_recorded_requests_of_two_machines_over_tls(tmp_path: Path, make_linear_model: Callable[..., Path]) -> None:
    authority = make_authority(tmp_path, "authority")
    certificate = make_certificate(tmp_path, "proxy", authority)
    token = tmp_path / "agents.token"
    token.write_text("a-token-of-agents\n")
    options = ["--admin-tls-cert", str(certificate.chain), "--admin-tls-key", str(certificate.key)]
    options += ["--engine", "agents", "--agent-token-file", str(token)]
    models = {number: make_linear_model(tmp_path / "models" / str(number), scale=float(number)) for number in (1, 2)}
    with ProxyThread(tmp_path / "proxy", *options, host="none") as proxy:
        machines = [
            Machine(tmp_path, name, proxy.url, token_file=token, ca_file=authority.chain) for name in ("a", "b")
        ]
        try:
            for machine in machines:
                machine.start().start_real_host()
            admin = (proxy.state_dir / "admin.token").read_text().strip()
            with Client(proxy.url, admin, verify=authority.chain) as client:
                _record_merge_and_warm_up(client, machines, models)
        finally:
            for machine in machines:
                machine.stop()
                if machine.host is not None:
                    machine.host.send_signal(signal.SIGKILL)
                    machine.host.wait()


def _record_merge_and_warm_up(client: Client, machines: list[Machine], models: dict[int, Path]) -> None:
    wait_for(lambda: len([host for host in client.status()["hosts"] if host["alive"]]) == 2, 180)
    client.deploy("ranking", models[1], wait=True, timeout=120)
    client.set_request_log("ranking", 100)
    generation = client.status()["generation"]
    wait_for(lambda: all(host["generation"] >= generation for host in client.status()["hosts"]))
    for number, host in enumerate(client.status()["hosts"]):
        with httpx.Client(base_url=f"http://{host['endpoints']['rest']}", trust_env=False, timeout=60) as http:
            for step in range(3):
                row = np.full((1, 3), 10 * number + step, np.float32)
                assert http.post("/v1/models/ranking:eas", content=encode({"x": row})).status_code == 200

    def merged() -> list[float]:
        path = client.merge_request_log("ranking")["path"]
        asked = read_requests(path, read_model(models[1]).signatures)
        return sorted(float(request.inputs["x"][0, 0]) for request in asked)

    wait_for(lambda: sum(file["bytes"] for file in client.request_log("ranking")["files"]) > 0)
    wait_for(lambda: len({file["host"] for file in client.request_log("ranking")["files"]}) == 2)
    wait_for(lambda: merged() == [0, 1, 2, 10, 11, 12])
    client.deploy("ranking", models[2], warmup="last", traffic=10, wait=True, timeout=120)
    for machine in machines:
        actual = json.loads((machine.state_dir / "hosts" / "host-0" / "actual.json").read_bytes())
        version = actual["models"]["ranking"]["versions"]["2"]
        assert (version["state"], version["warmup"]) == ("ready", "file: 6 records on each session")
