# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol v2 with tritonclient, over gRPC and HTTP, unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Queue
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from helpers.hosts.served_hosts import ServedHost
from helpers.models.model_builders import linear_score

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


@pytest.fixture(scope="module", params=["grpc", "http"])
def triton(request: pytest.FixtureRequest, host: ServedHost) -> Iterator[tuple[Any, Any]]:
    """The client's module and a client."""
    module = getattr(tritonclient, request.param)
    client = module.InferenceServerClient(getattr(host, "grpc" if request.param == "grpc" else "rest"))
    yield module, client
    client.close()


def _input(module: Any, name: str, value: np.ndarray, datatype: str) -> Any:
    tensor = module.InferInput(name, list(value.shape), datatype)
    tensor.set_data_from_numpy(value)
    return tensor


def test_infer_returns_scores_and_version(triton: tuple[Any, Any]) -> None:
    module, client = triton
    result = client.infer("ranking", [_input(module, "x", X, "FP32")], request_id="17")
    assert np.allclose(result.as_numpy("y"), linear_score(X))
    response = result.get_response()
    name, version = (
        (response.model_name, response.model_version)
        if module is tritonclient.grpc
        else (response["model_name"], response["model_version"])
    )
    assert (name, version) == ("ranking", "1")


def test_infer_selects_the_version(triton: tuple[Any, Any]) -> None:
    module, client = triton
    result = client.infer("ranking", [_input(module, "x", X, "FP32")], model_version="2")
    assert np.allclose(result.as_numpy("y"), linear_score(X, 2))


@pytest.mark.parametrize(("label", "scale"), [("stable", 1), ("canary", 2)])
def test_infer_selects_the_version_of_a_label(
    triton: tuple[Any, Any], http: httpx.Client, label: str, scale: int
) -> None:
    module, client = triton
    result = client.infer("ranking", [_input(module, "x", X, "FP32")], model_version=label)
    assert np.allclose(result.as_numpy("y"), linear_score(X, scale))
    body = {"inputs": [{"name": "x", "shape": [2, 3], "datatype": "FP32", "data": X.ravel().tolist()}]}
    answer = http.post(f"/v2/models/ranking/labels/{label}/infer", json=body).json()
    assert answer["model_version"] == str(scale)
    assert http.get(f"/v2/models/ranking/labels/{label}/ready").status_code == 200


def test_infer_accepts_strings(triton: tuple[Any, Any]) -> None:
    module, client = triton
    inputs = [
        _input(module, "item", np.array([b"a", b"b"], object), "BYTES"),
        _input(module, "price", np.array([1, 2], np.float32), "FP32"),
    ]
    outputs = [module.InferRequestedOutput("label")]
    result = client.infer("text", inputs, outputs=outputs)
    assert result.as_numpy("label").shape == (2,)
    assert result.as_numpy("score") is None


def test_infer_works_without_binary_data(host: ServedHost) -> None:
    with tritonclient.http.InferenceServerClient(host.rest) as client:
        tensor = tritonclient.http.InferInput("x", [2, 3], "FP32")
        tensor.set_data_from_numpy(X, binary_data=False)
        outputs = [tritonclient.http.InferRequestedOutput("y", binary_data=False)]
        result = client.infer("ranking", [tensor], outputs=outputs)
    assert np.allclose(result.as_numpy("y"), linear_score(X))


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_infer_requests_are_answered(host: ServedHost, algorithm: str) -> None:
    with tritonclient.http.InferenceServerClient(host.rest) as client:
        tensor = _input(tritonclient.http, "x", X, "FP32")
        result = client.infer("ranking", [tensor], request_compression_algorithm=algorithm)
    assert np.allclose(result.as_numpy("y"), linear_score(X))


def test_invalid_infer_requests_are_refused(triton: tuple[Any, Any]) -> None:
    module, client = triton
    with pytest.raises(InferenceServerException, match="absent"):
        client.infer("absent", [_input(module, "x", X, "FP32")])
    with pytest.raises(InferenceServerException, match="x"):
        client.infer("ranking", [_input(module, "x", X.astype(np.float64), "FP64")])


def test_stream_continues_after_a_refused_request(host: ServedHost) -> None:
    answers: Queue[tuple[Any, Any]] = Queue()
    tensor = _input(tritonclient.grpc, "x", X, "FP32")
    with tritonclient.grpc.InferenceServerClient(host.grpc) as client:
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        for name in ("ranking", "absent", "ranking"):
            client.async_stream_infer(name, [tensor])
        first, refused, last = (answers.get(timeout=60) for _ in range(3))
        client.stop_stream()
    assert np.allclose(first[0].as_numpy("y"), linear_score(X))
    assert "absent" in str(refused[1])
    assert np.allclose(last[0].as_numpy("y"), linear_score(X))


def test_probes_report_liveness_and_readiness(triton: tuple[Any, Any]) -> None:
    _, client = triton
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("ranking")
    assert client.is_model_ready("ranking", "2")
    assert not client.is_model_ready("absent")


def test_server_metadata_names_the_extensions(triton: tuple[Any, Any]) -> None:
    module, client = triton
    metadata = client.get_server_metadata(**({"as_json": True} if module is tritonclient.grpc else {}))
    assert metadata["name"]
    assert "binary_tensor_data" in metadata["extensions"]


def test_model_metadata_lists_versions_and_inputs(triton: tuple[Any, Any]) -> None:
    module, client = triton
    metadata = client.get_model_metadata("ranking", **({"as_json": True} if module is tritonclient.grpc else {}))
    assert metadata["versions"] == ["1", "2"]
    (only,) = metadata["inputs"]
    assert (only["name"], only["datatype"], [int(dim) for dim in only["shape"]]) == ("x", "FP32", [-1, 3])


def test_repository_index_lists_all_versions(host: ServedHost) -> None:
    with tritonclient.grpc.InferenceServerClient(host.grpc) as client:
        index = client.get_model_repository_index()
    assert {(model.name, model.version) for model in index.models} >= {
        ("ranking", "1"),
        ("ranking", "2"),
        ("text", "3"),
    }


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v2/models/absent/infer", {"inputs": []}, 404),
        ("/v2/models/ranking/versions/0/infer", {"inputs": []}, 404),
        ("/v2/models/ranking/infer", {"inputs": []}, 400),
        ("/v2/models/ranking/infer", {"inputs": "x"}, 400),
        ("/v2/models/ranking/infer", [], 400),
        ("/v2/models/ranking/nothing", {}, 404),
    ],
)
def test_invalid_requests_are_refused(http: httpx.Client, path: str, body: object, status: int) -> None:
    answer = http.post(path, json=body)
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]


@pytest.mark.parametrize("length", ["-1", "x", "99999", "99999999999999999999999"])
def test_wrong_header_lengths_are_refused(http: httpx.Client, length: str) -> None:
    headers = {"inference-header-content-length": length}
    answer = http.post("/v2/models/ranking/infer", content=b'{"inputs":[]}', headers=headers)
    assert answer.status_code == 400, answer.text
