# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol and TensorFlow Serving's REST API on real graphs; tests/conformance has their clients."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_serving.apis import classification_pb2
from tritonclient.grpc import service_pb2

import processor
from helpers.hosts.state_directory import StateDirectory, model_of
from helpers.models import example_models, model_builders
from processor._ffi import ffi
from processor._lib import get_lib

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
# Dtype of a signature of the model -> those of the protocol and of NumPy.
DTYPES: dict[str, tuple[str, Any]] = {
    "DT_FLOAT": ("FP32", np.float32),
    "DT_DOUBLE": ("FP64", np.float64),
    "DT_INT8": ("INT8", np.int8),
    "DT_INT16": ("INT16", np.int16),
    "DT_INT32": ("INT32", np.int32),
    "DT_INT64": ("INT64", np.int64),
    "DT_UINT8": ("UINT8", np.uint8),
    "DT_UINT16": ("UINT16", np.uint16),
    "DT_UINT32": ("UINT32", np.uint32),
    "DT_UINT64": ("UINT64", np.uint64),
    "DT_HALF": ("FP16", np.float16),
    "DT_BOOL": ("BOOL", np.bool_),
}


def sample(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers of the dtype, its extremes among them."""
    count = math.prod(shape)
    if dtype == np.bool_:
        return (np.arange(count) % 3 == 0).reshape(shape)
    limits = np.finfo(dtype) if np.issubdtype(dtype, np.floating) else np.iinfo(dtype)
    values = np.concatenate([np.array([limits.min, limits.max, 0, 1], dtype), np.arange(count).astype(dtype)])
    return values[:count].reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_passes_through_a_graph(echo_model: Path, dtype: str) -> None:
    datatype, kind = DTYPES[dtype]
    x = sample(kind, (3, 4))
    message = service_pb2.ModelInferRequest(model_name="echo", raw_input_contents=[x.tobytes()])
    message.inputs.add(name="x", datatype=datatype, shape=x.shape)
    tensor = {"name": "x", "datatype": datatype, "shape": x.shape, "data": x.ravel().tolist()}
    with processor.Model(echo_model, {"signature_name": dtype}) as model:
        answer = service_pb2.ModelInferResponse.FromString(model.process(message.SerializeToString(), "kserve"))
        assert answer.outputs[0].datatype == datatype
        assert answer.raw_output_contents[0] == x.tobytes()
        if dtype != "DT_HALF":  # has no numbers in JSON
            (output,) = json.loads(model.process(json.dumps({"inputs": [tensor]}).encode(), "kserve_json"))["outputs"]
            np.testing.assert_array_equal(np.array(output["data"], kind), x.ravel(), strict=True)


def predict(model: processor.Model, body: Any) -> Any:
    """Run a request of TensorFlow Serving's REST API."""
    return json.loads(model.process(json.dumps(body).encode(), "tfserving_json"))


def test_rest_rows_and_columns_get_equal_answers(tiny_model: Path) -> None:
    expected = model_builders.linear_score(X).tolist()
    with processor.Model(tiny_model) as model:
        assert predict(model, {"instances": X.tolist()}) == {"predictions": expected}
        assert predict(model, {"instances": [{"x": row} for row in X.tolist()]}) == {"predictions": expected}
        assert predict(model, {"inputs": X.tolist()}) == {"outputs": expected}
        assert predict(model, {"inputs": {"x": X.tolist()}}) == {"outputs": expected}


def test_rest_writes_base64_for_strings_that_are_not_utf8(string_model: Path) -> None:
    rows = [{"item": "shoe", "price": 1}, {"item": {"b64": "/w=="}, "price": 2.5}]
    columns = {"item": [row["item"] for row in rows], "price": [1, 2.5]}
    with processor.Model(string_model) as model:
        answer = predict(model, {"instances": rows})["predictions"]
        assert [row["label"] for row in answer] == ["shoe!", {"b64": "/yE="}]
        outputs = predict(model, {"inputs": columns})["outputs"]
    assert outputs == {name: [row[name] for row in answer] for name in ("id", "label", "score")}


def test_examples_that_the_graph_cannot_parse_are_invalid_arguments(
    host: processor.Host, state: StateDirectory, tmp_path: Path
) -> None:
    state.serve(host, {"examples": model_of(example_models.build_examples(tmp_path / "examples"))})
    request = classification_pb2.ClassificationRequest()
    features = request.input.example_list.examples.add().features.feature
    features["x"].float_list.value.append(1)
    data = request.SerializeToString()
    assert host.process("tfserving", data, method="Classify").data
    features["x"].int64_list.value.append(1)
    with pytest.raises(processor.InvalidArgumentError):
        host.process("tfserving", request.SerializeToString(), method="Classify")


def test_build_info_lists_the_protocols() -> None:
    build = json.loads(ffi.string(get_lib().processor_build_info()))
    assert build["protocols"] == ["tfserving", "tfserving_json", "kserve", "kserve_json", "eas"]
