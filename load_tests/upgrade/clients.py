# SPDX-License-Identifier: Apache-2.0
"""Clients of several hosts over gRPC and REST, which check every answer, and what they find at each step."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import grpc

from load_tests.client_threads import ClientThreads
from load_tests.fleet.clients import channel_options
from serving_proxy import messages

__all__ = ["IDS", "MODEL", "WIDTH", "Clients", "Found", "GrpcClients", "RestClients", "Step"]

_CLIENTS = 2
_PAUSE_S = 0.005
_DEADLINE_S = 10.0
#: The model, columns of a row, and number of ids.
MODEL = "ranking"
WIDTH = 3
IDS = 10
_INT64 = 9
_PREDICT = "/tensorflow.serving.PredictionService/Predict"
Rows = list[list[int]]


class NoAnswerError(Exception):
    """A request has no answer; the text is the reason."""


@dataclass
class Found:
    """What clients found.

    Attributes
    ----------
    right : Counter of int
        Number of right answers by version.
    lost : Counter of str
        Number of requests without an answer, by the reason.
    wrong : list of str
        Answers with other scores than those of their version.
    """

    right: Counter[int] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers of requests."""
        return {"right": self.right.total(), "lost": self.lost.total(), "wrong": len(self.wrong)}


class _CheckingClients(ClientThreads):
    """Threads that send one request after the other, with a routing key of its own each.

    Parameters
    ----------
    count : int
    addresses : sequence of str
        Those of all hosts.
    """

    def __init__(self, count: int, addresses: Sequence[str]) -> None:
        super().__init__(count)
        self._found = Found()
        self._addresses = list(addresses)
        self._lock = threading.Lock()

    def take(self) -> Found:
        """Return what was found since the last call."""
        with self._lock:
            found, self._found = self._found, Found()
        return found

    def _send_all(self, draw: random.Random, connection: Any) -> None:
        while not self._ended.wait(_PAUSE_S):
            rows = [[draw.randrange(IDS) for _ in range(WIDTH)] for _ in range(draw.randint(1, 4))]
            try:
                version, scores = self._ask(connection, rows, str(draw.random()))
            except NoAnswerError as error:
                with self._lock:
                    self._found.lost[str(error)] += 1
                continue
            with self._lock:
                # Small numbers: exact in float32.
                if scores == [float(version * sum(row)) for row in rows]:
                    self._found.right[version] += 1
                else:
                    self._found.wrong.append(f"version {version}: {scores} of {rows}")

    @abstractmethod
    def _ask(self, connection: Any, rows: Rows, key: str) -> tuple[int, list[float]]:
        """Send rows with a routing key, and return the version and the scores; raise `NoAnswerError`."""


class GrpcClients(_CheckingClients):
    """Clients over gRPC: round robin over all hosts, without retries."""

    def _run(self, number: int) -> None:
        target = "ipv4:" + ",".join(self._addresses)
        with grpc.insecure_channel(target, channel_options(retries=False)) as channel:
            self._send_all(random.Random(number), channel.unary_unary(_PREDICT))

    def _ask(self, connection: Any, rows: Rows, key: str) -> tuple[int, list[float]]:
        request = messages.new("tensorflow.serving.PredictRequest")
        request.model_spec.name = MODEL
        ids = request.inputs["ids"]
        ids.dtype = _INT64
        for size in (len(rows), WIDTH):
            ids.tensor_shape.dim.add(size=size)
        ids.int64_val.extend(value for row in rows for value in row)
        metadata = (("x-routing-key", key),)
        try:
            data = connection(request.SerializeToString(), timeout=_DEADLINE_S, metadata=metadata)
        except grpc.RpcError as error:
            raise NoAnswerError(f"{error.code().name}: {error.details()}") from error
        answer = messages.new("tensorflow.serving.PredictResponse")
        answer.ParseFromString(data)
        y = answer.outputs["y"]
        values = list(y.float_val) or list(memoryview(y.tensor_content).cast("f"))
        return answer.model_spec.version.value, values


class RestClients(_CheckingClients):
    """Clients over REST, each with a connection to every host.

    A request whose connection fails is sent again, as load balancers and HTTP clients do: a host that ends closes idle
    connections, and a request may be under way on one. With several hosts it is sent to the next one, also if a host
    refuses it. It is lost if all of them have failed twice.
    """

    def _run(self, number: int) -> None:
        connections = [http.client.HTTPConnection(address, timeout=_DEADLINE_S) for address in self._addresses]
        self._send_all(random.Random(number), connections)
        for connection in connections:
            connection.close()

    def _ask(self, connection: Any, rows: Rows, key: str) -> tuple[int, list[float]]:
        faults = []
        for _ in range(2 * len(connection)):
            # The first one changes with every request.
            connection.append(connection.pop(0))
            try:
                return self._ask_one(connection[0], rows, key)
            except (OSError, http.client.HTTPException, NoAnswerError) as error:
                connection[0].close()
                faults.append(f"{type(error).__name__}: {error}")
        raise NoAnswerError(", ".join(faults))

    def _ask_one(self, connection: http.client.HTTPConnection, rows: Rows, key: str) -> tuple[int, list[float]]:
        body, headers = json.dumps({"instances": rows}), {"x-routing-key": key}
        connection.request("POST", f"/v1/models/{MODEL}:predict", body, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise NoAnswerError(f"HTTP {answer.status} {text[:200].decode(errors='replace')}")
        scores = [float(load[0] if isinstance(load, list) else load) for load in json.loads(text)["predictions"]]
        return int(answer.headers.get("x-model-version", "0")), scores


@dataclass(frozen=True)
class Step:
    """A step of an upgrade, and what clients found from the end of the step before to the end of this one."""

    name: str
    grpc: Found
    rest: Found

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers of requests."""
        grpc, rest = self.grpc.counts, self.rest.counts
        return {key: grpc[key] + rest[key] for key in grpc}

    @property
    def reasons(self) -> list[str]:
        """Return why requests were lost, and what was wrong."""
        return [text for found in (self.grpc, self.rest) for text in (*found.lost, *found.wrong)]


class Clients:
    """Clients of both kinds, from the begin to the end of a `with` statement.

    Parameters
    ----------
    grpc, rest : sequence of str
        Addresses of all hosts.
    seconds : float [s]
        How long they go on after each step.

    Attributes
    ----------
    steps : list of Step
    """

    def __init__(self, grpc: Sequence[str], rest: Sequence[str], seconds: float) -> None:
        self._grpc, self._rest = GrpcClients(_CLIENTS, grpc), RestClients(_CLIENTS, rest)
        self._seconds = seconds
        self._stack = ExitStack()
        self.steps: list[Step] = []

    def __enter__(self) -> Clients:
        self._stack.enter_context(self._grpc)
        self._stack.enter_context(self._rest)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def note(self, step: str) -> None:
        """Go on for a while after a step, and keep what was found."""
        time.sleep(self._seconds)
        self.steps.append(Step(step, self._grpc.take(), self._rest.take()))
