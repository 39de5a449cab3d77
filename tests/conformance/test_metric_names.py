# SPDX-License-Identifier: Apache-2.0
"""Metrics that dashboards of TensorFlow Serving look for, by its names and labels."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from prometheus_client.parser import text_string_to_metric_families
from tensorflow_serving.apis import classification_pb2, model_pb2, predict_pb2, prediction_service_pb2_grpc

from helpers.hosts.served_hosts import ServedHost

ROWS = [[1.0, 2.0, 3.0]]


def _predict_over_grpc(host: ServedHost, http: httpx.Client) -> None:
    request = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(name="ranking"))
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.array(ROWS, np.float32)))
    with grpc.insecure_channel(host.grpc) as channel:
        prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=60)


def _classify_over_grpc(host: ServedHost, http: httpx.Client) -> None:
    request = classification_pb2.ClassificationRequest(model_spec=model_pb2.ModelSpec(name="examples"))
    example = tf.train.Example(features=tf.train.Features(feature={"x": tf.train.Feature(float_list={"value": [0.5]})}))
    request.input.example_list.examples.append(example)
    with grpc.insecure_channel(host.grpc) as channel:
        prediction_service_pb2_grpc.PredictionServiceStub(channel).Classify(request, timeout=60)


def _predict_over_rest(host: ServedHost, http: httpx.Client) -> None:
    http.post("/v1/models/ranking:predict", json={"instances": ROWS}).raise_for_status()


def _regress_over_rest(host: ServedHost, http: httpx.Client) -> None:
    body = {"signature_name": "regress", "examples": [{"x": 0.5}]}
    http.post("/v1/models/examples:regress", json=body).raise_for_status()


@pytest.mark.parametrize(
    ("ask", "labels", "runtime"),
    [
        (_predict_over_grpc, {"model_name": "ranking", "API": "Predict", "entrypoint": "GRPC"}, "Predict"),
        (_classify_over_grpc, {"model_name": "examples", "API": "Classify", "entrypoint": "GRPC"}, "Classify"),
        (_predict_over_rest, {"model_name": "ranking", "API": "predict", "entrypoint": "REST"}, "Predict"),
        (_regress_over_rest, {"model_name": "examples", "API": "regress", "entrypoint": "REST"}, "Regress"),
    ],
)
def test_requests_are_counted_under_tensorflow_servings_labels(
    host: ServedHost,
    http: httpx.Client,
    ask: Callable[[ServedHost, httpx.Client], None],
    labels: dict[str, str],
    runtime: str,
) -> None:
    def counts() -> tuple[float, float, float]:
        text = http.get("/monitoring/prometheus/metrics").text
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

        def total(names: tuple[str, ...], wanted: dict[str, str]) -> float:
            found = (sample for sample in samples if sample.name.removeprefix(":tensorflow:serving:") in names)
            return sum(sample.value for sample in found if wanted.items() <= sample.labels.items())

        return (
            # The parser puts the suffix of a counter where it finds none.
            total(("request_count", "request_count_total"), {**labels, "status": "OK"}),
            total(("request_latency_count",), labels),
            total(("runtime_latency_count",), {"model_name": labels["model_name"], "API": runtime}),
        )

    before = counts()
    ask(host, http)
    assert counts() == tuple(count + 1 for count in before)
