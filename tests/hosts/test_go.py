# SPDX-License-Identifier: Apache-2.0
"""The Go module: its own tests with a real model, the gRPC host asked by a real client, the drop-in example."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from helpers.hosts.contract_messages import decode, encode
from helpers.hosts.deeprec_abi import drop_in_config
from helpers.hosts.tfserving_messages import require_serving_stubs, tfserving_outputs, tfserving_request
from helpers.oracles.outputs import assert_same_outputs
from helpers.system.programs import ROOT, build_environment, require, run, run_ok, write_pkg_config

MODULE = ROOT / "libprocessor" / "go"
PREDICT = "/tensorflow.serving.PredictionService/Predict"
HEALTH = "/grpc.health.v1.Health/Check"
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"

Stock = Callable[[dict[str, Any]], dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def go(library: Path) -> Callable[..., str]:
    """Run the go command in the module."""
    require("go", "cc")

    def command(*arguments: object, **more: str) -> str:
        return run_ok(["go", *arguments], cwd=MODULE, env=build_environment() | more, timeout=900)

    return command


@pytest.fixture(scope="module")
def programs(go: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the module's examples."""
    folder = tmp_path_factory.mktemp("go")
    go("build", "-o", f"{folder}{os.sep}", "./cmd/grpc-example", "./cmd/drop-in-example")
    return folder


class Host:
    """A running gRPC host."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.address = address

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(self.address, options=[("grpc.enable_http_proxy", 0)])

    def predict(self, request: bytes, timeout: float = 60, path: str = PREDICT) -> bytes:
        """Send raw bytes, over a connection of its own."""
        with self.channel() as channel:
            return bytes(channel.unary_unary(path)(request, timeout=timeout))

    def expect(self, request: bytes, code: grpc.StatusCode, words: str = "", **options: Any) -> None:
        """Send a request that must fail."""
        with pytest.raises(grpc.RpcError) as failure:
            self.predict(request, **options)
        assert failure.value.code() == code, failure.value.details()
        assert words in failure.value.details()


@contextmanager
def serving(programs: Path, model: Path, *arguments: str) -> Iterator[Host]:
    """Start a host on a free port, and end it."""
    command = [programs / "grpc-example", "--model", f"ranking={model}", "--listen", "127.0.0.1:0", *arguments]
    with (model.parent / "host.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on 127.0.0.1:"), (model.parent / "host.log").read_text()
        yield Host(process, line.split()[-1])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def host(programs: Path, host_model: Path) -> Iterator[Host]:
    """A host with its default configuration."""
    with serving(programs, host_model) as running:
        yield running


def slow_request(size: int) -> bytes:
    """Serialize a request whose time grows with the cube of `size`: about a second for 2,000."""
    return tfserving_request({"size": np.int32(size)}, name="ranking", signature_name="slow")


def test_module_is_tidy(go: Callable[..., str]) -> None:
    require("gofmt")
    assert run_ok(["gofmt", "-l", MODULE]) == ""
    go("vet", "./...")
    go("mod", "verify")


@pytest.mark.timeout(1200)
def test_module_passes_its_own_tests(go: Callable[..., str], host_model: Path) -> None:
    text = go("test", "-race", "-count=1", "-timeout=600s", "./...", PROCESSOR_TEST_MODEL=str(host_model), CI="true")
    assert "FAIL" not in text
    for package in ("/processor", "/cmd/grpc-example", "/cmd/recprocessor-host", "/cmd/loadgen"):
        assert f"{package}\t" in text


def test_host_answers_raw_bytes_as_tensorflow_does(host: Host, inputs: list[dict[str, Any]], stock: Stock) -> None:
    for source in inputs:
        assert_same_outputs(tfserving_outputs(host.predict(tfserving_request(source, name="ranking"))), stock(source))


def test_host_answers_clients_of_tensorflow_serving(host: Host, inputs: list[dict[str, Any]], stock: Stock) -> None:
    require_serving_stubs()
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    with host.channel() as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        request = predict_pb2.PredictRequest.FromString(tfserving_request(inputs[2], name="ranking", version=7))
        request.output_filter.append("y")
        response = stub.Predict(request, timeout=60)
        assert list(response.outputs) == ["y"]
        np.testing.assert_allclose(tf.make_ndarray(response.outputs["y"]), stock(inputs[2])["y"], rtol=1e-5, atol=1e-5)
        assert response.model_spec.name == "ranking"
        assert response.model_spec.version.value == 7
        assert response.model_spec.signature_name == "serving_default"


def test_host_answers_compressed_and_large_requests(host: Host, stock: Stock) -> None:
    # More than the 4 MB that gRPC allows by default, both ways.
    rows = 400_000
    large = {"x": np.ones((rows, 3), np.float32), "s": np.full(rows, b"some item", object)}
    options = [("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(host.address, options=options, compression=grpc.Compression.Gzip) as channel:
        response = channel.unary_unary(PREDICT)(tfserving_request(large), timeout=120)
    assert len(response) > 4 << 20
    assert_same_outputs(tfserving_outputs(response), stock(large))


@pytest.mark.parametrize("flags", [(), ("--async",)], ids=["direct", "async"])
def test_host_keeps_concurrent_clients_apart(
    flags: tuple[str, ...], programs: Path, host_model: Path, inputs: list[dict[str, Any]], stock: Stock
) -> None:
    requests = [tfserving_request(source, name="ranking") for source in inputs]
    expected = [stock(one) for one in inputs]
    with serving(programs, host_model, *flags) as host, host.channel() as channel:
        call = channel.unary_unary(PREDICT)

        def client(number: int) -> None:
            for i in range(60):
                choice = (number + i) % len(requests)
                assert_same_outputs(tfserving_outputs(call(requests[choice], timeout=60)), expected[choice])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(client, range(8)))


def test_host_maps_statuses_number_for_number(host: Host, inputs: list[dict[str, Any]], stock: Stock) -> None:
    good = tfserving_request(inputs[0], name="ranking")
    codes = grpc.StatusCode
    host.expect(b"\xff\xff", codes.INVALID_ARGUMENT)
    host.expect(good[:-3], codes.INVALID_ARGUMENT)
    host.expect(tfserving_request({"x": inputs[0]["x"]}), codes.INVALID_ARGUMENT, "'s'")
    host.expect(tfserving_request(inputs[0] | {"z": inputs[0]["x"]}), codes.INVALID_ARGUMENT, "'z'")
    host.expect(tfserving_request(inputs[0] | {"x": np.ones((1, 4), np.float32)}), codes.INVALID_ARGUMENT, "'x'")
    host.expect(tfserving_request(inputs[0] | {"x": np.ones((1, 3))}), codes.INVALID_ARGUMENT, "'x'")
    host.expect(tfserving_request(inputs[0], signature_name="absent"), codes.FAILED_PRECONDITION, "absent")
    host.expect(tfserving_request(inputs[0], name="other"), codes.NOT_FOUND, "other")
    host.expect(tfserving_request(inputs[0], version=8), codes.NOT_FOUND, "8")
    host.expect(good, codes.UNIMPLEMENTED, path="/tensorflow.serving.PredictionService/Classify")
    assert_same_outputs(tfserving_outputs(host.predict(good)), stock(inputs[0]))


def test_host_routes_by_model_name(
    programs: Path, host_model: Path, tiny_model: Path, inputs: list[dict[str, Any]], stock: Stock
) -> None:
    with serving(programs, host_model, "--model", f"tiny={tiny_model}") as host:
        assert_same_outputs(
            tfserving_outputs(host.predict(tfserving_request(inputs[1], name="ranking"))), stock(inputs[1])
        )
        outputs = tfserving_outputs(host.predict(tfserving_request({"x": inputs[1]["x"]}, name="tiny")))
        assert outputs["y"].shape == (2, 1)
        host.expect(
            tfserving_request(inputs[1], name="other"), grpc.StatusCode.NOT_FOUND, "expected one of ranking, tiny"
        )
        host.expect(b"\x0a\xff", grpc.StatusCode.INVALID_ARGUMENT, "model_spec")


def test_host_passes_deadlines_on_and_bounds_its_queue(
    programs: Path, host_model: Path, inputs: list[dict[str, Any]], stock: Stock
) -> None:
    config = '{"session_num": 1, "intra_op_parallelism_threads": 1}'
    good = tfserving_request(inputs[0], name="ranking")
    with serving(programs, host_model, "--config", config, "--max-in-flight", "1") as host:
        with in_flight(host, slow_request(2500), good) as slow:
            pass
        assert len(slow.result()) > 0
        assert_same_outputs(tfserving_outputs(host.predict(good)), stock(inputs[0]))
    with serving(programs, host_model, "--config", config) as host:
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(host.predict, slow_request(2500))
            # The only session is busy for more than a second: what comes then waits until its deadline.
            # A client that has not looked at its clock calls a stream that the server ends at the deadline cancelled.
            until_fails(host, good, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED, timeout=0.1)
            running.result()
        assert_same_outputs(tfserving_outputs(host.predict(good)), stock(inputs[0]))


@contextmanager
def in_flight(host: Host, slow: bytes, brief: bytes) -> Iterator[Future[bytes]]:
    """Hold a slow request in a host that takes one at a time."""

    def insist() -> bytes:
        while True:
            try:
                return host.predict(slow)
            except grpc.RpcError as failure:  # a brief one was in flight
                if failure.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(insist)
        # The brief ones go one after another, so only the slow one can be what is in their way.
        until_fails(host, brief, grpc.StatusCode.RESOURCE_EXHAUSTED, words="1 requests are in flight")
        yield running


def until_fails(host: Host, request: bytes, *codes: grpc.StatusCode, words: str = "", timeout: float = 60) -> None:
    """Send a request again and again until it fails, and check how."""
    end = time.monotonic() + 120
    with pytest.raises(grpc.RpcError) as failure:
        while time.monotonic() < end:
            host.predict(request, timeout)
    assert failure.value.code() in codes, failure.value.details()
    assert words in failure.value.details()


def test_host_ends_gracefully(programs: Path, host_model: Path, inputs: list[dict[str, Any]]) -> None:
    arguments = ["--shutdown-delay", "1s", "--max-in-flight", "1"]
    with serving(programs, host_model, *arguments) as host, host.channel() as channel:
        health = channel.unary_unary(HEALTH)
        assert health(b"", timeout=30) == SERVING
        service = b"PredictionService"
        assert health(bytes([0x0A, len(service)]) + service, timeout=30) == SERVING
        with in_flight(host, slow_request(3000), tfserving_request(inputs[0], name="ranking")) as slow:
            host.process.send_signal(signal.SIGTERM)
            until_not_serving(health)
            assert host.process.wait(120) == 0
        assert len(slow.result()) > 0
        with pytest.raises(grpc.RpcError) as failure:
            host.predict(b"", timeout=5)
        assert failure.value.code() == grpc.StatusCode.UNAVAILABLE


def until_not_serving(health: Callable[..., bytes]) -> None:
    """Ask for the health until it is what it becomes at the signal: it is told before the port is closed."""
    for _ in range(200):
        answer = health(b"", timeout=30)
        if answer == NOT_SERVING:
            return
        assert answer == SERVING
        time.sleep(0.005)
    pytest.fail("the host still says that it serves")


def test_host_says_why_it_does_not_start(programs: Path, host_model: Path, tmp_path: Path) -> None:
    for arguments, words in (
        ([], "--model: none given"),
        (["--model", "x"], "expected name=path"),
        (["--model", f"m={tmp_path}/absent"], f"{tmp_path}/absent"),
        (["--model", f"m={host_model}", "--config", '{"sesion_num": 1}'], "sesion_num"),
        (["--model", f"m={host_model}", "--config", "{"], "is not a JSON object"),
        (["--model", f"m={host_model}", "--listen", "127.0.0.1:99999"], "99999"),
    ):
        ended = run([programs / "grpc-example", *arguments])
        assert ended.returncode == 1
        assert words in ended.stderr


def test_module_builds_with_pkg_config(go: Callable[..., str], tmp_path: Path) -> None:
    require("pkg-config")
    write_pkg_config(tmp_path)
    program = tmp_path / "drop-in-example"
    environment = {"CGO_CFLAGS": "", "CGO_LDFLAGS": "", "PKG_CONFIG_PATH": str(tmp_path)}
    go("build", "-tags", "pkgconfig", "-o", program, "./cmd/drop-in-example", **environment)
    assert "usage: drop-in-example" in run([program]).stderr


def test_drop_in_example_answers_as_tensorflow_does(
    programs: Path, host_model: Path, inputs: list[dict[str, Any]], stock: Stock, tmp_path: Path
) -> None:
    request, response, config = tmp_path / "request", tmp_path / "response", tmp_path / "config.json"
    request.write_bytes(encode(inputs[4]))
    config.write_text(json.dumps(drop_in_config(host_model)))
    text = run_ok([programs / "drop-in-example", f"@{config}", request, response])
    assert '"signature_name":"serving_default"' in text.replace(" ", "")
    assert_same_outputs(decode(response.read_bytes()), stock(inputs[4]))
    request.write_bytes(b"\xff")
    ended = run([programs / "drop-in-example", config.read_text(), request])
    assert ended.returncode == 1
    assert "500: [TensorFlow]" in ended.stderr
    ended = run([programs / "drop-in-example", "{}", request])
    assert ended.returncode == 1
    assert "initialize: state -1" in ended.stderr
