# SPDX-License-Identifier: Apache-2.0
"""Every method of a host's protocols, with the messages and clients that people use."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tensorflow.core.example import example_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
    regression_pb2,
)

import processor
from helpers.hosts import protocol_servers
from helpers.hosts.state_directory import StateDirectory, one
from helpers.models import classifier_models, model_builders

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path, string_model: Path) -> Iterator[processor.Host]:
    state = StateDirectory(tmp_path_factory.mktemp("state") / "state")
    classifier = classifier_models.build_classifier(tmp_path_factory.mktemp("models") / "clicks")
    with processor.Host(state.path) as host:
        state.serve(host, {"tiny": one(tiny_model, 3), "clicks": one(classifier, 7), "string": one(string_model, 1)})
        yield host


@pytest.fixture(scope="module")
def channel(host: processor.Host) -> Iterator[grpc.Channel]:
    protocols = {"tensorflow.serving": "tfserving", "inference": "kserve"}

    def answer(service: str, method: str, request: bytes) -> bytes:
        return host.process(protocols[service.rpartition(".")[0]], request, method=method).data

    with protocol_servers.grpc_server(answer) as address, grpc.insecure_channel(address) as channel:
        yield channel


HTTP_METHODS = {
    "GET /v2": "server_metadata",
    "GET /v2/health/live": "live",
    "GET /v2/health/ready": "server_ready",
}


@pytest.fixture(scope="module")
def address(host: processor.Host) -> Iterator[str]:
    def answer(path: str, headers: Mapping[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
        _, _, rest = path.partition(" ")
        parts = rest.strip("/").split("/")
        if path in HTTP_METHODS:
            return {}, host.process("kserve_json", body, method=HTTP_METHODS[path]).data
        if parts[0] == "v2":
            method = parts[3] if len(parts) > 3 else "metadata"
            length = headers.get("Inference-Header-Content-Length")
            metadata = {} if length is None else {"inference-header-content-length": length}
            answer = host.process("kserve_json", body, method=method, model_name=parts[2], metadata=metadata)
            sent = {"Inference-Header-Content-Length": str(answer.header_length)} if answer.header_length else {}
            return sent, answer.data
        name, _, method = parts[2].partition(":")
        method = method or (parts[3] if len(parts) > 3 else "status")
        return {}, host.process("tfserving_json", body, method=method, model_name=name).data

    with protocol_servers.http_server(answer) as address:
        yield address


def example(**features: float) -> Any:
    message = example_pb2.Example()
    for name, value in features.items():
        message.features.feature[name].float_list.value.append(value)
    return message


# TensorFlow Serving's messages


def test_classify_answers_labels_and_scores(channel: grpc.Channel) -> None:
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "clicks"
    request.input.example_list.examples.extend([example(x=0), example(x=2)])
    answer = stub.Classify(request)
    got = [[(c.label, c.score) for c in row.classes] for row in answer.result.classifications]
    expected = classifier_models.scores(np.array([0, 2]))
    assert [[label for label, _ in row] for row in got] == [["low", "high"]] * 2
    np.testing.assert_allclose([[score for _, score in row] for row in got], expected, rtol=1e-6)
    assert (answer.model_spec.name, answer.model_spec.version.value) == ("clicks", 7)

    request.model_spec.signature_name = "classes_only"
    assert [c.label for c in stub.Classify(request).result.classifications[0].classes] == ["low", "high"]
    request.model_spec.signature_name = "scores_only"
    assert [c.label for c in stub.Classify(request).result.classifications[0].classes] == ["", ""]
    request.model_spec.signature_name = "regress"
    with pytest.raises(grpc.RpcError, match="expected 'tensorflow/serving/classify'") as caught:
        stub.Classify(request)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_regress_merges_the_context(channel: grpc.Channel) -> None:
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    request = regression_pb2.RegressionRequest()
    request.model_spec.name, request.model_spec.signature_name = "clicks", "regress"
    request.input.example_list_with_context.examples.extend([example(x=1), example(x=2, bias=0.5)])
    request.input.example_list_with_context.context.CopyFrom(example(bias=10))
    values = [regression.value for regression in stub.Regress(request).result.regressions]
    assert values == [22, 5]


def test_multi_inference_runs_tasks_on_one_version(channel: grpc.Channel) -> None:
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    request = inference_pb2.MultiInferenceRequest()
    for signature, method in (("regress", REGRESS), ("serving_default", CLASSIFY)):
        task = request.tasks.add(method_name=method)
        task.model_spec.name, task.model_spec.signature_name = "clicks", signature
    request.input.example_list.examples.append(example(x=3))
    results = stub.MultiInference(request).results
    assert [regression.value for regression in results[0].regression_result.regressions] == [6]
    assert results[1].classification_result.classifications[0].classes[1].label == "high"
    assert [result.model_spec.version.value for result in results] == [7, 7]


def test_examples_that_cannot_be_parsed_are_the_clients_fault(host: processor.Host) -> None:
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "clicks"
    request.input.example_list.examples.append(example(x=1))
    data = request.SerializeToString().replace(b"\x15", b"\x1d")
    with pytest.raises(processor.InvalidArgumentError):
        host.process("tfserving", data, method="Classify")


def test_metadata_and_status_of_tensorflow_serving(channel: grpc.Channel) -> None:
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "tiny"
    answer = stub.GetModelMetadata(request)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(signatures)
    assert signatures.signature_def["serving_default"].inputs["x"].tensor_shape.dim[1].size == 3
    assert answer.model_spec.version.value == 3

    status = get_model_status_pb2.GetModelStatusRequest()
    status.model_spec.name = "tiny"
    versions = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(status).model_version_status
    assert [(version.version, version.state) for version in versions] == [(3, 30)]
    status.model_spec.name = "none"
    with pytest.raises(grpc.RpcError) as caught:
        model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(status)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


# The Open Inference Protocol


def test_grpc_client_asks_all_it_can(channel: grpc.Channel, host: processor.Host) -> None:
    def answer(service: str, method: str, request: bytes) -> bytes:
        return host.process("kserve", request, method=method).data

    with protocol_servers.grpc_server(answer) as address, triton_grpc.InferenceServerClient(address) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("tiny", "3")
        assert not client.is_model_ready("tiny", "4")
        assert client.get_server_metadata(as_json=True)["name"] == "recprocessor"
        metadata = client.get_model_metadata("tiny", as_json=True)
        assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1", "3"]}]
        index = client.get_model_repository_index(as_json=True)["models"]
        assert sorted(model["name"] for model in index) == ["clicks", "string", "tiny"]
        entry = triton_grpc.InferInput("x", X.shape, "FP32").set_data_from_numpy(X)
        result = client.infer("tiny", [entry], model_version="3")
        np.testing.assert_allclose(result.as_numpy("y"), model_builders.linear_score(X), rtol=1e-5)
        assert result.get_response().model_version == "3"


def test_http_client_uses_binary_data(address: str) -> None:
    item = np.array([b"shoe", b"\xff\x00"], np.object_)
    price = np.array([1, 2], np.float32)
    with triton_http.InferenceServerClient(address) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("string")
        extensions = ["binary_tensor_data", "model_configuration", "model_repository", "statistics"]
        assert client.get_server_metadata()["extensions"] == extensions
        assert client.get_model_metadata("string")["platform"] == "tensorflow_savedmodel"
        for binary in (True, False):
            inputs = [
                triton_http.InferInput("item", [2], "BYTES").set_data_from_numpy(item, binary_data=True),
                triton_http.InferInput("price", [2], "FP32").set_data_from_numpy(price, binary_data=binary),
            ]
            outputs = [
                triton_http.InferRequestedOutput("label", binary_data=True),
                triton_http.InferRequestedOutput("score", binary_data=binary),
            ]
            result = client.infer("string", inputs, outputs=outputs, request_id="r")
            assert result.as_numpy("label").tolist() == [b"shoe!", b"\xff\x00!"]
            assert result.as_numpy("score").dtype == np.float32
            assert result.get_response()["model_name"] == "string"


# TensorFlow Serving's REST API


def fetch(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(f"http://{url}", data)) as response:
        return json.load(response)


def test_rest_examples_status_and_metadata(address: str) -> None:
    models = f"{address}/v1/models"
    body = {"signature_name": "regress", "context": {"bias": 10.0}, "examples": [{"x": 1.0}, {"x": 2.0, "bias": 0.5}]}
    assert fetch(f"{models}/clicks:regress", body) == {"results": [22.0, 5.0]}
    (row,) = fetch(f"{models}/clicks:classify", {"examples": [{"x": 0.0}]})["results"]
    assert [label for label, _ in row] == ["low", "high"]
    assert fetch(f"{models}/tiny:predict", {"instances": X.tolist()}) == {
        "predictions": model_builders.linear_score(X).tolist()
    }
    (version,) = fetch(f"{models}/tiny")["model_version_status"]
    assert (version["version"], version["state"], version["status"]["error_code"]) == ("3", "AVAILABLE", "OK")
    metadata = fetch(f"{models}/tiny/metadata")
    assert metadata["model_spec"] == {"name": "tiny", "signature_name": "", "version": "3"}
    assert "x" in metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]["inputs"]
    with pytest.raises(urllib.error.HTTPError) as caught:
        fetch(f"{models}/tiny:classify", {"examples": [{"x": 0.0}]})
    assert "method name 'tensorflow/serving/predict'" in json.load(caught.value)["error"]
