# SPDX-License-Identifier: Apache-2.0
"""HandleReloadConfigRequest: switched off, forwarded, and without a proxy."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from tensorflow_serving.apis import model_management_pb2, model_service_pb2_grpc

from helpers.hosts.served_hosts import ServedHost

TOKEN = "open sesame"


class Admin(http.server.ThreadingHTTPServer):
    """Stands in for the proxy's admin API, and records the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.told: list[tuple[str, str, bytes]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Answering(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        told: Admin = self.server  # type: ignore[assignment]
        told.told.append((self.path, self.headers["content-type"], body))
        good = self.headers["authorization"] == f"Bearer {TOKEN}"
        refusal = {"error": {"status": "UNAUTHENTICATED", "message": "token: a wrong one"}}
        answer = json.dumps({"models": []} if good else refusal).encode()
        self.send_response(200 if good else 401)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def admin() -> Iterator[Admin]:
    server = Admin()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture(scope="module")
def forwarding(start_host, admin: Admin, token_file: Path) -> Iterator[ServedHost]:
    """A host that forwards."""
    url = f"http://127.0.0.1:{admin.server_address[1]}"
    with start_host({}, ("--allow-reload-rpc", "--admin", url, "--token-file", str(token_file))) as host:
        yield host


def _reload(host: ServedHost) -> model_management_pb2.ReloadConfigResponse:
    request = model_management_pb2.ReloadConfigRequest()
    request.config.model_config_list.config.add(name="ranking", base_path="/models/ranking")
    with grpc.insecure_channel(host.grpc) as channel:
        return model_service_pb2_grpc.ModelServiceStub(channel).HandleReloadConfigRequest(request, timeout=30)


def test_reload_is_off_by_default(host: ServedHost) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        _reload(host)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_reload_requests_are_forwarded_unchanged(forwarding: ServedHost, admin: Admin) -> None:
    assert _reload(forwarding).status.error_code == 0
    path, kind, body = admin.told[-1]
    asked, _, seconds = path.partition("?wait=")
    assert (asked, kind) == ("/v1/reload", "application/x-protobuf")
    # The client sends its 30 seconds rounded up to a tenth of a second.
    assert 20 < float(seconds) <= 30.1, "as long as the client waits"
    told = model_management_pb2.ReloadConfigRequest.FromString(body)
    assert told.config.model_config_list.config[0].name == "ranking"


def test_refusal_is_passed_on(forwarding: ServedHost, token_file: Path) -> None:
    token_file.write_text("another\n")
    try:
        with pytest.raises(grpc.RpcError) as caught:
            _reload(forwarding)
    finally:
        token_file.write_text(f"{TOKEN}\n")
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "token" in caught.value.details()


def test_reload_while_the_proxy_is_down_is_unavailable(start_host, token_file: Path) -> None:
    # Port 9 of this machine: nobody listens there.
    arguments = ("--allow-reload-rpc", "--admin", "http://127.0.0.1:9", "--token-file", str(token_file))
    with start_host({}, arguments) as host:
        with pytest.raises(grpc.RpcError) as caught:
            _reload(host)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
