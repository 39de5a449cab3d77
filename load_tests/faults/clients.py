# SPDX-License-Identifier: Apache-2.0
"""Send requests without a pause, check every response, and record how long there was no response."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from load_tests.client_threads import ClientThreads

__all__ = ["FEATURES", "MODEL", "VERSIONS", "WIDTH", "Clients", "Responses"]

MODEL = "ranking"
#: Numbers of its good versions, and columns of a row.
VERSIONS = range(1, 9)
WIDTH = 3
#: Number of inputs of the model for requests that claim many rows.
FEATURES = 39
#: Pause between two requests of a client.
_PAUSE_S = 0.01
_TIMEOUT_S = 5.0


@dataclass
class Responses:
    """Contain the results of the clients.

    Attributes
    ----------
    answered : list of float
        Times of right responses (monotonic), ascending.
    wrong : list of str
        Responses with a score that differs from that of their version.
    failed : Counter
        Requests without a score, by HTTP code or the name of the error.
    """

    answered: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)

    def longest_gap(self, begin: float, end: float) -> float:
        """Return the longest time without a right response within a period [s]."""
        moments = [begin, *(at for at in self.answered if begin < at < end), end]
        return max(after - before for before, after in itertools.pairwise(moments))


class Clients(ClientThreads):
    """Run threads that send one request after the other over REST on persistent connections.

    Parameters
    ----------
    port : int
        Port of the host, on 127.0.0.1.
    count : int
    seed : int
    """

    def __init__(self, port: int, count: int, seed: int) -> None:
        super().__init__(count)
        self.responses = Responses()
        self._port, self._seed = port, seed
        self._lock = threading.Lock()

    def wait_answered(self, seconds: float, since: float) -> bool:
        """Wait for a right response after a moment; return whether one came in time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with self._lock:
                if self.responses.answered and self.responses.answered[-1] > since:
                    return True
            time.sleep(0.02)
        return False

    def _run(self, number: int) -> None:
        draw = random.Random(f"{self._seed}/{number}")
        connection: http.client.HTTPConnection | None = None
        while not self._ended.wait(_PAUSE_S):
            rows = [[draw.randint(0, 9) for _ in range(WIDTH)] for _ in range(draw.randint(1, 4))]
            try:
                if connection is None:
                    connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
                self._ask(connection, rows)
            except (OSError, http.client.HTTPException, ValueError) as error:
                if connection is not None:
                    connection.close()
                connection = None
                with self._lock:
                    self.responses.failed[type(error).__name__] += 1

    def _ask(self, connection: http.client.HTTPConnection, rows: list[list[int]]) -> None:
        key = str(sum(map(sum, rows)))
        connection.request(
            "POST", f"/v1/models/{MODEL}:predict", json.dumps({"instances": rows}), {"x-routing-key": key}
        )
        answer = connection.getresponse()
        body = answer.read()
        now = time.monotonic()
        if answer.status != 200:
            with self._lock:
                self.responses.failed[str(answer.status)] += 1
            return
        version = int(answer.headers.get("x-model-version", "0"))
        scores = [float(load[0] if isinstance(load, list) else load) for load in json.loads(body)["predictions"]]
        wanted = [float(version * sum(row)) for row in rows]
        with self._lock:
            # Small integers: exact in float32.
            if scores == wanted:
                self.responses.answered.append(now)
            else:
                self.responses.wrong.append(f"version {version}: {scores}, expected {wanted}")
