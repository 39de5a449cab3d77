# SPDX-License-Identifier: Apache-2.0
"""Requests that need more memory than there is are refused, and other clients are not affected.

The hosts run with a small budget, and with no more address space than what they have when ready and twice that budget.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
from google.protobuf import text_format
from tensorflow_serving.apis import predict_pb2

from helpers.hosts.contract_messages import make_request
from helpers.hosts.host_requests import ranking_body
from helpers.hosts.partial_calls import PartialCall
from helpers.hosts.served_hosts import ServedHost, model, version
from helpers.models.model_builders import linear_score
from helpers.system.background import Background
from helpers.system.waiting import wait_until

MIB = 1024 * 1024
BUDGET_MIB = 512
INPUTS = 39
# A busy machine may bring a small request late, when there is no room to wait for it.
RETRIES = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
            },
        }
    ]
}
PREDICT = "/tensorflow.serving.PredictionService/Predict"
INFER = "/inference.GRPCInferenceService/ModelInfer"
# What becomes of a client that asks for too much.
REFUSED = {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT}


def _build_wide(path: Path) -> Path:
    """Inputs f00 to f38, float32 [batch, n] -> mean [batch]; sparse ids -> their one-hot rows."""
    import tensorflow as tf

    module = tf.Module()
    wide = {f"f{i:02}": tf.TensorSpec([None, None], tf.float32, name=f"f{i:02}") for i in range(INPUTS)}
    sparse = {
        "indices": tf.TensorSpec([None, 2], tf.int64, name="indices"),
        "values": tf.TensorSpec([None], tf.float32, name="values"),
        "shape": tf.TensorSpec([2], tf.int64, name="shape"),
    }

    @tf.function(input_signature=[wide])
    def mean(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"mean": tf.add_n([tf.reduce_mean(value, axis=1) for value in inputs.values()]) / INPUTS}

    @tf.function(input_signature=[sparse])
    def scores(inputs: dict[str, Any]) -> dict[str, Any]:
        dense = tf.sparse.to_dense(tf.SparseTensor(inputs["indices"], inputs["values"], inputs["shape"]))
        return {"score": tf.reduce_sum(dense * 2.0, axis=1)}

    tf.saved_model.save(module, str(path), signatures={"serving_default": mean, "sparse": scores})
    return path


@pytest.fixture(scope="module")
def tight(start_host, served_models, tmp_path_factory) -> Iterator[ServedHost]:
    """A host whose address space is bounded."""
    wide = _build_wide(tmp_path_factory.mktemp("wide") / "1")
    models = {"ranking": served_models["ranking"], "wide": model(1, {1: version(wide)})}
    arguments = ("--max-request-mb-in-flight", str(BUDGET_MIB), "--read-seconds", "10")
    with start_host(models, arguments) as host:
        # Threads and arenas of malloc that serving needs are there when it is measured.
        with GoodClient(host, 4) as client:
            time.sleep(2)
            wait_until(lambda: client.answers > 100)
        most = _status(host.pid, "VmSize") + 2 * BUDGET_MIB * MIB
        resource.prlimit(host.pid, resource.RLIMIT_AS, (most, most))
        yield host
        assert host.process is not None
        assert host.process.poll() is None, host.log.read_text()[-4000:]


def _status(pid: int, key: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{key}:")]
    return int(line.split()[1]) * 1024


class GoodClient(Background):
    """Sends ordinary requests all the time, and records wrong responses."""

    def __init__(self, host: ServedHost, threads: int = 2) -> None:
        super().__init__(*[self._run] * threads)
        self._host = host
        self.answers = 0
        self.wrong: list[str] = []

    def _run(self, ended: threading.Event) -> None:
        x = np.random.default_rng(3).normal(size=(16, 3)).astype(np.float32)
        body = {"inputs": {"x": x.tolist()}}
        message = _predict("ranking", x=x)
        with (
            httpx.Client(base_url=f"http://{self._host.rest}", timeout=60) as http,
            grpc.insecure_channel(self._host.grpc, options=[("grpc.service_config", json.dumps(RETRIES))]) as channel,
        ):
            call = channel.unary_unary(PREDICT, predict_pb2.PredictRequest.SerializeToString)
            while not ended.is_set():
                try:
                    answer = http.post("/v1/models/ranking:predict", json=body)
                    right = answer.status_code == 200 and np.allclose(
                        answer.json()["outputs"], linear_score(x), rtol=1e-4, atol=1e-4
                    )
                    if not right:
                        self.wrong.append(answer.text)
                    call(message, timeout=60)
                    self.answers += 2
                    ended.wait(0.005)
                except (httpx.TransportError, grpc.RpcError) as error:
                    self.wrong.append(repr(error))


@contextlib.contextmanager
def _others_are_served(host: ServedHost) -> Iterator[None]:
    """Check that an ordinary client is served throughout, and that memory stays bounded and is freed in the end."""
    with GoodClient(host) as client:
        wait_until(lambda: client.answers > 10)
        yield
        before = client.answers
        wait_until(lambda: client.answers > before + 10)
    assert not client.wrong, client.wrong[:3]
    assert host.process is not None
    assert host.process.poll() is None, host.log.read_text()[-4000:]

    wait_until(lambda: sum(_metric(host, "recprocessor_request_bytes{").values()) < MIB, "memory that is free again")
    (peak,) = _metric(host, "recprocessor_request_bytes_peak").values()
    assert peak <= BUDGET_MIB * MIB


def _metric(host: ServedHost, name: str) -> dict[str, float]:
    text = httpx.get(f"http://{host.rest}/metrics", timeout=60).text
    lines = [line.rpartition(" ") for line in text.splitlines() if line.startswith(name)]
    return {key: float(value) for key, _, value in lines}


def _predict(name: str, signature: str = "", **inputs: np.ndarray) -> predict_pb2.PredictRequest:
    import tensorflow as tf

    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    for key, value in inputs.items():
        request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    return request


def _at_once(number: int, ask: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(40) as pool:
        return list(pool.map(ask, range(number)))


def _post(host: ServedHost, path: str, body: bytes) -> httpx.Response:
    return httpx.post(f"http://{host.rest}{path}", content=body, timeout=120)


def _status_of_large(host: ServedHost, body: bytes) -> int:
    """Post a body that may be refused before it is read, which ends the connection while it is sent."""
    try:
        return _post(host, "/api/predict/ranking", body).status_code
    except httpx.TransportError:
        return 429


@pytest.mark.parametrize(
    ("path", "number", "size"),
    [
        ("/v1/models/ranking:predict", 24, 63 * MIB),
        ("/v2/models/ranking/infer", 100, MIB),
        ("/api/predict/ranking", 24, 63 * MIB),
    ],
    ids=["tfserving-large", "kserve-small", "eas-large"],
)
def test_bombs_over_http_are_refused_while_others_are_served(
    tight: ServedHost, path: str, number: int, size: int
) -> None:
    bomb = gzip.compress(b" " * size)
    assert len(bomb) <= 65536
    url, encoded = f"http://{tight.rest}{path}", {"content-encoding": "gzip"}
    # One client for all, so that they come at once: to make one takes longer than to inflate a bomb.
    with _others_are_served(tight), httpx.Client(limits=httpx.Limits(max_connections=None), timeout=120) as client:
        answers = _at_once(number, lambda _: client.post(url, content=bomb, headers=encoded))
    assert {answer.status_code for answer in answers} <= {400, 429}, {answer.status_code for answer in answers}
    refused = [answer for answer in answers if answer.status_code == 429]
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert all("max_request_bytes_in_flight" in answer.text for answer in refused)
    if number * size > 2 * BUDGET_MIB * MIB:
        assert refused, "some of them are too many at once"


@pytest.mark.parametrize(
    ("path", "compression"),
    [(INFER, grpc.Compression.Gzip), (PREDICT, grpc.Compression.NoCompression)],
    ids=["gzip", "plain"],
)
def test_bombs_over_grpc_are_refused_while_others_are_served(
    tight: ServedHost, path: str, compression: grpc.Compression
) -> None:
    if tight.kind == "python" and compression is grpc.Compression.NoCompression:
        pytest.skip("gRPC for Python reads faster than it can be told to stop; docs/hosts.md says so")
    # A string of that many zeros in a field that nobody knows.
    bomb = b"\xfa\x01" + _varint(63 * MIB) + b"\0" * (63 * MIB)
    too_large = b"\xfa\x01" + _varint(80 * MIB) + b"\0" * (80 * MIB)
    with _others_are_served(tight), grpc.insecure_channel(tight.grpc, compression=compression) as channel:
        call = channel.unary_unary(path)

        def ask(body: bytes) -> grpc.StatusCode:
            try:
                call(body, timeout=120)
            except grpc.RpcError as error:
                return error.code()
            return grpc.StatusCode.OK

        # Their compression takes this side most of the time; together they are more than twice the budget.
        codes = set(_at_once(17, lambda _: ask(bomb)))
        assert ask(too_large) == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert codes <= {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_compressed_requests_are_answered(tight: ServedHost) -> None:
    x = np.ones((5, 3), np.float32)
    request = _predict("ranking", x=x)
    for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        with grpc.insecure_channel(tight.grpc, compression=compression) as channel:
            call = channel.unary_unary(
                PREDICT, predict_pb2.PredictRequest.SerializeToString, predict_pb2.PredictResponse.FromString
            )
            assert np.allclose(list(call(request, timeout=60).outputs["y"].float_val), linear_score(x)[:, 0])
            large = np.ones((100_000, 3), np.float32)
            answer = call(_predict("ranking", x=large), timeout=60).outputs["y"]
            assert len(answer.float_val) == 100_000
            live = channel.unary_unary("/grpc.health.v1.Health/Check")(b"\x0a\x07ranking", timeout=60)
            assert live == b"\x08\x01"


def test_large_claims_of_every_input_are_refused(tight: ServedHost) -> None:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "wide"
    for i in range(INPUTS):
        text_format.Parse(
            "dtype: DT_FLOAT tensor_shape {dim {size: 1} dim {size: 16000000}} float_val: 1", request.inputs[f"f{i:02}"]
        )
    assert request.ByteSize() < 4096
    with _others_are_served(tight), grpc.insecure_channel(tight.grpc) as channel:
        call = channel.unary_unary(PREDICT, predict_pb2.PredictRequest.SerializeToString)

        def ask(_: int) -> grpc.RpcError:
            with pytest.raises(grpc.RpcError) as caught:
                call(request, timeout=120)
            return caught.value

        for error in _at_once(40, ask):
            assert error.code() in REFUSED, error
            assert "64 MiB" in error.details() or "max_request_bytes_in_flight" in error.details()


def test_large_claims_of_rows_are_refused(tight: ServedHost) -> None:
    def ask(i: int) -> tuple[grpc.StatusCode, str]:
        request = _predict(
            "wide",
            "sparse",
            indices=np.array([[0, 0]], np.int64),
            values=np.ones(1, np.float32),
            shape=np.array([4 * MIB, 400 + i], np.int64),
        )
        try:
            call(request, timeout=120)
        except grpc.RpcError as error:
            return error.code(), error.details()
        return grpc.StatusCode.OK, ""

    with _others_are_served(tight), grpc.insecure_channel(tight.grpc) as channel:
        call = channel.unary_unary(PREDICT, predict_pb2.PredictRequest.SerializeToString)
        for code, details in _at_once(40, ask):
            assert code in REFUSED, (code, details)
    # Rows of a dense input.
    request = make_request({"x": np.ones((2 * MIB, 3), np.float32)})
    answer = _post(tight, "/api/predict/ranking", request.SerializeToString())
    assert answer.status_code == 400
    assert "2097152 rows, expected at most 1048576 (max_rows)" in answer.text


@pytest.mark.parametrize("chunked", [False, True])
def test_slow_large_bodies_over_http_do_not_disturb_others(tight: ServedHost, chunked: bool) -> None:
    announced = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {60 * MIB}"
    head = f"POST /api/predict/ranking HTTP/1.1\r\nHost: x\r\n{announced}\r\n\r\n".encode()
    piece = b"100000\r\n" + b"x" * MIB + b"\r\n" if chunked else b"x" * MIB
    clients = []

    def begin(_: int) -> bytes:
        name, _, port = tight.rest.rpartition(":")
        client = socket.create_connection((name, int(port)), timeout=60)
        clients.append(client)
        with contextlib.suppress(ConnectionError):
            client.sendall(head)
            for _ in range(30):
                client.sendall(piece)
            return b""
        return _read_some(client)

    try:
        with _others_are_served(tight):
            _at_once(40, begin)
    finally:
        for client in clients:
            client.close()


def _read_some(client: socket.socket) -> bytes:
    with contextlib.suppress(OSError):
        return client.recv(4096)
    return b""


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate], ids=["gzip", "deflate"])
def test_bomb_over_grpc_is_refused_while_bodies_hold_the_memory(
    tight: ServedHost, compression: grpc.Compression
) -> None:
    """It is refused while other requests hold the memory, and served once they have ended."""
    head = f"POST /api/predict/ranking HTTP/1.1\r\nHost: x\r\nContent-Length: {60 * MIB}\r\n\r\n".encode()
    bomb = b"\xfa\x01" + _varint(63 * MIB) + b"\0" * (63 * MIB)
    name, _, port = tight.rest.rpartition(":")
    with _others_are_served(tight), grpc.insecure_channel(tight.grpc, compression=compression) as channel:
        call = channel.unary_unary(PREDICT)
        # Bodies are waited for ten seconds, in which a busy machine may not have sent all of them and the bomb.
        for _ in range(10):
            with contextlib.ExitStack() as clients:
                for _ in range(4):
                    client = clients.enter_context(socket.create_connection((name, int(port)), timeout=60))
                    # The last one may find no room itself.
                    with contextlib.suppress(ConnectionError):
                        client.sendall(head + b"x" * (59 * MIB))
                with pytest.raises(grpc.RpcError) as caught:
                    call(bomb, timeout=60)
            if caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                break
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, caught.value
        assert "max_request_bytes_in_flight" in caught.value.details()
        pushback = dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"]
        assert int(pushback) > 0

        def code() -> grpc.StatusCode:
            with pytest.raises(grpc.RpcError) as caught:
                call(bomb, timeout=60)
            return caught.value.code()

        # The field of zeros names no model.
        wait_until(lambda: code() is not grpc.StatusCode.RESOURCE_EXHAUSTED)


def test_slow_large_requests_over_grpc_do_not_disturb_others(tight: ServedHost) -> None:
    calls: list[PartialCall] = []
    try:
        with _others_are_served(tight):
            for _ in range(30):
                calls.append(PartialCall(tight.grpc, PREDICT, 60 * MIB, 30 * MIB))
            for call in calls:
                assert call.done.wait(120)
    finally:
        for call in calls:
            call.close()


def test_many_large_requests_are_answered_or_refused(tight: ServedHost) -> None:
    """Valid large requests are either answered correctly or refused with a time to retry."""
    x = np.ones((1_000_000, 3), np.float32)
    body = make_request({"x": x}).SerializeToString()
    with _others_are_served(tight):
        codes = _at_once(40, lambda _: _status_of_large(tight, body))
    assert set(codes) <= {200, 429}, codes
    assert 200 in codes
    assert _post(tight, "/api/predict/ranking", ranking_body()).status_code == 200
