# SPDX-License-Identifier: Apache-2.0
"""Send steady traffic with one thread per client, and compare every score with TensorFlow's."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demo.measure import TOLERANCE
from demo.movielens import Features
from demo.proxy.clients import ServingClient

#: Highest number of requests per client and second; each client has at most one request in flight.
RATE_PER_S = 50.0


@dataclasses.dataclass(frozen=True)
class Request:
    """Describe a user with some films to rank, and TensorFlow's scores [films] float32 by version."""

    user: str
    features: Features
    expected: Mapping[int, NDArray[np.float32]]


@dataclasses.dataclass(frozen=True)
class Sent:
    """Describe the outcome of a request.

    Attributes
    ----------
    client : str
        The key of the client.
    user : str
        The user of the request.
    at : float
        Time of sending [s of the monotonic clock].
    seconds : float
        Time until the response.
    version : int
        Version that the response reports; 0 without a response.
    difference : float
        Largest difference of a score from TensorFlow's for that version; infinite without a response.
    fault : str
        Why there was no response, or empty.
    """

    client: str
    user: str
    at: float
    seconds: float
    version: int
    difference: float
    fault: str = ""

    @property
    def lost(self) -> bool:
        return self.version == 0

    @property
    def wrong(self) -> bool:
        # Written so that NaN counts as wrong.
        return not self.lost and not self.difference <= TOLERANCE


class Traffic:
    """Run threads that send from the beginning of the block to its end."""

    def __init__(self, clients: Sequence[ServingClient], requests: Sequence[Request]) -> None:
        self.clients, self._requests = clients, requests
        self._prepared = {client.key: [client.prepare(request.features) for request in requests] for client in clients}
        self._sent: dict[str, list[Sent]] = {client.key: [] for client in clients}
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(client, place), daemon=True)
            for place, client in enumerate(clients)
        ]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def sent(self, start: float = 0.0, end: float = float("inf")) -> list[Sent]:
        """Return the completed requests that were sent between two times of the monotonic clock."""
        return [request for sent in self._sent.values() for request in list(sent) if start <= request.at < end]

    def _send(self, client: ServingClient, place: int) -> None:
        prepared = self._prepared[client.key]
        number = place * len(prepared) // len(self.clients)
        due = time.monotonic()
        while not self._end.is_set():
            self._sent[client.key].append(self._send_one(client, prepared[number], self._requests[number]))
            number = (number + 1) % len(prepared)
            # A late client does not catch up: the load stays constant.
            due = max(due + 1.0 / RATE_PER_S, time.monotonic())
            self._end.wait(due - time.monotonic())

    def _send_one(self, client: ServingClient, prepared: Any, request: Request) -> Sent:
        start = time.monotonic()
        try:
            answer = client.ask(prepared, request.user)
            seconds = time.monotonic() - start
            difference = _difference(answer.scores, request.expected.get(answer.version))
            return Sent(client.key, request.user, start, seconds, answer.version, difference)
        except Exception as error:
            fault = " ".join(str(error).split())[:200] or type(error).__name__
            return Sent(client.key, request.user, start, time.monotonic() - start, 0, float("inf"), fault)


def _difference(scores: NDArray[np.float32], expected: NDArray[np.float32] | None) -> float:
    if expected is None or scores.shape != expected.shape:
        return float("inf")
    return float(np.abs(scores - expected).max())
