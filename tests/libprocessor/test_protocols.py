# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol and TensorFlow Serving's REST API, end to end with the clients that people use."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from helpers.hosts import protocol_servers
from helpers.models import model_builders
from processor import Model
from processor._ffi import ffi
from processor._lib import get_lib

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
NUMPY = {
    "DT_FLOAT": np.float32,
    "DT_DOUBLE": np.float64,
    "DT_INT8": np.int8,
    "DT_INT16": np.int16,
    "DT_INT32": np.int32,
    "DT_INT64": np.int64,
    "DT_UINT8": np.uint8,
    "DT_UINT16": np.uint16,
    "DT_UINT32": np.uint32,
    "DT_UINT64": np.uint64,
    "DT_HALF": np.float16,
    "DT_BOOL": np.bool_,
}


@pytest.fixture(scope="module")
def models(tiny_model: Path, string_model: Path, echo_model: Path, multi_signature_model: Path) -> Iterator[Any]:
    paths = {"tiny": tiny_model, "string": string_model, "echo": echo_model, "multi": multi_signature_model}
    loaded = {
        name: Model(path, {"signature_name": "DT_FLOAT"} if name == "echo" else None) for name, path in paths.items()
    }
    yield loaded
    for model in loaded.values():
        model.close()


@pytest.fixture(scope="module")
def over_grpc(models: dict[str, Model]) -> Iterator[triton_grpc.InferenceServerClient]:
    def answer(service: str, method: str, request: bytes) -> bytes:
        assert (service, method) == ("inference.GRPCInferenceService", "ModelInfer")
        name = triton_grpc.service_pb2.ModelInferRequest.FromString(request).model_name
        return models[name].process(request, "kserve")

    with protocol_servers.grpc_server(answer) as address, triton_grpc.InferenceServerClient(address) as client:
        yield client


def http_answer(models: dict[str, Model]) -> protocol_servers.HttpAnswer:
    def answer(path: str, headers: Any, body: bytes) -> tuple[dict[str, str], bytes]:
        if path.startswith("POST /v2/models/"):
            return {}, models[path.split("/")[3]].process(body, "kserve_json")
        name, _, method = path.removeprefix("POST /v1/models/").partition(":")
        assert method == "predict"
        return {}, models[name].process(body, "tfserving_json")

    return answer


@pytest.fixture(scope="module")
def http_address(models: dict[str, Model]) -> Iterator[str]:
    with protocol_servers.http_server(http_answer(models)) as address:
        yield address


def sample(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of the dtype with its extremes among them."""
    count = math.prod(shape)
    if dtype == np.bool_:
        return (np.arange(count) % 3 == 0).reshape(shape)
    limits = np.finfo(dtype) if np.issubdtype(dtype, np.floating) else np.iinfo(dtype)
    values = np.concatenate([np.array([limits.min, limits.max, 0, 1], dtype), np.arange(count).astype(dtype)])
    return values[:count].reshape(shape)


# tritonclient over gRPC


def infer(client: Any, model: str, values: dict[str, np.ndarray], **options: Any) -> Any:
    module = triton_grpc if isinstance(client, triton_grpc.InferenceServerClient) else triton_http
    inputs = []
    for name, value in values.items():
        entry = module.InferInput(name, value.shape, triton_grpc.np_to_triton_dtype(value.dtype))
        if module is triton_grpc:
            entry.set_data_from_numpy(value)
        else:
            entry.set_data_from_numpy(value, binary_data=False)
        inputs.append(entry)
    return client.infer(model, inputs, **options)


@pytest.mark.parametrize("dtype", NUMPY)
def test_grpc_client_gets_every_dtype_back(over_grpc: Any, dtype: str) -> None:
    x = sample(NUMPY[dtype], (3, 4))
    answer = infer(over_grpc, "echo", {"x": x}, parameters={"signature_name": dtype}, request_id="r-1")
    np.testing.assert_array_equal(answer.as_numpy("y"), x, strict=True)
    assert answer.get_response().id == "r-1"
    assert answer.get_response().model_name == "echo"


def test_grpc_client_sends_bytes(over_grpc: Any) -> None:
    item = np.array([b"shoe", b"", b"\xff\x00\x01"], np.object_)
    answer = infer(over_grpc, "string", {"item": item, "price": np.array([1, 2, 3], np.float32)})
    assert answer.as_numpy("label").tolist() == [b"shoe!", b"!", b"\xff\x00\x01!"]
    assert answer.as_numpy("id").dtype == np.int64
    outputs = [triton_grpc.InferRequestedOutput("score")]
    answer = infer(over_grpc, "string", {"item": item, "price": np.array([1, 2, 3], np.float32)}, outputs=outputs)
    assert [output.name for output in answer.get_response().outputs] == ["score"]


def test_grpc_client_that_sends_typed_contents_is_answered_so(models: dict[str, Model]) -> None:
    request = triton_grpc.service_pb2.ModelInferRequest(model_name="tiny")
    entry = request.inputs.add(name="x", datatype="FP32", shape=[2, 3])
    entry.contents.fp32_contents.extend(X.ravel().tolist())
    answer = models["tiny"].process(request.SerializeToString(), "kserve")
    response = triton_grpc.service_pb2.ModelInferResponse.FromString(answer)
    assert not response.raw_output_contents
    np.testing.assert_allclose(
        np.array(response.outputs[0].contents.fp32_contents, np.float32).reshape(response.outputs[0].shape),
        model_builders.linear_score(X),
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    ("values", "options", "words"),
    [
        ({"x": X[:, :2]}, {}, r"input 'x': shape \[2,2\], expected \[\?,3\]"),
        ({"x": X.astype(np.float64)}, {}, "input 'x': datatype 'FP64', expected FP32"),
        ({"z": X}, {}, "input 'z': not in signature"),
        ({"x": X}, {"model_version": "77"}, "model version 77: not loaded"),
        ({"x": X}, {"model_version": "stable"}, "version label 'stable'"),
        ({"x": X}, {"outputs": [triton_grpc.InferRequestedOutput("z")]}, "output 'z': not in signature"),
    ],
)
def test_grpc_client_sees_what_was_wrong(over_grpc: Any, values: Any, options: Any, words: str) -> None:
    with pytest.raises(InferenceServerException, match=words):
        infer(over_grpc, "tiny", values, **options)


# tritonclient over HTTP


@pytest.mark.parametrize("dtype", [name for name in NUMPY if name != "DT_HALF"])
def test_http_client_gets_every_dtype_back(http_address: str, dtype: str) -> None:
    x = sample(NUMPY[dtype], (3, 4))
    with triton_http.InferenceServerClient(http_address) as client:
        outputs = [triton_http.InferRequestedOutput("y", binary_data=False)]
        answer = infer(client, "echo", {"x": x}, outputs=outputs, parameters={"signature_name": dtype}, request_id="7")
    np.testing.assert_array_equal(answer.as_numpy("y"), x, strict=True)
    assert answer.get_response()["id"] == "7"


def test_http_client_sends_text(http_address: str) -> None:
    item = np.array(["shoe", "größe"], np.object_)
    with triton_http.InferenceServerClient(http_address) as client:
        outputs = [triton_http.InferRequestedOutput(name, binary_data=False) for name in ("label", "id")]
        answer = infer(client, "string", {"item": item, "price": np.array([1, 2], np.float32)}, outputs=outputs)
        assert answer.as_numpy("label").tolist() == ["shoe!", "größe!"]
        with pytest.raises(InferenceServerException, match="input 'price': missing"):
            infer(client, "string", {"item": item}, outputs=outputs)


# TensorFlow Serving's REST API


def post(address: str, model: str, body: Any) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{address}/v1/models/{model}:predict", data)
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def test_rest_rows_and_columns_answer_alike(http_address: str) -> None:
    expected = model_builders.linear_score(X).tolist()
    assert post(http_address, "tiny", {"instances": X.tolist()}) == {"predictions": expected}
    assert post(http_address, "tiny", {"instances": [{"x": row} for row in X.tolist()]}) == {"predictions": expected}
    assert post(http_address, "tiny", {"inputs": X.tolist()}) == {"outputs": expected}
    assert post(http_address, "tiny", {"inputs": {"x": X.tolist()}}) == {"outputs": expected}


def test_rest_names_several_outputs(http_address: str) -> None:
    rows = [{"item": "shoe", "price": 1}, {"item": {"b64": "/w=="}, "price": 2.5}]
    answer = post(http_address, "string", {"instances": rows})["predictions"]
    assert answer[0]["label"] == "shoe!"
    assert answer[1]["label"] == {"b64": "/yE="}, "what is no UTF-8 comes as base64"
    columns = post(http_address, "string", {"inputs": {"item": ["shoe", {"b64": "/w=="}], "price": [1, 2.5]}})[
        "outputs"
    ]
    assert columns["score"] == [row["score"] for row in answer]
    assert columns["id"] == [row["id"] for row in answer]


def test_rest_signature_and_special_floats(http_address: str) -> None:
    answer = post(http_address, "multi", {"signature_name": "total", "inputs": {"a": [5], "b": [1]}})
    assert answer == {"outputs": {"sum": [6], "difference": [4]}}
    values = [math.inf, -math.inf, 3.4028234663852886e38, 1e-45]
    assert post(http_address, "echo", {"instances": values})["predictions"][:2] == values[:2]
    assert math.isnan(post(http_address, "echo", {"inputs": math.nan})["outputs"])


def test_rest_errors_name_the_input(http_address: str) -> None:
    for body, words in [
        ({"instances": [[1, 2]]}, "input 'x': shape [1,2], expected [?,3]"),
        ({"instances": [[1, 2, "3"]]}, "input 'x': text, expected a value of DT_FLOAT"),
        (b'{"instances": [[1, 2, 3]', "request: no JSON"),
        (b"[" * 100_000, "request: no JSON"),
    ]:
        with pytest.raises(urllib.error.HTTPError) as caught:
            post(http_address, "tiny", body)
        assert words in json.load(caught.value)["error"]


def test_build_info_lists_the_protocols() -> None:
    build = json.loads(ffi.string(get_lib().processor_build_info()))
    assert build["protocols"] == ["tfserving", "tfserving_json", "kserve", "kserve_json", "eas"]
