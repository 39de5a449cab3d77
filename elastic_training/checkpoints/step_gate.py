# SPDX-License-Identifier: Apache-2.0
"""Training steps of several threads, and the moments between them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class StepGate:
    """Lets any number of steps run, or one cut begin."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._steps = 0
        self._stopped = False
        self._inside = threading.local()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Run a step; waits while a cut begins."""
        with self._changed:
            self._changed.wait_for(lambda: not self._stopped)
            self._steps += 1
        self._inside.step = True
        try:
            yield
        finally:
            self._inside.step = False
            with self._changed:
                self._steps -= 1
                self._changed.notify_all()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Wait until the steps that run have ended; new ones wait until the block ends.

        Raises
        ------
        RuntimeError
            If this thread runs a step.
        """
        if getattr(self._inside, "step", False):
            raise RuntimeError("checkpoint: save() within step(), expected it between two steps")
        with self._changed:
            self._changed.wait_for(lambda: not self._stopped)
            self._stopped = True
            self._changed.wait_for(lambda: self._steps == 0)
        try:
            yield
        finally:
            with self._changed:
                self._stopped = False
                self._changed.notify_all()
