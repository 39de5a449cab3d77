# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Serving's own stubs, unchanged."""

from __future__ import annotations

import grpc
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.wrappers_pb2 import Int64Value
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    input_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from helpers.models.example_models import CLASSES
from helpers.models.model_builders import linear_score

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


@pytest.fixture(scope="module")
def stub(channel: grpc.Channel) -> prediction_service_pb2_grpc.PredictionServiceStub:
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


@pytest.fixture(scope="module")
def models(channel: grpc.Channel) -> model_service_pb2_grpc.ModelServiceStub:
    return model_service_pb2_grpc.ModelServiceStub(channel)


def _predict(name: str, x: np.ndarray = X, **spec: object) -> predict_pb2.PredictRequest:
    request = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(name=name, **spec))
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(x))
    return request


def _examples(*values: float) -> input_pb2.Input:
    features = [
        tf.train.Example(features=tf.train.Features(feature={"x": tf.train.Feature(float_list={"value": [value]})}))
        for value in values
    ]
    return input_pb2.Input(example_list=input_pb2.ExampleList(examples=features))


def test_predict_answers_what_the_model_computes(stub) -> None:
    response = stub.Predict(_predict("ranking"), timeout=60)
    assert np.allclose(tf.make_ndarray(response.outputs["y"]), linear_score(X))
    assert response.model_spec.name == "ranking"
    assert response.model_spec.version.value == 1


def test_predict_takes_values_in_fields(stub) -> None:
    request = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(name="ranking"))
    request.inputs["x"].CopyFrom(
        tensor_pb2.TensorProto(
            dtype=tf.float32.as_datatype_enum, tensor_shape=tf.TensorShape([2, 3]).as_proto(), float_val=X.ravel()
        )
    )
    assert np.allclose(tf.make_ndarray(stub.Predict(request, timeout=60).outputs["y"]), linear_score(X))


@pytest.mark.parametrize(
    ("spec", "number"),
    [({"version": Int64Value(value=2)}, 2), ({"version_label": "canary"}, 2), ({"version_label": "stable"}, 1)],
)
def test_predict_selects_the_version(stub, spec: dict[str, object], number: int) -> None:
    response = stub.Predict(_predict("ranking", **spec), timeout=60)
    assert np.allclose(tf.make_ndarray(response.outputs["y"]), linear_score(X, number))
    assert response.model_spec.version.value == number


def test_predict_accepts_strings_and_an_output_filter(stub) -> None:
    request = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(name="text"))
    request.inputs["item"].CopyFrom(tf.make_tensor_proto([b"a", b"b"]))
    request.inputs["price"].CopyFrom(tf.make_tensor_proto(np.array([1, 2], np.float32)))
    request.output_filter.append("label")
    response = stub.Predict(request, timeout=60)
    assert list(response.outputs) == ["label"]
    assert response.outputs["label"].dtype == tf.string.as_datatype_enum


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (_predict("absent"), grpc.StatusCode.NOT_FOUND),
        (_predict("ranking", version=Int64Value(value=9)), grpc.StatusCode.NOT_FOUND),
        (_predict("ranking", version=Int64Value(value=0)), grpc.StatusCode.NOT_FOUND),
        (_predict("ranking", version_label="absent"), grpc.StatusCode.INVALID_ARGUMENT),
        (_predict("ranking", signature_name="absent"), grpc.StatusCode.FAILED_PRECONDITION),
        (_predict("ranking", X.astype(np.float64)), grpc.StatusCode.INVALID_ARGUMENT),
        (_predict("ranking", X[:, :2]), grpc.StatusCode.INVALID_ARGUMENT),
    ],
    ids=["model", "version", "version-0", "label", "signature", "dtype", "shape"],
)
def test_invalid_predict_requests_are_refused(stub, request_, code: grpc.StatusCode) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Predict(request_, timeout=60)
    assert caught.value.code() is code
    assert caught.value.details()


@pytest.mark.parametrize(("filtered", "words"), [(["absent"], "absent"), (["y", "y"], "y")], ids=["unknown", "twice"])
def test_invalid_output_filters_are_refused(stub, filtered: list[str], words: str) -> None:
    request = _predict("ranking")
    request.output_filter.extend(filtered)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Predict(request, timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"'{words}'" in caught.value.details()


def test_unknown_signature_of_examples_is_refused(stub) -> None:
    request = classification_pb2.ClassificationRequest(
        model_spec=model_pb2.ModelSpec(name="examples", signature_name="absent"), input=_examples(0.5)
    )
    with pytest.raises(grpc.RpcError) as caught:
        stub.Classify(request, timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_classify_returns_classes_and_scores(stub) -> None:
    request = classification_pb2.ClassificationRequest(
        model_spec=model_pb2.ModelSpec(name="examples"), input=_examples(0.25, 0.75)
    )
    response = stub.Classify(request, timeout=60)
    found = [
        [(class_.label.encode(), class_.score) for class_ in row.classes] for row in response.result.classifications
    ]
    assert found == [list(zip(CLASSES, (0.75, 0.25), strict=True)), list(zip(CLASSES, (0.25, 0.75), strict=True))]


def test_regress_returns_values(stub) -> None:
    request = regression_pb2.RegressionRequest(
        model_spec=model_pb2.ModelSpec(name="examples", signature_name="regress"), input=_examples(0.25, 3.0)
    )
    response = stub.Regress(request, timeout=60)
    assert [regression.value for regression in response.result.regressions] == [0.5, 6.0]


def test_multi_inference_returns_all_results(stub) -> None:
    tasks = [
        inference_pb2.InferenceTask(
            model_spec=model_pb2.ModelSpec(name="examples", signature_name=name),
            method_name=f"tensorflow/serving/{name}",
        )
        for name in ("classify", "regress")
    ]
    response = stub.MultiInference(inference_pb2.MultiInferenceRequest(tasks=tasks, input=_examples(0.5)), timeout=60)
    assert response.results[0].classification_result.classifications[0].classes[1].score == 0.5
    assert response.results[1].regression_result.regressions[0].value == 1.0


def test_metadata_contains_the_signature(stub) -> None:
    request = get_model_metadata_pb2.GetModelMetadataRequest(
        model_spec=model_pb2.ModelSpec(name="ranking"), metadata_field=["signature_def"]
    )
    response = stub.GetModelMetadata(request, timeout=60)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    signature = signatures.signature_def["serving_default"]
    assert list(signature.inputs) == ["x"]
    assert [dim.size for dim in signature.inputs["x"].tensor_shape.dim] == [-1, 3]


def test_status_lists_versions_largest_first(models) -> None:
    request = get_model_status_pb2.GetModelStatusRequest(model_spec=model_pb2.ModelSpec(name="ranking"))
    available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
    found = [
        (version.version, version.state) for version in models.GetModelStatus(request, timeout=60).model_version_status
    ]
    assert found == [(2, available), (1, available)], "the largest first"


def test_status_of_an_unknown_label_is_refused(models) -> None:
    request = get_model_status_pb2.GetModelStatusRequest(
        model_spec=model_pb2.ModelSpec(name="ranking", version_label="absent")
    )
    with pytest.raises(grpc.RpcError) as caught:
        models.GetModelStatus(request, timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_status_of_an_unknown_model_is_not_found(models) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        models.GetModelStatus(
            get_model_status_pb2.GetModelStatusRequest(model_spec=model_pb2.ModelSpec(name="absent")), timeout=60
        )
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_large_requests_and_responses_are_complete(stub) -> None:
    x = np.ones((100_000, 3), np.float32)
    response = stub.Predict(_predict("ranking", x), timeout=30)
    assert tf.make_ndarray(response.outputs["y"]).shape == (100_000, 1)
