# SPDX-License-Identifier: Apache-2.0
"""Ask the served model without a pause, and note which epoch answered."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demo.movielens import Features

#: Highest number of requests per client and second; each client has at most one request in flight.
RATE_PER_S = 50.0
_TIMEOUT_S = 10.0
_EPOCH = "x-model-epoch"


@dataclasses.dataclass(frozen=True)
class Answer:
    """Contain a response: the epoch that answered, and its scores [rows] float32."""

    epoch: int
    scores: NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Sent:
    """Describe a request of a client.

    Attributes
    ----------
    client : str
    done : float
        When the response came [s since 1970].
    seconds : float
        Time until the response.
    epoch : int
        The epoch that answered; -1 without a response.
    fault : str
        Why there was no response, or empty.
    """

    client: str
    done: float
    seconds: float
    epoch: int
    fault: str = ""

    @property
    def lost(self) -> bool:
        return self.epoch < 0


#: Sends features and returns the response.
Ask = Callable[[Features], Answer]


def grpc_client(channel: Any, model: str) -> Ask:
    """Return a client that uses the stubs of tensorflow-serving-api."""
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_service_pb2_grpc

    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def ask(features: Features) -> Answer:
        response, call = stub.Predict.with_call(predict_request(features, model), timeout=_TIMEOUT_S)
        metadata = dict(call.trailing_metadata())
        return Answer(int(metadata[_EPOCH]), tf.make_ndarray(response.outputs["probability"]))

    return ask


def predict_request(features: Features, model: str) -> Any:
    """Return a PredictRequest."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    for name, values in features.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values.tolist(), tf.string))
    return request


def record(folder: Path, requests: Sequence[Features]) -> None:
    """Write requests into an export, as TensorFlow Serving's warm-up; graph-tools verifies with them."""
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    with tf.io.TFRecordWriter(str(folder / "assets.extra" / "tf_serving_warmup_requests")) as writer:
        for features in requests:
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.CopyFrom(predict_request(features, ""))
            writer.write(log.SerializeToString())


def http_client(session: Any, address: str, model: str) -> Ask:
    """Return a client that uses TensorFlow Serving's REST path."""
    url = f"http://{address}/v1/models/{model}:predict"

    def ask(features: Features) -> Answer:
        inputs = {name: [value.decode() for value in values.tolist()] for name, values in features.items()}
        answer = session.post(url, json={"inputs": inputs}, timeout=_TIMEOUT_S)
        answer.raise_for_status()
        return Answer(int(answer.headers[_EPOCH]), np.array(answer.json()["outputs"], np.float32))

    return ask


class Askers:
    """Run a thread for each client that asks from the beginning of the block to its end."""

    def __init__(self, clients: dict[str, Ask], requests: Sequence[Features]) -> None:
        self._requests, self._end = requests, threading.Event()
        self._sent: dict[str, list[Sent]] = {name: [] for name in clients}
        self._threads = [threading.Thread(target=self._run, args=client, daemon=True) for client in clients.items()]

    def __enter__(self) -> Askers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def sent(self) -> list[Sent]:
        """Return the requests so far, in the order of their responses."""
        return sorted((sent for found in self._sent.values() for sent in list(found)), key=lambda sent: sent.done)

    def wait_for(self, epoch: int, seconds: float) -> None:
        """Wait until an epoch has answered."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if any(sent.epoch >= epoch for found in self._sent.values() for sent in found[-1:]):
                return
            time.sleep(0.02)

    def _run(self, name: str, ask: Ask) -> None:
        due, number = time.monotonic(), 0
        while not self._end.is_set():
            self._sent[name].append(_send(name, ask, self._requests[number % len(self._requests)]))
            number += 1
            # A late client does not catch up: the load stays constant.
            due = max(due + 1.0 / RATE_PER_S, time.monotonic())
            self._end.wait(due - time.monotonic())


def _send(name: str, ask: Ask, features: Features) -> Sent:
    start = time.monotonic()
    try:
        epoch = ask(features).epoch
        return Sent(name, time.time(), time.monotonic() - start, epoch)
    except Exception as error:
        fault = " ".join(str(error).split())[:200] or type(error).__name__
        return Sent(name, time.time(), time.monotonic() - start, -1, fault)
