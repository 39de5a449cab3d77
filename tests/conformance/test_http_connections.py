# SPDX-License-Identifier: Apache-2.0
"""Connections and heads of HTTP requests: methods, lengths, headers, clients that close their sending side."""

from __future__ import annotations

import json
import socket
import time

import httpx
import pytest

from helpers.hosts.host_requests import in_flight, ranking_body
from helpers.hosts.served_hosts import ServedHost
from helpers.models.slow_requests import ENDLESS, slow_request
from helpers.system.waiting import wait_until

GET_PATHS = ["/healthz", "/readyz", "/metrics", "/v1/models/ranking", "/v1/models/ranking/metadata"]
GET_PATHS += ["/v2", "/v2/health/live", "/v2/models/ranking", "/v2/models/ranking/ready"]
PREDICT = "/v1/models/ranking:predict"
ROWS = {"instances": [[1.0, 2.0, 3.0]]}


def _connect(host: ServedHost) -> socket.socket:
    name, _, port = host.rest.rpartition(":")
    return socket.create_connection((name, int(port)), timeout=60)


def _read_all(client: socket.socket) -> bytes:
    data = b""
    while piece := client.recv(65536):
        data += piece
    return data


def _post(path: str, body: bytes, *headers: bytes) -> bytes:
    lines = [b"POST " + path.encode() + b" HTTP/1.1", b"host: x", b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.mark.parametrize("path", GET_PATHS)
def test_head_is_answered_as_get_without_the_body(http: httpx.Client, host: ServedHost, path: str) -> None:
    head, get = http.head(path), http.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"") == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    if path != "/metrics":
        assert head.headers["content-length"] == str(len(get.content))
    # Nor is there a body on the wire that would be taken for the next answer.
    with _connect(host) as client:
        client.sendall(f"HEAD {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        assert _read_all(client).endswith(b"\r\n\r\n")


def test_refused_methods_name_the_allowed_ones(http: httpx.Client) -> None:
    for method, path, allowed in (("HEAD", PREDICT, "POST"), ("DELETE", "/healthz", "GET, HEAD")):
        answer = http.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize("value", ["soon", "-1", "+5", "1.5", "1_000", "99999999999", "\u0663", ""])
def test_invalid_timeouts_are_refused(http: httpx.Client, value: str) -> None:
    answer = http.post(PREDICT, json=ROWS, headers=[("x-timeout-ms", value.encode())])
    assert (answer.status_code, answer.json()) == (400, {"error": f"x-timeout-ms: '{value}', expected milliseconds"})


@pytest.mark.parametrize("value", ["high", "1_000", "9999999999", "0x1", "1.5", ""])
def test_invalid_priorities_are_refused(http: httpx.Client, value: str) -> None:
    answer = http.post(PREDICT, json=ROWS, headers={"x-priority": value})
    assert answer.status_code == 400
    assert answer.json() == {"error": f"x-priority: '{value}', expected an integer of 32 bits"}


@pytest.mark.parametrize("headers", [{"x-timeout-ms": "60000"}, {"x-priority": "+7"}])
def test_valid_headers_are_accepted(http: httpx.Client, headers: dict[str, str]) -> None:
    assert http.post(PREDICT, json=ROWS, headers=headers).status_code == 200


def test_expired_timeouts_end_requests(http: httpx.Client) -> None:
    answer = http.post(PREDICT, json=ROWS, headers={"x-timeout-ms": "0"})
    told = {"error": "request: the deadline passed before it was answered"}
    assert (answer.status_code, answer.json()) == (504, told)


@pytest.mark.parametrize("order", [0, 1])
def test_request_with_two_lengths_is_refused(host: ServedHost, order: int) -> None:
    """Bytes that a reverse proxy takes for a body must not become a request of another client."""
    body = json.dumps(ROWS).encode()
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    lengths = [b"content-length: %d" % len(chunks), b"Transfer-Encoding: chunked"]
    head = b"\r\n".join([f"POST {PREDICT} HTTP/1.1".encode(), b"host: x", *lengths[:: -1 if order else 1], b"", b""])
    with _connect(host) as client:
        client.sendall(head + chunks)
        answer = _read_all(client)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    # One length alone is good, one request after the other on a connection as well.
    with _connect(host) as client:
        client.sendall(_post(PREDICT, body) + head.replace(lengths[0] + b"\r\n", b"") + chunks)
        client.sendall(_post(PREDICT, body, b"connection: close"))
        assert _read_all(client).count(b"HTTP/1.1 200 ") == 3


@pytest.mark.parametrize(
    "head",
    [
        b"POST %s HTTP/1.0\r\nhost: x\r\nconnection: keep-alive\r\ntransfer-encoding: chunked",
        b"POST %s HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ncontent-length:\r\n 9",
        b"POST %s HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ncontent-length: 9, 9",
        b"POST %s HTTP/1.1\r\ntransfer-encoding: chunked",
    ],
    ids=["chunks of 1.0", "folded", "two numbers", "no host"],
)
def test_ambiguous_requests_are_refused(host: ServedHost, head: bytes) -> None:
    """Also after a valid request, followed by an empty line."""
    body = json.dumps(ROWS).encode()
    wrong = head % PREDICT.encode() + b"\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    with _connect(host) as client:
        client.sendall(wrong)
        answer = _read_all(client)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    with _connect(host) as client:
        client.sendall(_post(PREDICT, body) + b"\r\n")
        answer = client.recv(65536)
        client.sendall(wrong)
        # The Go host closes the connection without a word.
        answer += _read_all(client)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 ") - answer.count(b"HTTP/1.1 400 ") == 1


def test_wrongly_escaped_paths_are_refused(host: ServedHost) -> None:
    for path in (b"/v1/models/%zz", b"/v1/models/a%2", b"/v2/models/%"):
        with _connect(host) as client:
            client.sendall(b"GET " + path + b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert _read_all(client).startswith(b"HTTP/1.1 400 "), path


def test_spaces_after_header_values_are_ignored(host: ServedHost) -> None:
    body = json.dumps(ROWS).encode()
    padded = [b"x-timeout-ms: \t60000 \t", b"x-priority: 5 ", b"content-encoding: identity ", b"connection: close"]
    with _connect(host) as client:
        client.sendall(_post(PREDICT, body, *padded))
        assert _read_all(client).startswith(b"HTTP/1.1 200 ")


def test_client_that_closes_its_sending_side_is_answered(host: ServedHost) -> None:
    # The second kind takes some 200 ms.
    quick, slow = _post("/api/predict/ranking", ranking_body()), _post("/api/predict/slow", slow_request(100))
    answered = {quick: 0, slow: 0}
    for request in [quick] * 20 + [slow] * 20:
        if request == slow and answered[slow]:
            break
        with _connect(host) as client:
            began = time.monotonic()
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            answer = _read_all(client)
            seconds = time.monotonic() - began
        # Nobody waits for more than half a second, which is little on a busy machine.
        assert answer.startswith(b"HTTP/1.1 200 ") or (answer == b"" and seconds > 0.4)
        answered[request] += answer != b""
        # And the connection is closed then, not kept for 20 s for another request.
        assert seconds < 15
    assert all(answered.values())


def test_client_that_is_gone_is_not_waited_for(host: ServedHost) -> None:
    wait_until(lambda: in_flight(host) == 0)
    endless = _post("/api/predict/slow", slow_request(ENDLESS))
    with _connect(host) as running:
        running.sendall(endless)
        wait_until(lambda: in_flight(host) == 1)
        with _connect(host) as waiting:
            waiting.sendall(endless)
            wait_until(lambda: in_flight(host) == 2)
        wait_until(lambda: in_flight(host) == 1)
    wait_until(lambda: in_flight(host) == 0)


def test_client_that_closes_its_side_in_the_middle_is_not_waited_for(host: ServedHost) -> None:
    whole = _post("/api/predict/ranking", ranking_body())
    for cut in (5, 40, len(whole) - 1):
        with _connect(host) as client:
            client.sendall(whole[:cut])
            client.shutdown(socket.SHUT_WR)
            began = time.monotonic()
            assert not _read_all(client).startswith(b"HTTP/1.1 200 ")
            assert time.monotonic() - began < 15
