# SPDX-License-Identifier: Apache-2.0
"""Write and read messages of TensorFlow Serving with its own stubs."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from helpers.system.programs import skip_or_fail


def require_serving_stubs() -> None:
    """Skip the test if TensorFlow Serving's public stubs are missing; fail it in CI."""
    if importlib.util.find_spec("tensorflow_serving") is None:
        skip_or_fail("tensorflow-serving-api: not installed; `pip install --no-deps tensorflow-serving-api==2.21.0`")


def tfserving_request(inputs: dict[str, Any], **spec: Any) -> bytes:
    """Serialize a PredictRequest with TensorFlow Serving's stubs; `spec` sets fields of its ModelSpec."""
    require_serving_stubs()
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest()
    for field, value in spec.items():
        if field == "version":
            request.model_spec.version.value = value
        else:
            setattr(request.model_spec, field, value)
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return bytes(request.SerializeToString())


def tfserving_outputs(data: bytes) -> dict[str, np.ndarray]:
    """Read a PredictResponse with TensorFlow Serving's stubs."""
    require_serving_stubs()
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    response = predict_pb2.PredictResponse.FromString(data)
    return {name: tf.make_ndarray(tensor) for name, tensor in response.outputs.items()}
