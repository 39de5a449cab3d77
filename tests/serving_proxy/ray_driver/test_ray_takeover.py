# SPDX-License-Identifier: Apache-2.0
"""Two whole proxies on a Ray cluster, of which an actor says which one leads; they share only it and a bucket.

Hosts are those in Python, with a real model that they get from a bucket.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from helpers.proxies.proxy_runs import wait_for
from helpers.proxies.ray_runs import START_S, RayProxyProcess, desired_of, need_ray, ray_options
from load_tests.fleet.clients import RoundRobinClients
from load_tests.fleet.ray_cluster import RayCluster, ray_cluster
from load_tests.fleet.s3 import BUCKET, s3_server
from serving_proxy import messages

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

TOKEN = "a-token-of-two-proxies-on-ray"
NAMES = ("replica-0", "replica-1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A cluster with two nodes, in whose environment a server of S3 is named."""
    need_ray()
    with pytest.MonkeyPatch.context() as patch:
        # So that they are restored afterwards.
        for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
            patch.setenv(name, "")
        with s3_server(tmp_path_factory.mktemp("s3")), ray_cluster(cpus=1) as made:
            made.add_node(cpus=1)
            yield made


class Pair:
    """Two proxies of the same fleet, one of which leads."""

    def __init__(self, cluster: RayCluster, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        token_file = folder / "token"
        token_file.write_text(TOKEN)
        stores = ("--model-store", f"s3://{BUCKET}/store", "--shared-store", f"s3://{BUCKET}/proxies", "--lease", "ray")
        where = ("--replica-folder", str(folder / "nodes"), "--token-file", str(token_file))
        shared = (*stores, *where, "--lease-timeout", "5", "--replicas", "2")
        options = ray_options(cluster, folder, *shared)
        self.proxies = [RayProxyProcess(folder / name, *options, host="python") for name in "ab"]

    def leader(self) -> RayProxyProcess | None:
        """Return the proxy that leads, if one does."""
        return next((proxy for proxy in self.proxies if leads(proxy)), None)

    def weights(self, replica: str) -> list[int]:
        """Return the shares of variants [1/100 %] that a host is to serve."""
        found = desired_of(self.folder, replica)["models"]["linear"]["routing"]["arms"]
        return sorted(arm["weight"] for arm in found)


@pytest.fixture(scope="module")
def pair(cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two proxies with two replicas."""
    made = Pair(cluster, tmp_path_factory.mktemp("pair") / "fleet")
    with made.proxies[0], made.proxies[1]:
        yield made


def leads(proxy: RayProxyProcess) -> bool:
    try:
        return httpx.get(f"{proxy.url}/healthz", trust_env=False, timeout=2).json()["status"] == "ok"
    except httpx.HTTPError:
        return False


def predict_request() -> bytes:
    request = messages.new("tensorflow.serving.PredictRequest")
    request.model_spec.name = "linear"
    x = request.inputs["x"]
    x.dtype = 1
    for size in (1, 3):
        x.tensor_shape.dim.add(size=size)
    x.float_val.extend([1.0, 2.0, 3.0])
    found: bytes = request.SerializeToString()
    return found


def shares(client: Any) -> list[float]:
    return [version["traffic"] for version in client.versions("linear")["versions"]]


def test_hosts_in_python_serve_a_model_of_a_bucket(
    pair: Pair, make_linear_model: Callable[..., Path], tmp_path: Path
) -> None:
    leader: RayProxyProcess = wait_for(pair.leader, START_S)
    with leader.client(TOKEN) as client:
        for version in (1, 2):
            model = make_linear_model(tmp_path / str(version), float(version))
            # The replicas are on other nodes: only the bucket has the files by the time they fetch them.
            client.deploy("linear", model, version=version, traffic=None if version == 1 else 10.0, wait=True)
            model.rename(tmp_path / f"gone-{version}")
        leader.wait_ready(*NAMES)
        found = wait_for(lambda: both if len(both := client.endpoints("linear")["endpoints"]) == 2 else None, START_S)
    assert {endpoint["addresses"]["rest"].partition(":")[0] for endpoint in found} == {"127.0.0.2", "127.0.0.3"}
    for endpoint in found:
        url = f"http://{endpoint['addresses']['rest']}/v1/models/linear/versions/2:predict"
        answer = httpx.post(url, json={"instances": [[1.0, 2.0, 3.0]]}, trust_env=False, timeout=60)
        assert answer.json() == {"predictions": [[29.0]]}
        versions = desired_of(pair.folder, endpoint["machine"])["models"]["linear"]["versions"]
        assert all(one["path"].startswith(f"{pair.folder}/nodes/models/") for one in versions.values())


def test_standby_takes_over_whole_state_while_hosts_and_clients_go_on(pair: Pair) -> None:
    leader: RayProxyProcess = wait_for(pair.leader, START_S)
    standby = next(proxy for proxy in pair.proxies if proxy is not leader)
    with leader.client(TOKEN) as client:
        client.guard("linear", error_percent=3.0)
        addresses = [endpoint["addresses"]["grpc"] for endpoint in client.endpoints("linear")["endpoints"]]
        before, term = leader.processes(*NAMES), client.status()["term"]
        events = [event["message"] for event in client.events(limit=1000)]
        assert shares(client) == [90.0, 10.0]
    with RoundRobinClients(addresses, predict_request(), retries=True) as clients:
        wait_for(lambda: clients.statuses["OK"] > 100, START_S)
        begun = time.monotonic()
        leader.kill()
        wait_for(lambda: leads(standby), START_S)
        print(f"leads after {time.monotonic() - begun:.1f} s")
        with standby.client(TOKEN) as client:
            assert client.status()["term"] > term
            assert client.guard("linear")["settings"]["error_percent"] == 3.0
            assert shares(client) == [90.0, 10.0]
            wait_for(lambda: [m["state"] for m in client.status()["machines"]] == ["current"] * 2, START_S)
            print(f"replicas follow after {time.monotonic() - begun:.1f} s")
            standby.wait_ready(*NAMES)
            assert standby.processes(*NAMES) == before
            assert shares(client) == [90.0, 10.0]
            later = [event["message"] for event in client.events(limit=1000)]
            assert set(events) <= set(later)
            assert not any("no host" in message for message in later)
            assert [message for message in later if message.endswith(": started")] == [f"{n}: started" for n in NAMES]
            client.traffic("linear", {2: 50.0})
            wait_for(lambda: all(pair.weights(name) == [5000] for name in NAMES), START_S)
        seen = clients.statuses["OK"]
        wait_for(lambda: clients.statuses["OK"] > seen + 100, START_S)
    assert clients.lost == 0, clients.statuses
