# SPDX-License-Identifier: Apache-2.0
"""Cores divided among versions of a real host: the CPUs of its threads, also after the proxy was killed."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from helpers.hosts.contract_messages import encode
from helpers.proxies.proxy_runs import ProxyProcess, wait_for
from helpers.system.background import Background
from serving_proxy import Client
from serving_proxy.system.cpus import read_cpus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: there is nothing to divide"),
]

BODY = encode({"x": np.array([[1, 2, 3]], np.float32)})


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[ProxyProcess]:
    with ProxyProcess(tmp_path, "--cores", "control", "--maintenance-cpus", "0", host="python") as running:
        yield running


@contextmanager
def asked(http: httpx.Client, versions: tuple[int, ...]) -> Iterator[list[int]]:
    """Send requests to the versions in turn while the block runs; yield the list of statuses."""
    statuses: list[int] = []

    def ask(ended: threading.Event) -> None:
        while not ended.is_set():
            for number in versions:
                statuses.append(http.post(f"/v1/models/ranking/versions/{number}:eas", content=BODY).status_code)

    with Background(ask):
        yield statuses


def in_force(proxy: ProxyProcess) -> dict[str, str]:
    """Return the CPUs of each version as the host reports them."""
    actual = json.loads((proxy.state_dir / "hosts" / "host-0" / "actual.json").read_bytes())
    versions = actual["models"].get("ranking", {}).get("versions", {})
    return {f"ranking/{number}": str(version["cpuset"]) for number, version in versions.items()}


def thread_cpus(pid: int) -> set[frozenset[int]]:
    """Return the CPUs of the threads that run requests."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        # Other threads may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if task.joinpath("comm").read_text(encoding="utf-8").strip() == "session-0":
                found.add(frozenset(os.sched_getaffinity(int(task.name))))
    return found


def desired_cpusets(proxy: ProxyProcess) -> dict[str, str]:
    """Return the CPUs that `desired.json` gives the host's versions."""
    found: dict[str, Any] = proxy.desired().get("hosts", {}).get("host-0", {})
    return dict(found.get("cpusets", {}))


def test_a_proxy_that_is_killed_leaves_the_division_in_force(
    proxy: ProxyProcess, make_linear_model: Callable[..., Path], tmp_path: Path
) -> None:
    with proxy.client() as client:
        wait_for(lambda: client.status()["hosts"] and client.status()["hosts"][0]["alive"], 180)
        for number in (3, 4):
            model = make_linear_model(tmp_path / str(number), scale=float(number))
            client.deploy("ranking", model, wait=True, timeout=120)
        (host,) = client.status()["hosts"]
        http = httpx.Client(base_url="http://" + host["endpoints"]["rest"], trust_env=False, timeout=60)
        with http, asked(http, (3, 4)) as statuses:
            wait_for(lambda: {"ranking/3", "ranking/4"} <= desired_cpusets(proxy).keys(), 60, "a division")
            wait_for(lambda: in_force(proxy) == desired_cpusets(proxy), 60, "a host that follows")

            def shown() -> dict[str, set[int]]:
                """Return the data from which the dashboard draws the CPUs."""
                return {f"ranking/{owner['version']}": set(owner["cpus"]) for owner in client.machine()["owners"]}

            def wanted() -> dict[str, set[int]]:
                return {name: read_cpus(cpus) for name, cpus in desired_cpusets(proxy).items()}

            wait_for(lambda: shown() == wanted(), 60, "a map that is what was decided")
            proxy.kill()
            seen = len(statuses)
            before = (proxy.state_dir / "desired.json").read_bytes()
            wait_for(lambda: len(statuses) > seen + 300, 60, "answers without a proxy")
            assert set(statuses) == {200}
            given = json.loads(before)["hosts"]["host-0"]["cpusets"]
            wait_for(lambda: in_force(proxy) == given, 60, "what was decided last")
            assert thread_cpus(host["pid"]) == {frozenset(read_cpus(cpus)) for cpus in given.values()}
            assert (proxy.state_dir / "desired.json").read_bytes() == before
            proxy.start()
            # Several looks of a proxy that plans anew, from what it remembers.
            end = time.monotonic() + 5.0
            while time.monotonic() < end:
                assert desired_cpusets(proxy)["ranking/4"] == given["ranking/4"]
                time.sleep(0.1)
            assert set(statuses) == {200}
    stop_hosts(proxy)


def loaded(proxy: ProxyProcess) -> dict[str, Any]:
    """Return values that change when the host loads a version again."""
    actual = json.loads((proxy.state_dir / "hosts" / "host-0" / "actual.json").read_bytes())
    versions = actual["models"]["ranking"]["versions"]
    return {
        number: (version["state"], version["since"], version.get("replacement")) for number, version in versions.items()
    }


def test_cpus_that_an_operator_chooses_load_nothing_again(
    proxy: ProxyProcess, make_linear_model: Callable[..., Path], tmp_path: Path
) -> None:
    with proxy.client() as client:
        wait_for(lambda: client.status()["hosts"] and client.status()["hosts"][0]["alive"], 180)
        models = {number: make_linear_model(tmp_path / str(number), scale=float(number)) for number in (3, 4)}
        for model in models.values():
            client.deploy("ranking", model, wait=True, timeout=120)
        (host,) = client.status()["hosts"]
        cpus = sorted(read_cpus(host["cpus"]))
        before = loaded(proxy)
        for cpu in cpus[:2]:
            client.deploy("ranking", models[4], cpuset=str(cpu))
            wait_for(lambda cpu=cpu: in_force(proxy)["ranking/4"] == str(cpu), 60, "the CPU that was chosen")
            assert loaded(proxy) == before
        client.deploy("ranking", models[4], cpuset="auto")
        wait_for(lambda: in_force(proxy)["ranking/4"] != str(cpus[1]), 60, "no CPU of its own")
        assert loaded(proxy) == before
    stop_hosts(proxy)


def stop_hosts(proxy: ProxyProcess) -> None:
    """End the proxy with its host."""
    with Client(proxy.url) as client:
        assert client.status()["hosts"][0]["alive"]
    assert proxy.stop(60) == 0
