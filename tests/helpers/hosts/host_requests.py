# SPDX-License-Identifier: Apache-2.0
"""Send requests to hosts, for tests that do not concern the messages."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Self

import httpx
import numpy as np

from helpers.hosts.contract_messages import encode, make_request
from helpers.hosts.served_hosts import ServedHost
from helpers.models.gate import Gate, passing
from helpers.system.waiting import wait_until


def ranking_body(rows: int = 1) -> bytes:
    """Return a raw request (EAS) for the model `ranking`."""
    return make_request({"x": np.ones((rows, 3), np.float32)}).SerializeToString()


class SentRequest:
    """Send a raw request for a model on a separate thread."""

    def __init__(self, host: ServedHost, model: str, body: bytes) -> None:
        self._answer: httpx.Response | None = None
        self._url = f"http://{host.rest}/api/predict/{model}"
        self._thread = threading.Thread(target=self._run, args=(body,))
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


class HeldRequest(SentRequest):
    """Send a request for the model `held`, which runs until it is released, at the latest at the end of the block.

    Others wait for it: the model runs one request at a time.
    """

    def __init__(self, host: ServedHost, folder: Path) -> None:
        """Wait until it runs; the gate is made in `folder`."""
        wait_until(lambda: in_flight(host, "held") == 0, "the end of earlier requests")
        self._gate = Gate(folder)
        super().__init__(host, "held", encode(self._gate.inputs))
        wait_until(lambda: in_flight(host, "held") == 1, "the request that is held")

    def release(self) -> httpx.Response:
        """Let it continue, and return its response."""
        self._gate.open()
        return self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_alive():
            self._gate.open()
        self.end_if_any()


def quick_request() -> bytes:
    """Return a raw request for the model `held` that is not held."""
    return encode(passing(1.0))


def in_flight(host: ServedHost, model: str = "slow") -> int:
    """Return how many requests are waiting or running for a model."""
    text = httpx.get(f"http://{host.rest}/metrics", timeout=60).text
    lines = [line for line in text.splitlines() if line.startswith("recprocessor_in_flight{") and f'"{model}"' in line]
    return int(float(lines[0].rpartition(" ")[2])) if lines else 0
