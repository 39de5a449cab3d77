# SPDX-License-Identifier: Apache-2.0
"""Access to the API: tokens, local requests without one, pages of other sites, and hostile clients."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from helpers.proxies.proxy_runs import ProxyThread
from helpers.system.certificates import make_authority
from serving_proxy.api import connection_limits, middleware
from serving_proxy.errors import InvalidError, UnauthenticatedError
from serving_proxy.serve.settings import ServeSettings

TOKEN = "a-token-that-nobody-guesses"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyThread]:
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "token").write_text(TOKEN + "\n", encoding="utf-8")
    with ProxyThread(folder, "--token-file", str(folder / "token"), host="none") as running:
        yield running


def ask(proxy: ProxyThread, path: str = "/v1/status", method: str = "GET", **values: object) -> httpx.Response:
    return httpx.request(method, proxy.url + path, trust_env=False, timeout=60, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN[:-1]}"]
)
@pytest.mark.parametrize("path", ["/v1/status", "/v1/models/x/rollback", "/metrics", "/openapi.json", "/unknown"])
def test_requests_without_the_token_are_refused(guarded: ProxyThread, header: str | None, path: str) -> None:
    headers = {} if header is None else {"Authorization": header}
    answer = ask(guarded, path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["error"]["status"] == "UNAUTHENTICATED"


def test_requests_with_the_token_are_served(guarded: ProxyThread) -> None:
    with guarded.client(TOKEN) as client:
        assert client.status()["models"] == []
    with guarded.client("x") as client, pytest.raises(UnauthenticatedError):
        client.status()
    assert ask(guarded, "/healthz").status_code == 200


def test_without_a_token_only_local_requests_are_served(open_proxy: ProxyThread) -> None:
    port = urlsplit(open_proxy.url).port
    for host in ("127.0.0.1", f"127.0.0.1:{port}", "localhost", "[::1]:8502"):
        assert ask(open_proxy, headers={"Host": host}).status_code == 200, host
    # A name of somebody else that leads here, as a page in a browser can make one.
    for host in ("evil.example", f"evil.example:{port}", "192.0.2.1", "127.0.0.1.evil.example"):
        answer = ask(open_proxy, headers={"Host": host})
        assert (answer.status_code, answer.json()["error"]["status"]) == (403, "PERMISSION_DENIED"), host


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
def test_pages_of_other_sites_are_refused(open_proxy: ProxyThread, origin: str) -> None:
    answer = ask(open_proxy, "/v1/models/x/rollback", "POST", headers={"Origin": origin})
    assert answer.status_code == 403
    own = {"Origin": open_proxy.url}
    assert ask(open_proxy, "/v1/models/x/rollback", "POST", headers=own).status_code == 404


def test_form_bodies_are_refused(open_proxy: ProxyThread) -> None:
    body = json.dumps({"version": 3})
    answer = ask(open_proxy, "/v1/models/x/promote", "POST", content=body, headers={"Content-Type": "text/plain"})
    assert answer.status_code == 400


@pytest.mark.parametrize("chunked", [False, True])
def test_giant_bodies_are_refused(open_proxy: ProxyThread, chunked: bool) -> None:
    body = b'{"weights": {' + b" " * (middleware.MOST_BODY_BYTES + 1)
    pieces = (body[place : place + 65536] for place in range(0, len(body), 65536))
    headers = {"Content-Type": "application/json"}
    try:
        answer = ask(open_proxy, "/v1/models/x/traffic", "PUT", content=pieces if chunked else body, headers=headers)
    except httpx.TransportError:
        assert not chunked  # it was closed while we were sending
        return
    assert answer.status_code == 413
    assert answer.json()["error"]["message"].startswith("body: ")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"version": "x"}', b'{"version": 1e400}', b"\xff", b"[" * 10_000]
)
def test_malformed_bodies_are_refused(open_proxy: ProxyThread, body: bytes) -> None:
    answer = ask(open_proxy, "/v1/models/x/promote", "POST", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["status"] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/v1/unknown", 404),
        ("GET", "/v1/models/..%2f..%2fx/versions", 404),
        ("PATCH", "/v1/status", 405),
        ("GET", "/v1/models/a b/versions", 400),
    ],
)
def test_unknown_paths_are_not_found(open_proxy: ProxyThread, method: str, path: str, code: int) -> None:
    answer = ask(open_proxy, path, method)
    assert answer.status_code == code
    assert set(answer.json()["error"]) == {"status", "message"}


def test_methods_of_a_path_are_named(open_proxy: ProxyThread) -> None:
    assert ask(open_proxy, "/v1/jobs/1", "OPTIONS").headers["allow"] == "DELETE, GET"
    assert ask(open_proxy, "/v1/status", "POST").headers["allow"] == "GET"


@pytest.mark.parametrize("body", ['{"paused": 0}', '{"paused": "yes"}', '{"pause": true}'])
def test_almost_valid_requests_are_refused(open_proxy: ProxyThread, body: str) -> None:
    headers = {"Content-Type": "application/json"}
    assert ask(open_proxy, "/v1/models/x/pause", "POST", content=body, headers=headers).status_code == 400


def connect(proxy: ProxyThread, data: bytes) -> socket.socket:
    place = urlsplit(proxy.url)
    made = socket.create_connection((place.hostname, place.port), timeout=30)
    made.sendall(data)
    return made


def test_clients_that_stop_sending_are_disconnected(open_proxy: ProxyThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "HEAD_S", 1.0)
    monkeypatch.setattr(middleware, "_BODY_S", 1.0)
    head = b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    body = b'POST /v1/models/x/promote HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n{"version": '
    silent, slow, stuck = connect(open_proxy, b""), connect(open_proxy, head), connect(open_proxy, body)
    again = connect(open_proxy, head + b"\r\n")
    assert b"200 OK" in again.recv(65536)
    again.sendall(head)
    started = time.monotonic()
    assert silent.recv(100) == b""
    assert slow.recv(100) == b""
    assert b"408" in stuck.recv(65536).split(b"\r\n")[0]
    while again.recv(65536):
        pass
    # Sooner than by the usual times.
    assert time.monotonic() - started < 9
    assert ask(open_proxy).status_code == 200


def test_a_thousand_idle_connections_do_not_block_other_clients(
    open_proxy: ProxyThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "HEAD_S", 0.5)
    idle = [connect(open_proxy, b"") for _ in range(400)]
    assert ask(open_proxy).status_code == 200
    for sock in idle:
        assert sock.recv(10) == b""
        sock.close()
    assert ask(open_proxy).status_code == 200


def settings(tmp_path: Path, **values: object) -> ServeSettings:
    return ServeSettings(state_dir=tmp_path, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_port_that_others_can_reach_needs_a_token_and_tls(tmp_path: Path, address: str) -> None:
    (tmp_path / "token").write_text(TOKEN, encoding="utf-8")
    for given in ({}, {"token_file": tmp_path / "token"}):
        with pytest.raises(
            InvalidError, match=r"reachable from other machines, .* in clear text, expected --admin-tls-cert"
        ):
            settings(tmp_path, admin_address=address, **given).check()
    with pytest.raises(InvalidError, match=r"--admin-auth none: with --admin-address .*, expected an address of this"):
        settings(tmp_path, admin_address=address, admin_auth="none").check()
    made = make_authority(tmp_path, "own")
    for prefix in ("", "admin_"):
        pair = {f"{prefix}tls_cert": made.chain, f"{prefix}tls_key": made.key}
        settings(tmp_path, admin_address=address, **pair).check()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_a_loopback_port_needs_no_tls(tmp_path: Path, address: str) -> None:
    settings(tmp_path, admin_address=address).check()
