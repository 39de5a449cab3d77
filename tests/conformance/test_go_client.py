# SPDX-License-Identifier: Apache-2.0
"""A client in Go, with grpc-go, against every host."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from helpers.hosts.served_hosts import ServedHost
from helpers.models.model_builders import linear_score
from helpers.system.go_programs import go_program
from helpers.system.programs import run

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


@pytest.fixture(scope="module")
def client() -> Path:
    return go_program("client-example")


def test_client_gets_scores_and_trailers(client: Path, host: ServedHost, tmp_path: Path) -> None:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "ranking"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(X))
    (tmp_path / "request").write_bytes(request.SerializeToString())
    command = [client, "--address", host.grpc, "--model", "ranking", "--routing-key", "a user"]
    ended = run([*command, tmp_path / "request", tmp_path / "response"])
    assert ended.returncode == 0, ended.stderr
    response = predict_pb2.PredictResponse.FromString((tmp_path / "response").read_bytes())
    assert np.allclose(tf.make_ndarray(response.outputs["y"]), linear_score(X))
    trailer = json.loads(ended.stdout)
    assert (trailer["x-model-name"], trailer["x-model-version"]) == (["ranking"], ["1"])


def test_client_reports_refusals(client: Path, host: ServedHost, tmp_path: Path) -> None:
    (tmp_path / "request").write_bytes(b"\xff\xff")
    files = [tmp_path / "request", tmp_path / "response"]
    ended = run([client, "--address", host.grpc, *files])
    assert ended.returncode == 1
    assert "InvalidArgument" in ended.stderr
    ended = run([client, "--address", host.grpc, "--model", "absent", *files])
    assert ended.returncode == 1
    assert "NotFound" in ended.stderr
