# SPDX-License-Identifier: Apache-2.0
"""The proxy with a real host: responses to clients from deployment to rollback, and without the proxy."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2, prediction_service_pb2_grpc
from typer.testing import CliRunner

from helpers.hosts.contract_messages import decode, encode
from helpers.models.model_builders import linear_score
from helpers.models.special_models import build_hungry
from helpers.proxies.proxy_runs import ProxyProcess, wait_for
from serving_proxy import Client
from serving_proxy.cli.app import app, load_commands

pytestmark = pytest.mark.slow

ROW = np.array([[1, 2, 3]], np.float32)


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory, make_linear_model: Callable[..., Path]) -> dict[int, Path]:
    """Versions that multiply by their own number."""
    folder = tmp_path_factory.mktemp("versions")
    return {number: make_linear_model(folder / str(number), scale=float(number)) for number in (3, 4)}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    options = ("--maintenance-cpus", "0", "--host-option", "--max-request-mb-in-flight=1024")
    with ProxyProcess(tmp_path_factory.mktemp("proxy"), *options, host="python") as running:
        yield running


@pytest.fixture
def client(proxy: ProxyProcess) -> Iterator[Client]:
    with proxy.client() as made:
        wait_for(lambda: made.status()["hosts"][0]["alive"], 180)
        yield made


def rest(client: Client) -> httpx.Client:
    """Make a client of the host."""
    return httpx.Client(
        base_url="http://" + client.status()["hosts"][0]["endpoints"]["rest"], trust_env=False, timeout=60
    )


def answered_by(http: httpx.Client, key: str) -> int:
    """Request a score, check it, and return the version that computed it."""
    answer = http.post("/v1/models/ranking:eas", content=encode({"x": ROW}), headers={"x-routing-key": key})
    assert answer.status_code == 200, answer.text
    version = int(answer.headers["x-model-version"])
    np.testing.assert_allclose(decode(answer.content)["y"], linear_score(ROW, version), rtol=1e-5)
    return version


def predict_request(number: int) -> predict_pb2.PredictRequest:
    """Make a unique request of TensorFlow Serving."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "ranking"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(ROW + number))
    return request


def written(http: httpx.Client) -> int:
    """Return how many requests the host has recorded."""
    found = re.search(r'request_log_total{model="ranking",outcome="written"} (\d+)', http.get("/metrics").text)
    return int(found.group(1)) if found else 0


def split(http: httpx.Client, count: int = 200) -> Counter[int]:
    return Counter(answered_by(http, f"user-{number}") for number in range(count))


def test_from_deployment_to_roll_back(proxy: ProxyProcess, client: Client, versions: dict[int, Path]) -> None:
    client.deploy("ranking", versions[3], wait=True, timeout=120)
    http = rest(client)
    assert split(http, 20) == {3: 20}
    client.deploy("ranking", versions[4], traffic=30, wait=True, timeout=120)
    assert 30 < split(http)[4] < 95
    before = {number: answered_by(http, f"user-{number}") for number in range(50)}
    client.traffic("ranking", {4: 60})
    wait_for(lambda: split(http, 100)[4] > 35)
    moved = [number for number, version in before.items() if version == 4 and answered_by(http, f"user-{number}") != 4]
    assert moved == []
    client.pause("ranking")
    wait_for(lambda: split(http, 20) == {3: 20})
    client.pause("ranking", paused=False)
    client.promote("ranking", 4)
    wait_for(lambda: split(http, 20) == {4: 20})
    client.rollback("ranking")
    wait_for(lambda: split(http, 20) == {3: 20})


def test_a_version_that_was_not_warmed_up_says_why(client: Client, tmp_path: Path) -> None:
    client.deploy("hungry", build_hungry(tmp_path / "hungry"), version=1, wait=True)
    try:
        (hungry,) = (model for model in client.status()["models"] if model["name"] == "hungry")
        (version,) = hungry["versions"]
        assert version["state"] == "ready"
        assert "generated request failed: RESOURCE_EXHAUSTED" in version["reason"]
        assert version["reason"].endswith("not warmed up")
    finally:
        client.undeploy("hungry")


def test_requests_are_logged_and_merged(proxy: ProxyProcess, client: Client, versions: dict[int, Path]) -> None:
    client.deploy("ranking", versions[3], wait=True, timeout=120)
    load_commands()
    log = ("log", "ranking", "--server", proxy.url)
    assert CliRunner().invoke(app, [*log, "--sample", "100"]).exit_code == 0
    generation = client.status()["generation"]
    wait_for(lambda: client.status()["hosts"][0]["generation"] >= generation)
    with grpc.insecure_channel(client.status()["hosts"][0]["endpoints"]["grpc"]) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        for number in range(20):
            answer = stub.Predict(predict_request(number), timeout=30)
            assert answer.model_spec.version.value == 3
    wait_for(lambda: written(rest(client)) == 20)
    merged = CliRunner().invoke(app, [*log, "--merge"])
    assert merged.exit_code == 0, merged.output
    records = list(tf.data.TFRecordDataset([merged.stdout.strip()]).as_numpy_iterator())
    found = [prediction_log_pb2.PredictionLog.FromString(record) for record in records]
    assert [record.predict_log.request for record in found] == [predict_request(number) for number in range(20)]
    assert {record.log_metadata.model_spec.version.value for record in found} == {3}
    assert CliRunner().invoke(app, [*log, "--off", "--delete"]).exit_code == 0


def test_serving_continues_without_the_proxy(proxy: ProxyProcess, client: Client, versions: dict[int, Path]) -> None:
    client.deploy("ranking", versions[3], wait=True, timeout=120)
    http = rest(client)
    proxy.kill()
    assert split(http, 20)[3] == 20
    proxy.start()
    assert split(http, 20)[3] == 20


def test_a_killed_host_comes_back_to_what_was_deployed(
    proxy: ProxyProcess, client: Client, versions: dict[int, Path]
) -> None:
    client.deploy("ranking", versions[3], wait=True, timeout=120)
    host = client.status()["hosts"][0]
    os.kill(host["pid"], signal.SIGKILL)
    wait_for(lambda: client.status()["hosts"][0]["alive"] and client.status()["hosts"][0]["pid"] != host["pid"], 180)
    wait_for(lambda: {version["state"] for version in client.versions("ranking")["versions"]} == {"ready"}, 180)
    wait_for(lambda: "rest" in client.status()["hosts"][0]["endpoints"])
    assert split(rest(client), 20)[3] == 20


def test_undeploy_stops_serving(proxy: ProxyProcess, client: Client) -> None:
    client.undeploy("ranking")
    wait_for(lambda: {version["state"] for version in client.versions("ranking")["versions"]} == {"stopped"})
    pid = client.status()["hosts"][0]["pid"]
    assert proxy.stop() == 0
    assert not Path(f"/proc/{pid}").exists()
