# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from helpers.system.waiting import wait_until
from load_tests.faults.clients import Clients, Responses


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    scale = 2.0

    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["instances"]
        body = json.dumps({"predictions": [[self.scale * sum(row)] for row in rows]}).encode()
        self.send_response(200)
        self.send_header("x-model-version", "2")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_longest_gap_includes_both_ends_of_the_period() -> None:
    responses = Responses(answered=[1.0, 2.0, 5.0, 9.0])
    assert responses.longest_gap(1.5, 6.0) == 3.0
    assert responses.longest_gap(5.5, 8.0) == 2.5


def test_right_responses_are_counted_and_wrong_ones_reported(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Clients(server.server_port, 2, seed=1) as clients:
        assert clients.wait_answered(60, time.monotonic())
        assert clients.responses.wrong == []
        monkeypatch.setattr(Answers, "scale", 3.0)
        wait_until(lambda: clients.responses.wrong, "a wrong response")
    assert clients.responses.wrong[0].startswith("version 2: ")


def test_missing_host_counts_as_a_failure() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with Clients(closed.getsockname()[1], 1, seed=1) as clients:
            assert not clients.wait_answered(0.3, time.monotonic())
            wait_until(lambda: clients.responses.failed["ConnectionRefusedError"] > 0, "a refused connection")
    assert clients.responses.answered == []
