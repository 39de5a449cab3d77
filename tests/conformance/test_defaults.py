# SPDX-License-Identifier: Apache-2.0
"""Defaults of signatures, as clients of both hosts see them: leave an input out, and read the metadata."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2

from helpers.hosts.contract_messages import decode, make_request
from helpers.hosts.served_hosts import ServedHost, model, version
from helpers.models.default_models import SCALE, build_defaults, expected

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
SERVICE = "/tensorflow.serving.PredictionService"


@pytest.fixture(scope="module")
def with_defaults(start_host, tmp_path_factory) -> Iterator[ServedHost]:
    path = build_defaults(tmp_path_factory.mktemp("defaults") / "1")
    with start_host({"scored": model(1, {1: version(path)})}) as host:
        yield host


def test_inputs_with_defaults_may_be_omitted(with_defaults: ServedHost) -> None:
    import tensorflow as tf

    request = predict_pb2.PredictRequest()
    request.model_spec.name = "scored"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(X))
    with grpc.insecure_channel(with_defaults.grpc) as channel:
        call = channel.unary_unary(
            f"{SERVICE}/Predict", predict_pb2.PredictRequest.SerializeToString, predict_pb2.PredictResponse.FromString
        )
        np.testing.assert_allclose(tf.make_ndarray(call(request, timeout=60).outputs["score"]), expected(X))
        del request.inputs["x"]
        with pytest.raises(grpc.RpcError) as caught:
            call(request, timeout=60)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "'x': missing" in caught.value.details()
    url = f"http://{with_defaults.rest}"
    raw = httpx.post(f"{url}/api/predict/scored", content=make_request({"x": X}).SerializeToString(), timeout=60)
    np.testing.assert_allclose(decode(raw.content)["score"], expected(X))
    with tritonclient.grpc.InferenceServerClient(with_defaults.grpc) as client:
        tensor = tritonclient.grpc.InferInput("x", [2, 3], "FP32")
        tensor.set_data_from_numpy(X)
        np.testing.assert_allclose(client.infer("scored", [tensor]).as_numpy("score"), expected(X))
    rows = [{"x": row} for row in X.tolist()]
    answer = httpx.post(f"{url}/v1/models/scored:predict", json={"instances": rows}, timeout=60).json()
    np.testing.assert_allclose(answer["predictions"], expected(X))
    tensors = [{"name": "x", "datatype": "FP32", "shape": [2, 3], "data": X.ravel().tolist()}]
    answer = httpx.post(f"{url}/v2/models/scored/infer", json={"inputs": tensors}, timeout=60).json()
    np.testing.assert_allclose(answer["outputs"][0]["data"], expected(X))


def test_metadata_shows_default_values(with_defaults: ServedHost) -> None:
    import tensorflow as tf

    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "scored"
    with grpc.insecure_channel(with_defaults.grpc) as channel:
        call = channel.unary_unary(
            f"{SERVICE}/GetModelMetadata",
            get_model_metadata_pb2.GetModelMetadataRequest.SerializeToString,
            get_model_metadata_pb2.GetModelMetadataResponse.FromString,
        )
        answer = call(request, timeout=60)
    found = get_model_metadata_pb2.SignatureDefMap()
    answer.metadata["signature_def"].Unpack(found)
    defaults = found.signature_def["serving_default"].defaults
    assert {key: tf.make_ndarray(value).tolist() for key, value in defaults.items()} == {
        "scale": SCALE,
        "word": [b"none"],
    }
    answer = httpx.get(f"http://{with_defaults.rest}/v1/models/scored/metadata", timeout=60).json()
    defaults = answer["metadata"]["signature_def"]["signature_def"]["serving_default"]["defaults"]
    assert defaults["scale"] == {"dtype": "DT_FLOAT", "tensor_shape": {}, "float_val": [SCALE]}
    assert set(defaults) == {"scale", "word"}
