# SPDX-License-Identifier: Apache-2.0
"""Metadata of requests and responses: model and version, routing keys, deadlines, priorities, refusals."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from helpers.hosts.host_requests import HeldRequest, SentRequest, in_flight, quick_request, ranking_body
from helpers.hosts.served_hosts import ServedHost
from helpers.models.gate import passing
from helpers.models.slow_requests import ENDLESS
from helpers.system.programs import require
from helpers.system.waiting import wait_until
from serving_proxy.experiments.assign import bucket

NAMES = {"x-model-name", "x-model-version", "x-arm", "x-session", "x-cpuset", "x-queue-us", "x-run-us"}


@pytest.fixture(scope="module")
def stub(channel: grpc.Channel) -> prediction_service_pb2_grpc.PredictionServiceStub:
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def _request(name: str) -> predict_pb2.PredictRequest:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.ones((1, 3), np.float32)))
    return request


def _quick() -> predict_pb2.PredictRequest:
    """Return a request for the model `held` that is not held."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "held"
    for name, value in passing(1.0).items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


def _slow(loops: int) -> predict_pb2.PredictRequest:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "slow"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.ones(1, np.float32)))
    request.inputs["loops"].CopyFrom(tf.make_tensor_proto(np.int32(loops)))
    return request


def _trailing(call: grpc.Call) -> dict[str, str]:
    return {key: value for key, value in call.trailing_metadata() if key.startswith("x-")}


def test_grpc_responses_name_model_version_and_arm(stub) -> None:
    _, call = stub.Predict.with_call(_request("ranking"), timeout=60)
    found = _trailing(call)
    assert found.keys() == NAMES
    assert (found["x-model-name"], found["x-model-version"], found["x-arm"]) == ("ranking", "1", "baseline")
    assert int(found["x-session"]) >= 0
    assert int(found["x-run-us"]) >= 0


def test_http_responses_name_model_version_and_arm(http: httpx.Client) -> None:
    answer = http.post("/v1/models/ranking/labels/canary:eas", content=ranking_body())
    found = {name: answer.headers[name] for name in NAMES}
    assert (found["x-model-name"], found["x-model-version"], found["x-arm"]) == ("ranking", "2", "pinned")


def test_routing_key_decides_the_arm(stub, http: httpx.Client) -> None:
    """Both transports choose the arm that the published function computes."""
    versions = set()
    for number in range(20):
        key = f"user {number}"
        _, call = stub.Predict.with_call(_request("split"), metadata=[("x-routing-key", key)], timeout=60)
        by_grpc = _trailing(call)["x-model-version"]
        answer = http.post("/api/predict/split", content=ranking_body(), headers={"x-routing-key": key})
        expected = "2" if bucket("split", key) < 5000 else "1"
        assert (by_grpc, answer.headers["x-model-version"]) == (expected, expected)
        versions.add(by_grpc)
    assert versions == {"1", "2"}


@pytest.mark.parametrize("priority", ["3", "-3"])
def test_valid_priorities_are_accepted(stub, http: httpx.Client, priority: str) -> None:
    stub.Predict(_request("ranking"), metadata=[("x-priority", priority)], timeout=60)
    assert http.post("/api/predict/ranking", content=ranking_body(), headers={"x-priority": priority}).is_success


def test_invalid_priorities_are_refused(stub, http: httpx.Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Predict(_request("ranking"), metadata=[("x-priority", "high")], timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert http.post("/api/predict/ranking", content=ranking_body(), headers={"x-priority": "1e9"}).status_code == 400


def test_traceparent_is_accepted(stub, http: httpx.Client) -> None:
    trace = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    stub.Predict(_request("ranking"), metadata=[trace], timeout=60)
    assert http.post("/api/predict/ranking", content=ranking_body(), headers=[trace]).is_success


def test_a_waiting_request_ends_at_its_deadline(host: ServedHost, stub, http: httpx.Client, tmp_path: Path) -> None:
    """The host refuses it at its deadline and does not run it later."""
    with HeldRequest(host, tmp_path):
        answer = http.post("/api/predict/held", content=quick_request(), headers={"x-timeout-ms": "100"})
        with pytest.raises(grpc.RpcError) as caught:
            stub.Predict(_quick(), timeout=0.1)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert answer.status_code == 504, answer.text


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("tensorflow.serving.PredictionService/Predict", _quick().SerializeToString()),
        ("grpc.health.v1.Health/Watch", b""),
    ],
    ids=["Predict", "Watch"],
)
def test_status_comes_before_a_reset(host: ServedHost, tmp_path: Path, method: str, message: bytes) -> None:
    """A client without a deadline of its own gets the host's status, not CANCELLED from a reset stream."""
    require("curl")
    command = ["curl", "--silent", "--include", "--http2-prior-knowledge", "--output", "-", "--data-binary", "@-"]
    for header in ("content-type: application/grpc", "te: trailers", "grpc-timeout: 200m"):
        command += ["-H", header]
    body = b"\0" + struct.pack(">I", len(message)) + message
    with HeldRequest(host, tmp_path):
        ended = subprocess.run(
            [*command, f"http://{host.grpc}/{method}"], input=body, capture_output=True, timeout=120, check=False
        )
    assert b"grpc-status: 4\r\n" in ended.stdout, ended


def test_invalid_deadlines_are_refused(http: httpx.Client) -> None:
    answer = http.post("/api/predict/ranking", content=ranking_body(), headers={"x-timeout-ms": "soon"})
    assert answer.status_code == 400


def test_refusals_say_when_to_retry(host: ServedHost, stub, http: httpx.Client, tmp_path: Path) -> None:
    with HeldRequest(host, tmp_path) as running:
        waiting = [SentRequest(host, "held", quick_request()) for _ in range(2)]
        wait_until(lambda: in_flight(host, "held") == 3)
        answers = [http.post("/api/predict/held", content=quick_request()) for _ in range(3)]
        assert {answer.status_code for answer in answers} == {429}
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Predict(_quick(), timeout=60)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert int(dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"]) >= 1
        assert [answer.status_code for answer in (running.release(), *(one.end() for one in waiting))] == [200] * 3


def test_a_disconnected_grpc_client_cancels_waiting_requests(host: ServedHost, stub) -> None:
    wait_until(lambda: in_flight(host) == 0)
    running = stub.Predict.future(_slow(ENDLESS), timeout=600)
    wait_until(lambda: in_flight(host) == 1)
    waiting = stub.Predict.future(_slow(ENDLESS), timeout=600)
    wait_until(lambda: in_flight(host) == 2)
    waiting.cancel()
    wait_until(lambda: in_flight(host) == 1)
    assert not running.done()
    running.cancel()
    wait_until(lambda: in_flight(host) == 0)
