# SPDX-License-Identifier: Apache-2.0
"""A client of a proxy on standby asks the proxy that leads."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from serving_proxy import Client
from serving_proxy.errors import InvalidError, UnavailableError

TOKEN = "a-token-of-two-proxies"


class Server(ThreadingHTTPServer):
    """Answers each request, or names a leader; keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.leader: str | None = None
        self.received: list[tuple[str, str | None, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server.received.append((f"{self.command} {self.path}", self.headers.get("Authorization"), body))
        text = json.dumps(
            {"error": {"status": "UNAVAILABLE", "message": "on standby"}} if server.leader else {"pid": 7}
        )
        self.send_response(503 if server.leader else 200)
        if server.leader:
            self.send_header("x-proxy-leader", server.leader)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    made = Server(), Server()
    for server in made:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    made[0].leader = made[1].url
    yield made
    for server in made:
        server.shutdown()
        server.server_close()


def test_request_goes_to_the_leader_with_its_body_and_token(servers: tuple[Server, Server]) -> None:
    standby, leader = servers
    with Client(standby.url, TOKEN) as client:
        assert client.status() == {"pid": 7}
        client.traffic("ranking", {2: 10.0})
    assert leader.received == standby.received
    assert leader.received[1] == (
        "PUT /v1/models/ranking/traffic", f"Bearer {TOKEN}", b'{"weights":{"2":10.0}}'
    )  # fmt: skip


def test_only_one_other_proxy_is_asked(servers: tuple[Server, Server]) -> None:
    standby, leader = servers
    leader.leader = standby.url
    with Client(standby.url, TOKEN) as client, pytest.raises(UnavailableError, match="on standby"):
        client.status()
    assert [len(server.received) for server in servers] == [1, 1]


def test_leader_that_does_not_answer_is_named(servers: tuple[Server, Server]) -> None:
    standby, leader = servers
    leader.shutdown()
    leader.server_close()
    with Client(standby.url, TOKEN) as client, pytest.raises(UnavailableError, match=f"{leader.url}, which leads"):
        client.status()


def test_token_never_leaves_the_machine_in_clear_text(servers: tuple[Server, Server]) -> None:
    standby, _ = servers
    standby.leader = "http://192.0.2.1:8502"
    with Client(standby.url, TOKEN) as client, pytest.raises(InvalidError, match="in clear text, expected https"):
        client.status()
    for nonsense in ("gopher://x", "http://[::1"):
        standby.leader = nonsense
        with Client(standby.url, TOKEN) as client, pytest.raises(UnavailableError, match="expected a URL"):
            client.status()
