# SPDX-License-Identifier: Apache-2.0
"""Compute what a full apply of a timeline would answer at each epoch, and check answers against it."""

from __future__ import annotations

import http.client
import threading
from dataclasses import dataclass, field

import numpy as np

from graph_tools.tensors import Array
from load_tests.client_threads import ClientThreads
from load_tests.live.host import Connection, LiveAnswer
from load_tests.live.model import Shape, variables_at

__all__ = ["CheckingClients", "Checks", "Expected"]


class Expected:
    """Know the rows of every epoch.

    Parameters
    ----------
    shape : Shape
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._rows = [np.zeros(shape.keys, np.float32)]

    def add(self, keys: Array) -> int:
        """Add an epoch in which the rows of some keys become its number, and return it."""
        rows = self._rows[-1].copy()
        rows[keys] = len(self._rows)
        self._rows.append(rows)
        return len(self._rows) - 1

    def outputs(self, epoch: int, keys: Array) -> tuple[Array, Array]:
        """Return `rows` and `y` of keys [batch, features] at an epoch."""
        variables = variables_at(self._shape, epoch)
        x = np.repeat(self._rows[epoch][keys], self._shape.dim, axis=1)
        hidden = np.maximum(x @ variables["kernel"] + variables["bias"], 0)
        return x[:, : self._shape.shown * self._shape.dim], hidden.mean(axis=1, keepdims=True)

    def fault_of(self, answer: LiveAnswer) -> str:
        """Return what is wrong with an answer; "" if it has every bit of its epoch."""
        if not 0 <= answer.epoch < len(self._rows):
            return f"epoch {answer.epoch}, expected one that was published"
        for name, found, expected in zip(
            ("rows", "y"), (answer.rows, answer.y), self.outputs(answer.epoch, answer.keys), strict=True
        ):
            if not np.array_equal(found, expected):
                return f"epoch {answer.epoch}: {name} {found.tolist()}, expected {expected.tolist()}"
        return ""


@dataclass
class Checks:
    """Contain the results of all checks of answers.

    Attributes
    ----------
    answers : int
        Right ones.
    wrong : list of str
    failed : int
        Requests without an answer.
    served : int
        The last epoch of an answer.
    """

    expected: Expected
    answers: int = 0
    wrong: list[str] = field(default_factory=list)
    failed: int = 0
    served: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, answer: LiveAnswer, least: int = 0) -> None:
        """Check an answer, whose epoch must be `least` or later."""
        fault = self.expected.fault_of(answer)
        if not fault and answer.epoch < least:
            fault = f"epoch {answer.epoch} after epoch {least}"
        with self.lock:
            if fault:
                self.wrong.append(fault)
            else:
                self.answers += 1
            self.served = max(self.served, answer.epoch)


class CheckingClients(ClientThreads):
    """Ask without a pause from several threads until the end of the block; a host that is away is asked again.

    Parameters
    ----------
    port : int
    shape : Shape
    checks : Checks
    count : int
        Threads.
    monotone : bool
        Whether epochs must not go back.
    """

    def __init__(self, port: int, shape: Shape, checks: Checks, count: int = 2, monotone: bool = True) -> None:
        super().__init__(count)
        self._port, self._shape, self._checks, self._monotone = port, shape, checks, monotone

    def _run(self, number: int) -> None:
        draw = np.random.default_rng(number)
        connection = Connection(self._port)
        while not self._ended.wait(0.002):
            # What any client has seen before is served from then on, also by a host that was killed in between.
            least = self._checks.served if self._monotone else 0
            keys = draw.integers(0, self._shape.keys, (draw.integers(1, 5), self._shape.features))
            try:
                self._checks.add(connection.ask(keys), least)
            except (OSError, http.client.HTTPException, ValueError):
                with self._checks.lock:
                    self._checks.failed += 1
                self._ended.wait(0.05)
        connection.close()
