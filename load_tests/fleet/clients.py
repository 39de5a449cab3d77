# SPDX-License-Identifier: Apache-2.0
"""Clients of several hosts, as docs/fleet.md describes them."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from typing import Any

__all__ = ["SERVICE_CONFIG", "RoundRobinClients", "channel_options", "predict_request"]

_SERVICES = ("tensorflow.serving.PredictionService", "inference.GRPCInferenceService")
#: The service config of docs/fleet.md.
SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [
        {
            "name": [
                {"service": "tensorflow.serving.PredictionService"},
                {"service": "inference.GRPCInferenceService"},
            ],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.02s",
                "maxBackoff": "0.5s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
}
_CLIENTS = 4
_DEADLINE_S = 10.0
_METHOD = "/tensorflow.serving.PredictionService/Predict"


class RoundRobinClients:
    """Threads that send one request after the other on one channel each.

    Attributes
    ----------
    statuses : Counter of str
        Number of requests by status.
    slowest_s : float [s]
        The longest time until an answer or an error.
    """

    def __init__(self, addresses: list[str], request: bytes, retries: bool) -> None:
        self.statuses: Counter[str] = Counter()
        self.slowest_s = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        options = channel_options(retries)
        target = "ipv4:" + ",".join(addresses)
        self._threads = [threading.Thread(target=self._run, args=(target, options, request)) for _ in range(_CLIENTS)]

    def __enter__(self) -> RoundRobinClients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    @property
    def lost(self) -> int:
        """Return the number of requests without an answer."""
        return self.statuses.total() - self.statuses["OK"]

    def _run(self, target: str, options: list[tuple[str, Any]], request: bytes) -> None:
        import grpc

        with grpc.insecure_channel(target, options) as channel:
            predict = channel.unary_unary(_METHOD)
            while not self._ended.is_set():
                begun = time.monotonic()
                try:
                    predict(request, timeout=_DEADLINE_S, wait_for_ready=False)
                    status = "OK"
                except grpc.RpcError as error:
                    status = error.code().name
                with self._lock:
                    self.statuses[status] += 1
                    self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
                time.sleep(0.001)


def channel_options(retries: bool) -> list[tuple[str, Any]]:
    """Return the options of a channel to several hosts, as docs/fleet.md describes them."""
    config = SERVICE_CONFIG if retries else {"loadBalancingConfig": SERVICE_CONFIG["loadBalancingConfig"]}
    return [
        ("grpc.service_config", json.dumps(config)),
        ("grpc.enable_retries", int(retries)),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_reconnect_backoff_ms", 1_000),
    ]


def predict_request() -> bytes:
    """Return a Predict request with one row, for the model `tiny`."""
    from serving_proxy import messages

    request = messages.new("tensorflow.serving.PredictRequest")
    request.model_spec.name = "tiny"
    dense = request.inputs["dense"]
    dense.dtype = 1
    dense.tensor_shape.dim.add(size=1)
    dense.tensor_shape.dim.add(size=4)
    dense.float_val.extend([1.0, 2.0, 3.0, 4.0])
    words = request.inputs["C1"]
    words.dtype = 7
    words.tensor_shape.dim.add(size=1)
    words.string_val.append(b"word")
    found: bytes = request.SerializeToString()
    return found
