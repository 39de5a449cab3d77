# SPDX-License-Identifier: Apache-2.0
"""Two proxies as processes, of which one leads, and a machine that follows them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from helpers.proxies.agent_runs import Machine
from helpers.proxies.proxy_runs import ProxyProcess, wait_for, write_model
from helpers.system.s3 import s3_environment
from serving_proxy import Client
from serving_proxy.records.states import GATED

TOKEN = "a-token-of-two-proxies"


class Pair:
    """Two proxies that share a store and a token.

    Each is given time for a lease in which it can stand still on a busy machine: the tests are about a leader that ends
    or is stopped, and must not see another change.
    """

    def __init__(self, folder: Path, shared: str, lease_s: float, *options: str) -> None:
        self.folder = folder
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN)
        options = ("--engine", "agents", "--shared-store", shared, "--lease-timeout", str(lease_s), *options)
        options += ("--new-store", "--token-file", str(self.token_file))
        self.proxies = [ProxyProcess(folder / name, *options) for name in ("a", "b")]

    def leader(self) -> ProxyProcess | None:
        """Return the proxy that leads, if one does."""
        return next((proxy for proxy in self.proxies if _leads(proxy)), None)

    def other(self, proxy: ProxyProcess) -> ProxyProcess:
        """Return the other proxy."""
        return next(other for other in self.proxies if other is not proxy)


def _leads(proxy: ProxyProcess) -> bool:
    return _status(proxy) == "ok"


def _status(proxy: ProxyProcess) -> str:
    """Return what a proxy says of itself; empty if it does not answer, as one that was just woken up."""
    try:
        return str(httpx.get(f"{proxy.url}/healthz", trust_env=False, timeout=5).json()["status"])
    except httpx.HTTPError:
        return ""


pytestmark = pytest.mark.slow


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    # A stopped leader is followed after this time.
    made = Pair(tmp_path, f"file://{tmp_path}/shared", 12)
    with made.proxies[0], made.proxies[1]:
        yield made


def test_standby_takes_over_with_the_whole_state_and_the_former_leader_changes_nothing(pair: Pair) -> None:
    leader: ProxyProcess = wait_for(pair.leader)
    standby = pair.other(leader)
    servers = [proxy.url for proxy in pair.proxies]
    with Machine(pair.folder, "m", *servers, token_file=pair.token_file) as machine:
        with leader.client(TOKEN) as client:
            client.deploy("ranking", write_model(pair.folder / "models" / "1"), wait=True, timeout=120)
            client.deploy("ranking", write_model(pair.folder / "models" / "2"), wait=True, timeout=120, traffic=10)
            client.guard("ranking", error_percent=3.0)
            client.apply_placement({"schema": "placement/1", "replicas": [{"model": "ranking", "machine": "m"}]})
            wait_for(lambda: machine.desired()["models"]["ranking"].get("annotations"))
            before, status = machine.desired(), client.status()
            term, generation = status["term"], status["generation"]
            events = [event["message"] for event in client.events()]
        refused = httpx.get(f"{standby.url}/v1/status", trust_env=False, timeout=60)
        assert refused.status_code == 503
        assert f"{leader.url} leads" in refused.json()["error"]["message"]
        with Client(standby.url, TOKEN) as follower:
            assert follower.status()["pid"] == leader.process.pid

        leader.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: _leads(standby), 60)
        with standby.client(TOKEN) as client:
            wait_for(lambda: [m["state"] for m in client.status()["machines"]] == ["current"])
            status = client.status()
            assert status["term"] > term
            assert status["generation"] >= generation
            assert not any("no host" in event["message"] for event in client.events(limit=1000))
            assert machine.desired()["models"] == before["models"]
            assert [version["traffic"] for version in client.versions("ranking")["versions"]] == [90.0, 10.0]
            assert client.guard("ranking")["settings"]["error_percent"] == 3.0
            assert client.placement()["models"][0]["machines"] == ["m"]
            assert set(events) <= {event["message"] for event in client.events(limit=1000)}
            client.traffic("ranking", {2: 50.0})
            wait_for(lambda: machine.desired()["models"]["ranking"]["routing"]["arms"][0]["weight"] == 5000)

        leader.process.send_signal(signal.SIGCONT)
        body = {"weights": {"2": 20.0}}
        url, headers = f"{leader.url}/v1/models/ranking/traffic", {"Authorization": f"Bearer {TOKEN}"}
        assert httpx.put(url, json=body, headers=headers, trust_env=False, timeout=60).status_code == 503
        wait_for(lambda: _status(leader) == "standby")
        assert machine.desired()["models"]["ranking"]["routing"]["arms"][0]["weight"] == 5000

        assert standby.stop(60) == 0
        wait_for(lambda: _leads(leader), 60)
        with leader.client(TOKEN) as client:
            wait_for(lambda: [m["state"] for m in client.status()["machines"]] == ["current"])
            assert client.status()["term"] > status["term"]
            assert [version["traffic"] for version in client.versions("ranking")["versions"]] == [50.0, 50.0]


def test_proxies_that_share_only_a_bucket(s3_port: int, tmp_path: Path) -> None:
    """Each proxy has files of its own: the machine that comes later gets the model from the model store."""
    with s3_environment(s3_port):
        url = f"s3://models/{tmp_path.name}"
        # A leader that ends gives its lease back, so that this may be long.
        made = Pair(tmp_path, f"{url}/shared", 60, "--model-store", f"{url}/store")
        with made.proxies[0], made.proxies[1]:
            leader: ProxyProcess = wait_for(made.leader)
            standby, servers = made.other(leader), [proxy.url for proxy in made.proxies]
            with leader.client(TOKEN) as client:
                client.deploy("ranking", write_model(tmp_path / "models" / "1"))
                wait_for(lambda: client.versions("ranking")["versions"][0]["state"] not in GATED)
                term = client.status()["term"]
            assert leader.stop(60) == 0
            (tmp_path / "models").rename(tmp_path / "gone")
            wait_for(lambda: _leads(standby), 60)
            with (
                Machine(tmp_path, "m", *servers, token_file=made.token_file) as machine,
                standby.client(TOKEN) as client,
            ):
                wait_for(lambda: machine.versions("ranking") == [1])
                assert client.status()["term"] > term
                assert f"{machine.state_dir}/" in machine.desired()["models"]["ranking"]["versions"]["1"]["path"]


def test_leader_whose_store_was_away_leads_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    shared, options = tmp_path / "shared", ("--engine", "agents", "--token-file", str(tmp_path / "token"))
    options += ("--shared-store", str(shared), "--new-store", "--lease-timeout", "2")
    with ProxyProcess(tmp_path / "p", *options) as proxy:
        wait_for(lambda: _leads(proxy), 60)
        shared.rename(tmp_path / "away")
        # As when its file system is unmounted.
        shared.mkdir()
        wait_for(lambda: _status(proxy) == "standby", 60)
        assert httpx.get(f"{proxy.url}/healthz", trust_env=False, timeout=60).json()["leader"] is None
        assert not (shared / "terms").exists()
        assert not (shared / "log").exists()
        shared.rename(tmp_path / "empty")
        (tmp_path / "away").rename(shared)
        wait_for(lambda: _leads(proxy), 60)
