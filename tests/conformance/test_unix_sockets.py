# SPDX-License-Identifier: Apache-2.0
"""Unix domain sockets of hosts, with real clients: who may connect, stale files, and paths that are taken."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import predict_pb2

from helpers.hosts.contract_messages import decode
from helpers.hosts.host_requests import ranking_body
from helpers.hosts.served_hosts import ServedHost, program
from helpers.models.model_builders import linear_score
from helpers.system.certificates import make_authority, make_certificate
from helpers.system.go_programs import go_program
from helpers.system.programs import run

# The tensor of `ranking_body`.
X = np.ones((1, 3), np.float32)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    path = Path(tempfile.mkdtemp(dir="/tmp"))
    yield path
    shutil.rmtree(path)


def _arguments(folder: Path) -> tuple[str, ...]:
    return ("--grpc-socket", f"unix:{folder}/{{id}}.grpc", "--rest-socket", f"{folder}/{{id}}.rest")


@pytest.fixture
def ranking(served_models: dict[str, Any]) -> dict[str, Any]:
    return {"ranking": served_models["ranking"]}


def _request() -> predict_pb2.PredictRequest:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "ranking"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(X))
    return request


def _post(path: Path) -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=60) as client:
        return client.post("http://host/api/predict/ranking", content=ranking_body())


def test_clients_are_served_at_sockets_and_ports_and_the_sockets_end_with_the_host(
    start_host, ranking: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    with start_host(ranking, _arguments(folder)) as host:
        endpoints = host.actual()["endpoints"]
        assert endpoints["grpc-socket"] == f"unix:{folder}/host-0.grpc"
        assert endpoints["rest-socket"] == f"unix:{folder}/host-0.rest"
        for address in (endpoints["grpc-socket"], host.grpc):
            with grpc.insecure_channel(address) as channel:
                call = channel.unary_unary(
                    "/tensorflow.serving.PredictionService/Predict",
                    predict_pb2.PredictRequest.SerializeToString,
                    predict_pb2.PredictResponse.FromString,
                )
                np.testing.assert_allclose(tf.make_ndarray(call(_request(), timeout=60).outputs["y"]), linear_score(X))
                health = health_pb2_grpc.HealthStub(channel)
                status = health.Check(health_pb2.HealthCheckRequest(), timeout=60).status
                assert status == health_pb2.HealthCheckResponse.SERVING
        answer = _post(folder / "host-0.rest")
        np.testing.assert_allclose(decode(answer.content)["y"], linear_score(X))
        assert answer.headers["x-model-version"] == "1"
        (tmp_path / "request").write_bytes(_request().SerializeToString())
        address = ["--address", endpoints["grpc-socket"], "--model", "ranking"]
        ended = run([go_program("client-example"), *address, tmp_path / "request", tmp_path / "response"])
        assert ended.returncode == 0, ended.stderr
        for name in ("host-0.grpc", "host-0.rest"):
            assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600, name
        assert host.end() == 0
        assert sorted(path.name for path in folder.iterdir()) == ["host-0.grpc.lock", "host-0.rest.lock"]


def test_sockets_have_the_permissions_of_the_option_and_no_tls(
    start_host, ranking: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    authority = make_authority(tmp_path, "authority")
    server = make_certificate(tmp_path, "server", authority)
    arguments = ("--tls-cert", str(server.chain), "--tls-key", str(server.key), "--client-ca", str(authority.chain))
    with start_host(ranking, (*_arguments(folder), "--socket-mode", "660", *arguments)):
        for name in ("host-0.grpc", "host-0.rest"):
            assert stat.S_IMODE((folder / name).stat().st_mode) == 0o660, name
        assert _post(folder / "host-0.rest").status_code == 200
        with grpc.insecure_channel(f"unix:{folder}/host-0.grpc") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            assert health.Check(health_pb2.HealthCheckRequest(), timeout=60).status


def test_sockets_of_a_killed_host_are_replaced(start_host, ranking: dict[str, Any], folder: Path) -> None:
    with start_host(ranking, _arguments(folder)) as host:
        host.end(signal.SIGKILL)
    assert (folder / "host-0.grpc").is_socket()
    with start_host(ranking, _arguments(folder)):
        assert _post(folder / "host-0.rest").status_code == 200


def _refused(host: ServedHost, arguments: tuple[str, ...], tmp_path: Path) -> str:
    """Start a second host, which must end with code 1, and return its log."""
    (tmp_path / "desired.json").write_text((host.state_dir / "desired.json").read_text())
    command = [*program(host.kind), "--state-dir", str(tmp_path), "--grpc-port", "0", "--rest-port", "0", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1, ended.stderr
    return ended.stderr


def test_a_path_that_is_taken_is_left_alone(start_host, ranking: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    (folder / "file").write_text("mine")
    with start_host(ranking, _arguments(folder)) as host, socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(str(folder / "foreign"))
        foreign.listen()
        in_use = "in use by another process, expected a socket of its own"
        assert in_use in _refused(host, ("--grpc-socket", f"{folder}/host-0.grpc"), tmp_path)
        assert in_use in _refused(host, ("--rest-socket", f"{folder}/foreign"), tmp_path)
        kind = "found a file of another kind, expected a socket or nothing"
        assert f"unix:{folder}/file: {kind}" in _refused(host, ("--rest-socket", f"{folder}/file"), tmp_path)
        missing = _refused(host, ("--rest-socket", f"{folder}/absent/rest"), tmp_path)
        assert f"{folder}/absent/rest" in missing
        assert "o such file or directory" in missing
        assert _post(folder / "host-0.rest").status_code == 200
    assert (folder / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--grpc-socket", "/" + "x" * 107), "expected a path of at most 107 bytes"),
        (("--rest-socket", "unix:"), "expected a path of at most 107 bytes"),
        (("--grpc-socket", "/a/{id}", "--rest-socket", "/a/host-0"), "expected two paths"),
        (("--socket-mode", "rw"), "expected permissions in octal, as in 660"),
        (("--socket-mode", "888"), "expected permissions in octal, as in 660"),
    ],
)
def test_invalid_sockets_are_a_wrong_command_line(host_kind: str, arguments: tuple[str, ...], message: str) -> None:
    command = [*program(host_kind), "--state-dir", os.devnull, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, message in ended.stderr) == (2, True), ended.stderr
