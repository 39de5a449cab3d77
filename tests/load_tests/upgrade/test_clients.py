# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from load_tests._programs import ProgramError
from load_tests._releases import build_release
from load_tests.upgrade.clients import Found, RestClients

_BOUND_S = 30.0


class Host(BaseHTTPRequestHandler):
    """Every fourth request is answered wrongly, and every fourth connection is closed without an answer."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["instances"]
        Host.asked += 1
        if Host.asked % 4 == 1:
            self.close_connection = True
            return
        shift = 1.0 if Host.asked % 4 == 3 else 0.0
        body = json.dumps({"predictions": [[2.0 * sum(row) + shift] for row in rows]}).encode()
        self.send_response(200)
        self.send_header("x-model-version", "2")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Host) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def collect(clients: RestClients, requests: int) -> Found:
    """Return what clients find until they have sent a number of requests."""
    found, end = Found(), time.monotonic() + _BOUND_S
    while sum(found.counts.values()) < requests:
        assert time.monotonic() < end
        taken = clients.take()
        found.right += taken.right
        found.lost += taken.lost
        found.wrong += taken.wrong
        time.sleep(0.01)
    return found


def test_wrong_answers_count_and_closed_connections_are_tried_again(address: str) -> None:
    with RestClients(1, [address]) as clients:
        found = collect(clients, 40)
    assert not found.lost
    assert found.right[2] == found.right.total()
    # Of four requests that the host gets, one is closed and sent again, two are right, one is wrong.
    assert abs(found.right.total() - 2 * len(found.wrong)) <= 2
    assert "version 2" in found.wrong[0]


def test_request_without_any_host_is_lost() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Host) as server:
        address = f"127.0.0.1:{server.server_port}"
    with RestClients(1, [address]) as clients:
        found = collect(clients, 2)
    assert found.lost.total() == found.counts["lost"] >= 2
    assert "ConnectionRefusedError" in next(iter(found.lost))


def test_commit_that_does_not_exist_is_named() -> None:
    with pytest.raises(ProgramError, match="Needed a single revision"):
        build_release("no-such-commit")
