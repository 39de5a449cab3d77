# SPDX-License-Identifier: Apache-2.0
"""Hostile or broken clients get a clear status and do not affect other clients."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import resource
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from helpers.hosts.host_requests import ranking_body
from helpers.hosts.served_hosts import ServedHost, served
from helpers.system.waiting import wait_until

READ_SECONDS = 2
MEGABYTE = 1024 * 1024

UNARY = [
    f"/tensorflow.serving.PredictionService/{name}"
    for name in ("Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata")
] + ["/tensorflow.serving.ModelService/GetModelStatus"]
UNARY += [f"/inference.GRPCInferenceService/{name}" for name in ("ModelInfer", "ModelMetadata", "ModelReady")]
JSON = [
    *(f"/v1/models/ranking:{name}" for name in ("predict", "classify", "regress")),
    "/v2/models/ranking/infer",
]
GARBAGE = [b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05ab", b"\x0b\x0c", bytes(range(256))]
NO_JSON = [
    b"",
    b"{",
    b"[" * 100_000,
    b'{"instances":' + b"[" * 100_000,
    b"\xff\xfe",
    b'{"inputs": NaN}',
    b'"x"',
    b"null",
]


@pytest.fixture(scope="module")
def small(start_host, served_models) -> Iterator[ServedHost]:
    """A host with narrow limits."""
    arguments = ("--max-message-mb", "1", "--read-seconds", str(READ_SECONDS), "--max-connections", "1500")
    with start_host({"ranking": served_models["ranking"]}, arguments) as host:
        yield host
        _check_serves(host)


def _check_serves(host: ServedHost) -> None:
    answer = httpx.post(f"http://{host.rest}/api/predict/ranking", content=ranking_body(), timeout=60)
    assert answer.status_code == 200, answer.text
    with grpc.insecure_channel(host.grpc) as channel:
        live = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=60)
    assert live == b"\x08\x01"


def _states(actual: dict[str, Any]) -> set[str]:
    """Return the states that versions of `ranking` have."""
    return {version["state"] for version in actual["models"].get("ranking", {"versions": {}})["versions"].values()}


def _descriptors(host: ServedHost) -> int:
    return len(os.listdir(f"/proc/{host.pid}/fd"))


def _connect(address: str) -> socket.socket:
    name, _, port = address.rpartition(":")
    return socket.create_connection((name, int(port)), timeout=60)


def _read_all(client: socket.socket) -> bytes:
    """Read until the other side closes."""
    data = b""
    try:
        while piece := client.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return data


def test_idle_connections_leave_descriptors_to_models(host_kind: str, served_models: Any, tmp_path: Path) -> None:
    """With as many clients as possible on all ports, a version can still be loaded and served."""
    # Longer than it waits for what these clients do not send.
    arguments = ("--health-port", "0", "--read-seconds", "300")
    with served(host_kind, tmp_path, {}, arguments, open_files=240) as host:
        before = _descriptors(host)
        with ExitStack() as stack:
            for address in [host.rest, host.grpc, host.actual()["endpoints"]["health"]] * 150:
                with contextlib.suppress(OSError):
                    stack.enter_context(_connect(address))
            wait_until(lambda: _descriptors(host) > before + 20)
            host.desire({"ranking": served_models["ranking"]})
            host.wait_for(lambda state: _states(state) == {"ready"})
        wait_until(lambda: _descriptors(host) < before + 20)
        _check_serves(host)


@pytest.mark.parametrize("path", UNARY)
def test_malformed_messages_are_refused(channel: grpc.Channel, path: str) -> None:
    ask = channel.unary_unary(path)
    for garbage in GARBAGE:
        if path.endswith("/ModelReady") and garbage == b"\x0b\x0c":
            continue  # well-formed, with an unknown field: a model without a name is not ready
        with pytest.raises(grpc.RpcError) as caught:
            ask(garbage, timeout=60)
        assert caught.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), garbage
        assert caught.value.details()


def test_unknown_methods_are_unimplemented(channel: grpc.Channel) -> None:
    service = "tensorflow.serving.PredictionService"
    for path, words in (
        (f"/{service}/Absent", f"unknown method Absent for service {service}"),
        ("/grpc.health.v1.Health/Absent", "unknown method Absent for service grpc.health.v1.Health"),
        ("/x.Y/Z", "unknown service x.Y"),
        ("/a/b/c", "unknown service a/b"),
        ("/", ""),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(path)(b"", timeout=60)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert words in caught.value.details()


@pytest.mark.parametrize(
    "method", ["health.v1.Health/Check", "health.v1.Health/Watch", "reflection.v1.ServerReflection"]
)
def test_malformed_health_and_reflection_requests_are_refused(channel: grpc.Channel, method: str) -> None:
    path = f"/grpc.{method}" + ("" if "/" in method else "/ServerReflectionInfo")
    for garbage in (b"\xff\xff", b"\x0a\x05a", b"\x1f\x8b\x08garbage"):
        with pytest.raises(grpc.RpcError) as caught:
            next(iter(channel.stream_stream(path)(iter([garbage]), timeout=60)))
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        assert not re.search(r"<class|Unexpected|Traceback|b'", caught.value.details())


def test_header_length_is_ignored_over_grpc(channel: grpc.Channel) -> None:
    ready = channel.unary_unary("/inference.GRPCInferenceService/ServerReady")
    assert ready(b"", metadata=[("inference-header-content-length", "none")], timeout=60) == b"\x08\x01"


@pytest.mark.parametrize("path", JSON)
def test_malformed_json_is_refused(http: httpx.Client, path: str) -> None:
    for garbage in NO_JSON:
        answer = http.post(path, content=garbage)
        assert answer.status_code == 400, (garbage[:20], answer.text)
        assert list(answer.json()) == ["error"]


def test_malformed_raw_requests_are_refused(http: httpx.Client) -> None:
    for garbage in GARBAGE:
        assert http.post("/api/predict/ranking", content=garbage).status_code == 400


@pytest.mark.parametrize("place", ["model", "label"])
def test_long_names_are_refused_with_a_short_message(http: httpx.Client, place: str) -> None:
    name = "n" * 10_000
    path = f"/v1/models/{name}:eas" if place == "model" else f"/v1/models/ranking/labels/{name}:eas"
    answer = http.post(path, content=ranking_body())
    assert answer.status_code in (400, 404)
    assert len(answer.content) < 2000


def test_giant_grpc_messages_are_refused(small: ServedHost) -> None:
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(small.grpc, options) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(UNARY[0])(bytes(3 * MEGABYTE), timeout=60)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_compressed_grpc_bombs_are_refused(small: ServedHost) -> None:
    with grpc.insecure_channel(small.grpc, compression=grpc.Compression.Gzip) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(UNARY[0])(bytes(64 * MEGABYTE), timeout=60)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_giant_bodies_are_refused(small: ServedHost) -> None:
    url = f"http://{small.rest}/v1/models/ranking:predict"
    assert httpx.post(url, content=bytes(MEGABYTE + 1), timeout=60).status_code == 413
    # Of unknown length, a piece at a time.
    answer = _post_in_pieces(small, (bytes(65536) for _ in range(40)))
    assert b" 413 " in answer.split(b"\r\n", 1)[0]


def _post_in_pieces(host: ServedHost, pieces: Iterator[bytes]) -> bytes:
    with _connect(host.rest) as client:
        client.sendall(b"POST /v1/models/ranking:predict HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            for piece in pieces:
                client.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        except ConnectionError:
            pass
        return _read_all(client)


def test_bodies_with_a_giant_declared_length_are_refused(small: ServedHost) -> None:
    with _connect(small.rest) as client:
        client.sendall(b"POST /v1/models/ranking:predict HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999\r\n\r\n")
        assert b" 413 " in _read_all(client).split(b"\r\n", 1)[0]


def test_compressed_bombs_are_refused(small: ServedHost) -> None:
    body = gzip.compress(bytes(64 * MEGABYTE))
    assert len(body) < MEGABYTE
    headers = {"content-encoding": "gzip"}
    answer = httpx.post(f"http://{small.rest}/v1/models/ranking:predict", content=body, headers=headers, timeout=60)
    assert answer.status_code == 413


PACKED = gzip.compress(b"{}", mtime=0)


@pytest.mark.parametrize("body", [b"no gzip", PACKED[:-3], PACKED + b"more"])
def test_damaged_compression_is_refused(small: ServedHost, body: bytes) -> None:
    headers = {"content-encoding": "gzip"}
    answer = httpx.post(f"http://{small.rest}/v1/models/ranking:predict", content=body, headers=headers, timeout=60)
    assert answer.status_code == 400


def test_clients_with_a_slow_head_are_disconnected(small: ServedHost) -> None:
    """A client that sends its head byte by byte is disconnected."""
    with _connect(small.rest) as client:
        began = time.monotonic()
        try:
            for byte in b"GET /healthz HTTP/1.1\r\nhost: " + b"x" * 1000:
                client.sendall(bytes([byte]))
                time.sleep(0.1)
            pytest.fail("still connected")
        except ConnectionError:
            pass
        assert time.monotonic() - began < 12 * READ_SECONDS


def test_clients_with_a_slow_second_head_are_disconnected(small: ServedHost) -> None:
    """The same holds for the second request of a connection."""
    with _connect(small.rest) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /he")
        began = time.monotonic()
        assert _read_all(client).count(b" 200 ") == 1
        assert time.monotonic() - began < 12 * READ_SECONDS


def test_slow_bodies_time_out(small: ServedHost) -> None:
    def pieces() -> Iterator[bytes]:
        until = time.monotonic() + 3 * READ_SECONDS
        while time.monotonic() < until:
            yield b"x"
            time.sleep(0.1)

    began = time.monotonic()
    answer = _post_in_pieces(small, pieces())
    assert time.monotonic() - began < 15 * READ_SECONDS
    assert answer == b"" or b" 408 " in answer.split(b"\r\n", 1)[0]


def test_endless_heads_are_cut_off(small: ServedHost) -> None:
    with _connect(small.rest) as client:
        sent = 0
        try:
            client.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: ")
            while sent < 50 * MEGABYTE:
                client.sendall(b"y" * 65536)
                sent += 65536
        except ConnectionError:
            pass
    assert sent < 20 * MEGABYTE


@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"\0" * 1000,
    ],
    ids=["tls", "http2", "version", "length", "both-lengths", "zeros"],
)
def test_bytes_that_are_not_http_are_refused(small: ServedHost, text: bytes) -> None:
    with _connect(small.rest) as client:
        client.sendall(text)
        client.shutdown(socket.SHUT_WR)
        answer = _read_all(client)
    assert answer == b"" or answer.split(b" ", 2)[1] in (b"400", b"404", b"405", b"505")


def test_clients_that_disconnect_midway_do_no_harm(small: ServedHost) -> None:
    for cut in (10, 60, 100):
        head = b"POST /api/predict/ranking HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n"
        with _connect(small.rest) as client:
            client.sendall((head + ranking_body())[:cut])
    _check_serves(small)


def test_grpc_calls_without_a_message_end(small: ServedHost) -> None:
    """Calls without a message, and calls whose client never closes its side."""
    with grpc.insecure_channel(small.grpc) as channel:
        none = channel.stream_unary(UNARY[0])
        for _ in range(20):
            with pytest.raises(grpc.RpcError) as caught:
                none(iter(()), timeout=60)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        release = threading.Event()

        def never() -> Iterator[bytes]:
            release.wait(60)
            yield b""

        try:
            calls = [channel.stream_unary(UNARY[0]).future(never(), timeout=60) for _ in range(50)]
            _check_serves(small)
            # Nor are they kept for ever.
            codes = {call.exception(25 * READ_SECONDS).code() for call in calls}
            assert codes == {grpc.StatusCode.DEADLINE_EXCEEDED}
        finally:
            release.set()


@pytest.mark.parametrize("text", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 4096])
def test_bytes_that_are_not_grpc_are_refused(small: ServedHost, text: bytes) -> None:
    with _connect(small.grpc) as client:
        client.sendall(text)
        _check_serves(small)


def test_a_plain_text_server_refuses_tls(small: ServedHost) -> None:
    context = ssl.create_default_context()
    for address in (small.rest, small.grpc):
        with _connect(address) as client, pytest.raises((ssl.SSLError, OSError)):
            context.wrap_socket(client, server_hostname="x")
    _check_serves(small)


@pytest.mark.parametrize("side", ["rest", "grpc"])
def test_a_thousand_idle_connections_do_not_stop_serving(small: ServedHost, side: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2048:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with ExitStack() as stack:
        idle = [stack.enter_context(_connect(getattr(small, side))) for _ in range(1000)]
        _check_serves(small)
        if side == "rest":
            # They have asked for nothing, so they are closed in the end.
            wait_until(lambda: idle[0].recv(1) == b"" and idle[-1].recv(1) == b"")
    _check_serves(small)


def test_connections_above_the_limit_are_closed(small: ServedHost) -> None:
    with ExitStack() as stack:
        open_ones = [stack.enter_context(_connect(small.rest)) for _ in range(1700)]
        # Those beyond the limit are closed at once, before any timeout.
        assert open_ones[-1].recv(1) == b""
    wait_until(lambda: _answers(small))


def _answers(host: ServedHost) -> bool:
    try:
        return httpx.get(f"http://{host.rest}/healthz", timeout=60).status_code == 200
    except httpx.HTTPError:
        return False
