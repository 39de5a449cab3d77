# SPDX-License-Identifier: Apache-2.0
"""Use three public clients that know nothing of the proxy, each as its documentation describes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from demo.movielens import Features

#: The header, or gRPC metadata, that keeps a user on one version.
ROUTING_KEY = "x-routing-key"
_TIMEOUT_S = 10.0
_OUTPUT = "probability"


@dataclasses.dataclass(frozen=True)
class Answer:
    """Contain a response: the version that it reports, and its scores [rows] float32."""

    version: int
    scores: NDArray[np.float32]


class ServingClient(Protocol):
    """Define a client; `name` is for the table, `key` for the JSON."""

    name: str
    key: str

    def prepare(self, features: Features) -> Any:
        """Create a request in the format of this client."""

    def ask(self, request: Any, user: str) -> Answer:
        """Send a request for a user and wait for the response."""


class TensorflowServing:
    """Use the stubs of tensorflow-serving-api over gRPC."""

    name = "tensorflow-serving-api over gRPC"
    key = "tensorflow_serving_grpc"

    def __init__(self, stub: Any, model: str) -> None:
        self._stub, self._model = stub, model

    def prepare(self, features: Features) -> Any:
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2

        request = predict_pb2.PredictRequest()
        request.model_spec.name = self._model
        for name, values in features.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(values.tolist(), tf.string))
        return request

    def ask(self, request: Any, user: str) -> Answer:
        import tensorflow as tf

        response = self._stub.Predict(request, timeout=_TIMEOUT_S, metadata=((ROUTING_KEY, user),))
        scores = tf.make_ndarray(response.outputs[_OUTPUT])
        return Answer(response.model_spec.version.value, scores)


class Triton:
    """Use tritonclient over gRPC: the Open Inference Protocol v2 of KServe and Triton."""

    name = "tritonclient over gRPC"
    key = "triton_grpc"

    def __init__(self, client: Any, model: str) -> None:
        self._client, self._model = client, model

    def prepare(self, features: Features) -> Any:
        from tritonclient.grpc import InferInput

        inputs = []
        for name, values in features.items():
            tensor = InferInput(name, list(values.shape), "BYTES")
            tensor.set_data_from_numpy(values.astype(object))
            inputs.append(tensor)
        return inputs

    def ask(self, request: Any, user: str) -> Answer:
        result = self._client.infer(self._model, request, headers={ROUTING_KEY: user}, client_timeout=_TIMEOUT_S)
        return Answer(int(result.get_response().model_version), result.as_numpy(_OUTPUT))


class PlainHttp:
    """Use the package requests on TensorFlow Serving's REST path, as with curl."""

    name = "requests over HTTP"
    key = "http_json"

    def __init__(self, session: Any, url: str) -> None:
        self._session, self._url = session, url

    def prepare(self, features: Features) -> Any:
        return {"inputs": {name: [value.decode() for value in values.tolist()] for name, values in features.items()}}

    def ask(self, request: Any, user: str) -> Answer:
        answer = self._session.post(self._url, json=request, headers={ROUTING_KEY: user}, timeout=_TIMEOUT_S)
        answer.raise_for_status()
        return Answer(int(answer.headers["x-model-version"]), np.array(answer.json()["outputs"], np.float32))


@contextmanager
def clients(grpc_address: str, rest_address: str, model: str) -> Iterator[list[ServingClient]]:
    """Create the three clients, and close them at the end."""
    import grpc
    import requests
    import tritonclient.grpc
    from tensorflow_serving.apis import prediction_service_pb2_grpc

    with ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(grpc_address))
        triton = tritonclient.grpc.InferenceServerClient(grpc_address)
        stack.callback(triton.close)
        session = stack.enter_context(requests.Session())
        # Proxy variables of the environment concern other networks.
        session.trust_env = False
        yield [
            TensorflowServing(prediction_service_pb2_grpc.PredictionServiceStub(channel), model),
            Triton(triton, model),
            PlainHttp(session, f"http://{rest_address}/v1/models/{model}:predict"),
        ]
