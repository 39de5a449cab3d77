# SPDX-License-Identifier: Apache-2.0
"""Send requests to hosts, for tests that do not concern the messages."""

from __future__ import annotations

import contextlib
import threading

import httpx
import numpy as np

from helpers.hosts.contract_messages import make_request
from helpers.hosts.served_hosts import ServedHost
from helpers.models.slow_requests import slow_request


def ranking_body(rows: int = 1) -> bytes:
    """Return a raw request (EAS) for the model `ranking`."""
    return make_request({"x": np.ones((rows, 3), np.float32)}).SerializeToString()


class SlowRequest:
    """Send a request for the model `slow` on a separate thread."""

    def __init__(self, host: ServedHost, loops: int) -> None:
        self._answer: httpx.Response | None = None
        self._url = f"http://{host.rest}/api/predict/slow"
        self._thread = threading.Thread(target=self._run, args=(slow_request(loops),))
        self._thread.start()

    def _run(self, body: bytes) -> None:
        with contextlib.suppress(httpx.TransportError):
            self._answer = httpx.post(self._url, content=body, timeout=120)

    def is_alive(self) -> bool:
        """Return whether there is no response yet."""
        return self._thread.is_alive()

    def end(self) -> httpx.Response:
        """Wait for its response."""
        answer = self.end_if_any()
        assert answer is not None
        return answer

    def end_if_any(self) -> httpx.Response | None:
        """Wait for its response, or for the connection to be closed without one."""
        self._thread.join(120)
        return self._answer


def in_flight(host: ServedHost) -> int:
    """Return how many requests are waiting or running for the model `slow`."""
    text = httpx.get(f"http://{host.rest}/metrics", timeout=10).text
    lines = [line for line in text.splitlines() if line.startswith("recprocessor_in_flight{") and '"slow"' in line]
    return int(float(lines[0].rpartition(" ")[2])) if lines else 0
