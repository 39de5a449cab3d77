# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import serving_proxy
from serving_proxy import Client
from serving_proxy.errors import (
    BY_STATUS,
    InvalidError,
    LateError,
    PreconditionError,
    ProxyError,
    UnavailableError,
    from_status,
)


def answering(text: bytes) -> str:
    """Answer one request with these bytes; return the server's URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with listener, listener.accept()[0] as connection:
            connection.recv(65536)
            connection.sendall(text)

    threading.Thread(target=answer, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\noops",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
        b"not HTTP at all\r\n\r\n",
        b"",
    ],
)
def test_a_server_that_is_not_a_proxy_is_unavailable(text: bytes) -> None:
    with Client(answering(text)) as client, pytest.raises(UnavailableError, match="expected a proxy"):
        client.status()


@pytest.mark.parametrize(("code", "phrase"), [(404, "Not Found"), (405, "Method Not Allowed")])
def test_a_verb_that_an_earlier_proxy_does_not_have_is_named(code: int, phrase: str) -> None:
    body = f'{{"error": {{"status": "NOT_FOUND", "message": "{phrase}"}}}}'
    url = answering(f"HTTP/1.1 {code} {phrase}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    with Client(url) as client, pytest.raises(PreconditionError, match=r"^GET /v1/workload: not known to the proxy"):
        client.workload()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://[::1", "gopher://x", "127.0.0.1"])
def test_a_missing_server_is_unavailable(url: str) -> None:
    with pytest.raises(UnavailableError, match="expected a proxy"), Client(url) as client:
        client.status()


def test_client_waits_for_a_proxy_that_is_starting() -> None:
    with socket.socket() as listener:
        # Nobody listens yet: connections are refused.
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Client(url) as client, pytest.raises(UnavailableError, match="refused, expected a proxy"):
            client.status()

        def start() -> None:
            listener.listen()
            with listener.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"pid": 17}')

        said: list[str] = []
        threading.Timer(1.5, start).start()
        with Client(url, start_timeout=60, told=said.append) as client:
            assert client.status() == {"pid": 17}
        assert said == [f"{url}: connection refused, waiting 60 s for a proxy to start"]


def test_client_waits_only_after_a_refused_connection() -> None:
    begun = time.monotonic()
    text = b"not HTTP at all\r\n\r\n"
    for url in (answering(text), answering(text).replace("http", "https")):
        with Client(url, start_timeout=60) as client, pytest.raises(UnavailableError, match="expected a proxy"):
            client.status()
    assert time.monotonic() - begun < 30


def test_a_server_that_does_not_respond_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.2)
        with client, pytest.raises(LateError):
            client.status()


def test_every_status_has_its_exception() -> None:
    for status, kind in BY_STATUS.items():
        error = from_status(status, "message")
        assert type(error) is kind
        assert str(error) == "message"
        assert isinstance(error, ProxyError)
    assert type(from_status("NO_SUCH_STATUS", "x")) is ProxyError
    assert issubclass(BY_STATUS["NOT_FOUND"], LookupError)
    assert issubclass(BY_STATUS["INVALID_ARGUMENT"], ValueError)


def test_importing_the_package_needs_no_dependency() -> None:
    code = (
        "import sys, serving_proxy as it; print('httpx' in sys.modules, 'fastapi' in sys.modules, 'Client' in dir(it))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert answer.stdout.split() == ["False", "False", "True"]
    with pytest.raises(AttributeError, match="no attribute 'Server'"):
        _ = serving_proxy.Server


@pytest.mark.parametrize("name", ["a/b", "a?b", "", "..", "a b"])
def test_what_cannot_be_a_name_is_refused(name: str) -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(InvalidError, match="expected letters, digits"):
        client.versions(name)
