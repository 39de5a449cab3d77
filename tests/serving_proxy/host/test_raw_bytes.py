# SPDX-License-Identifier: Apache-2.0
"""No tensor and no message is decoded in Python: a profile of the called functions shows it."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from helpers.hosts.contract_messages import make_request
from processor import Host
from serving_proxy.host.call import Operation
from serving_proxy.host.engine import Engine
from serving_proxy.host.grpc_calls import InFlight, unary
from serving_proxy.host.http_app import Application
from serving_proxy.host.model_control import ModelControl
from serving_proxy.host.options import HostOptions
from serving_proxy.host.readiness import Readiness
from serving_proxy.host.receive_timeout import ReceiveTimeout

ROWS = 50_000
X = np.ones((ROWS, 3), np.float32)
DECODERS = ("google", "json", "numpy", "struct", "_struct", "array", "tensorflow", "pickle")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("state")
    desired = {
        "schema": 1,
        "generation": 1,
        "maintenance_cpus": "0",
        "models": {"ranking": {"baseline": 1, "versions": {"1": {"path": str(tiny_model)}}}},
    }
    (folder / "desired.json").write_text(json.dumps(desired))
    with Host(folder) as opened:
        until = time.monotonic() + 60
        while opened.status()["state"] != "ready":
            assert time.monotonic() < until
            time.sleep(0.02)
        yield opened


def _called(run: Callable[[], Coroutine[Any, Any, None]]) -> set[str]:
    """Return the modules of all functions that run when a coroutine does, Python's and built-in ones."""
    modules: set[str] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            modules.add(str(frame.f_globals.get("__name__")))
        elif event == "c_call":
            modules.add(str(getattr(argument, "__module__", None) or type(argument.__self__).__module__))

    async def main() -> None:
        sys.setprofile(note)
        try:
            await run()
        finally:
            sys.setprofile(None)

    asyncio.run(main())
    return modules


def _decoders(modules: set[str]) -> list[str]:
    return sorted(name for name in modules if name.partition(".")[0] in DECODERS)


class Context:
    """The part of gRPC's context that a handler uses."""

    def __init__(self, request: bytes) -> None:
        self.trailing: Any = ()
        self._request = request

    async def read(self) -> bytes:
        return self._request

    def time_remaining(self) -> float:
        return 10.0

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("user-agent", "test"), ("x-routing-key", "17"))

    def set_trailing_metadata(self, pairs: Any) -> None:
        self.trailing = pairs


def test_grpc_request_is_not_decoded(host: Host) -> None:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "ranking"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(X))
    data = request.SerializeToString()
    answers: list[bytes] = []
    context = Context(data)

    async def unused() -> AsyncIterator[bytes]:
        yield b""

    async def run() -> None:
        handle = unary(Engine(host), Operation("tfserving", "Predict"), InFlight(), ReceiveTimeout(10), 1 << 26)
        # The first by the queue, and once it is known to be short, on the loop.
        for _ in range(3):
            answers.append(await handle(unused(), context))

    assert _decoders(_called(run)) == []
    response = predict_pb2.PredictResponse.FromString(answers[-1])
    assert tf.make_ndarray(response.outputs["y"]).shape == (ROWS, 1)
    assert dict(context.trailing)["x-model-name"] == "ranking"


def test_http_request_is_not_decoded(host: Host) -> None:
    body = make_request({"x": X}).SerializeToString()
    sent: list[dict[str, Any]] = []

    def client() -> Callable[[], Awaitable[dict[str, Any]]]:
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not messages:
                await asyncio.sleep(60)
            return messages.pop()

        return receive

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def ready(*_: object) -> None:
        pass

    async def run() -> None:
        app = Application(Engine(host), Readiness(host, ready), ModelControl(None), HostOptions(Path()))
        scope = {"method": "POST", "raw_path": b"/api/predict/ranking", "headers": [(b"x-routing-key", b"17")]}
        for _ in range(3):
            await app(scope, client(), send)

    assert _decoders(_called(run)) == []
    assert [message.get("status") for message in sent[::2]] == [200] * 3
    assert len(sent[1]["body"]) > 4 * ROWS


def test_profile_sees_decoders() -> None:
    async def run() -> None:
        json.loads("[1]")
        np.frombuffer(b"1234", np.float32)

    assert {"json", "numpy"} <= {name.partition(".")[0] for name in _called(run)}
