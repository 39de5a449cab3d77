# SPDX-License-Identifier: Apache-2.0
"""Which of several proxies an agent asks."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from serving_proxy.agent import link
from serving_proxy.agent.settings import AgentSettings
from serving_proxy.errors import ProxyError


class Standby(BaseHTTPRequestHandler):
    """A proxy that refuses agents until it leads."""

    leads_at = float("inf")
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        leads = time.monotonic() >= self.leads_at
        body = b"warm-up" if leads else b'{"error": {"status": "UNAVAILABLE", "message": "another proxy leads"}}'
        self.send_response(200 if leads else 503)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Total-Bytes", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def standby() -> Iterator[str]:
    Standby.leads_at, Standby.asked = float("inf"), 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Standby)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def silent() -> Iterator[str]:
    """A proxy whose machine accepts connections, and does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_another_proxy_is_asked_while_the_first_one_is_silent(
    silent: str, standby: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_SILENT_S", 0.2)
    monkeypatch.setattr(link, "_MOST_PATIENCE_S", 1e6)

    async def ask() -> None:
        connection = link.Link(AgentSettings(state_dir=tmp_path, server=(silent, standby)))
        try:
            with pytest.raises(ProxyError):
                await connection.warmup("a", 0)
            # After many failures, it would wait for the silent one for hours.
            connection._patience_s["warmups"] = 1e5
            asked = Standby.asked
            asking = asyncio.create_task(connection.warmup("a", 0))
            while Standby.asked < asked + 3:
                await asyncio.sleep(0.01)
            assert not asking.done()
            Standby.leads_at = time.monotonic()
            assert await asyncio.wait_for(asking, 60) == (b"warm-up", 7)
            assert connection.server == standby
            assert not connection._patience_s
        finally:
            await connection.close()

    asyncio.run(ask())
