# SPDX-License-Identifier: Apache-2.0
"""After SIGKILL at any moment, full disks and damaged files, exactly the deployed state returns."""

from __future__ import annotations

import json
import random
import resource
import threading
from pathlib import Path
from typing import Any

import pytest

from helpers.proxies.proxy_runs import ProxyProcess, ProxyThread, wait_for, write_model
from serving_proxy import Client
from serving_proxy.errors import ProxyError


def shown(client: Client) -> dict[str, Any]:
    """Return the deployed state without transient values."""
    keys = ("baseline", "candidate", "last_good", "paused", "layer", "labels", "ramps")
    models = {}
    for model in client.status()["models"]:
        versions = {
            version["version"]: (version["role"], version["traffic"], version["shadow"], version["path"])
            for version in model["versions"]
        }
        models[model["name"]] = {key: model[key] for key in keys} | {"versions": versions}
    return models


def test_a_killed_proxy_comes_back_to_exactly_what_was_deployed(tmp_path: Path) -> None:
    with ProxyProcess(tmp_path) as proxy:
        with proxy.client() as client:
            for number in (3, 4, 5):
                client.deploy("ranking", write_model(tmp_path / "ranking" / str(number)), wait=True)
            client.deploy("other", write_model(tmp_path / "other" / "1"), labels=["stable"], wait=True)
            client.promote("ranking", 4)
            client.traffic("ranking", {5: 12.34})
            client.ramp("ranking", 5, to=50, over_s=3600)
            client.pause("ranking")
            before, desired = shown(client), proxy.desired()
        proxy.kill()
        proxy.start()
        with proxy.client() as client:
            assert shown(client) == before
            assert proxy.desired() == desired
            assert [event["kind"] for event in client.events(model="ranking")][-1] == "pause"
        proxy.kill()
        (proxy.state_dir / "desired.json").write_text("{", encoding="utf-8")
        proxy.start()
        assert proxy.desired() == desired


def test_a_deployment_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "3")
    (folder / "slow").touch()
    with ProxyProcess(tmp_path) as proxy:
        with proxy.client() as client:
            job = client.deploy("ranking", folder)["job"]
            wait_for(lambda: client.job(job["id"])["step"].startswith("loading"))
        proxy.kill()
        proxy.start()
        with proxy.client() as client:
            assert client.job(job["id"])["state"] == "running"
            (folder / "slow").unlink()
            assert client.wait(job["id"], timeout=60)["state"] == "succeeded"


@pytest.mark.slow
def test_a_proxy_killed_at_any_moment_leaves_a_consistent_state(tmp_path: Path) -> None:
    """After a restart, the state is that of the last operation that was answered, or of the one after it."""
    chance = random.Random(7)
    with ProxyProcess(tmp_path) as proxy:
        with proxy.client() as client:
            for number in (1, 2, 3):
                client.deploy("ranking", write_model(tmp_path / "ranking" / str(number)), wait=True)
        answered = 0.0
        for _ in range(4):
            asked = answered
            killer = threading.Timer(chance.uniform(0.05, 0.4), proxy.kill)
            killer.start()
            with proxy.client() as client:
                while killer.is_alive():
                    asked = round(asked % 60 + 0.01, 2)
                    try:
                        client.traffic("ranking", {2: asked, 3: 20})
                    except ProxyError:
                        break
                    answered = asked
            killer.join()
            proxy.start()
            with proxy.client() as client:
                found = {number: version[1] for number, version in shown(client)["ranking"]["versions"].items()}
            assert found[2] in {answered, asked}
            arms = proxy.desired()["models"]["ranking"]["routing"]["arms"]
            assert sum(arm["weight"] for arm in arms if arm["version"] == 2) == round(found[2] * 100)
            answered = found[2]


def test_a_full_disk_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    """Files cannot grow any more, as on a full disk."""
    with ProxyProcess(tmp_path) as proxy, proxy.client() as client:
        client.deploy("ranking", write_model(tmp_path / "3"), wait=True)
        client.deploy("ranking", write_model(tmp_path / "4"), wait=True)
        before, desired = shown(client), proxy.desired()
        resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        with pytest.raises(ProxyError, match="expected room to write; nothing was changed") as refused:
            client.traffic("ranking", {4: 10})
        assert refused.value.status == "RESOURCE_EXHAUSTED"
        assert shown(client) == before
        assert proxy.desired() == desired
        resource.prlimit(proxy.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert client.traffic("ranking", {4: 10})["versions"][1]["traffic"] == 10
        proxy.kill()
        proxy.start()
        with proxy.client() as later:
            assert shown(later)["ranking"]["versions"][4][1] == 10


def test_a_second_proxy_of_one_directory_is_refused(tmp_path: Path) -> None:
    with ProxyProcess(tmp_path) as proxy:
        second = ProxyProcess(tmp_path)
        assert second.spawn().wait(120) == 1
        said = f"{proxy.state_dir}: in use by process {proxy.process.pid}, expected no other proxy or agent"
        assert said in proxy.log_path.read_text(encoding="utf-8").replace("\n", " ")
        assert proxy.process.poll() is None


def test_a_host_that_refuses_the_state_is_shown(tmp_path: Path) -> None:
    with ProxyThread(tmp_path) as proxy, proxy.client() as client:
        client.deploy("ranking", write_model(tmp_path / "3"), wait=True)
        (proxy.state_dir / "hosts" / "host-0" / "refuse_all").write_text("models: too many", encoding="utf-8")
        wait_for(lambda: client.status()["hosts"][0]["desired_error"] == "models: too many")
        assert "host-0: models: too many" in [event["message"] for event in client.events()]
        assert any("refuses desired.json" in line for line in client.explain("ranking")["lines"])


def test_logs_are_lines_of_json(tmp_path: Path) -> None:
    with ProxyProcess(tmp_path) as proxy, proxy.client() as client:
        client.deploy("ranking", write_model(tmp_path / "3"), wait=True)
        proxy.stop()
    lines = [json.loads(line) for line in proxy.log_path.read_text(encoding="utf-8").splitlines()]
    assert {"time", "level", "logger", "message"} <= set(lines[0])
    assert any(event.get("event") == "deploy" and event["model"] == "ranking" for event in lines)
