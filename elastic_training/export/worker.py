# SPDX-License-Identifier: Apache-2.0
"""The thread that publishes what a training thread has collected."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from elastic_training.export.collector import Taken
from elastic_training.export.segments import OvertakenError, Segments

logger = logging.getLogger(__name__)


class Worker:
    """Publishes changes in the order in which they are handed over, and tries again after errors.

    Parameters
    ----------
    segments : Segments
        Only this thread uses it from now on, except its numbers.
    name : str
    retry_s : float [s]
        Time after which a failed publication is tried again if no more changes come.
    """

    def __init__(self, segments: Segments, name: str, retry_s: float) -> None:
        self.segments, self._name, self._retry_s = segments, name, retry_s
        self._state = threading.Condition()
        self._handed: list[tuple[Taken, float | None, dict[str, int]]] = []
        self._given = self._done = self._failures = 0
        self._ending = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def hand_over(self, taken: Taken, event_time: float | None, streams: dict[str, int]) -> None:
        """Publish changes soon."""
        with self._state:
            self._handed.append((taken, event_time, streams))
            self._given += 1
            self._state.notify_all()

    def check(self) -> None:
        """Raise the error after which nothing can be published."""
        with self._state:
            if isinstance(self._error, OvertakenError):
                raise self._error

    def wait(self, timeout: float) -> int:
        """Wait until all that was handed over is published, and return the epoch.

        Raises
        ------
        TimeoutError
            It is not published after `timeout` seconds.
        OvertakenError
        """
        with self._state:
            given, end = self._given, time.monotonic() + timeout
            while self._done < given:
                if isinstance(self._error, OvertakenError):
                    raise self._error
                left = end - time.monotonic()
                if left <= 0:
                    reason = self._error or "the disk is slow"
                    raise TimeoutError(f"{self._name}: not published in {timeout:g} s: {reason}") from self._error
                self._state.wait(left)
            return self.epoch

    @property
    def epoch(self) -> int:
        """The last epoch that was published."""
        return self.segments.epoch

    def end(self) -> None:
        """End the thread after its present attempt."""
        with self._state:
            self._ending = True
            self._state.notify_all()
        self._thread.join()

    def stats(self) -> dict[str, Any]:
        with self._state:
            segments = self.segments
            return {
                "segments": segments.written,
                "rows": segments.rows,
                "deleted": segments.deleted,
                "failures": self._failures,
                "error": None if self._error is None else str(self._error),
                "waiting": segments.waiting if self._done < self._given else 0,
            }

    def _run(self) -> None:
        while True:
            with self._state:
                waits = self._retry_s if self._error is not None else None
                if not self._handed and not self._ending:
                    self._state.wait(waits)
                if self._ending:
                    return
                handed, self._handed = self._handed, []
                target = self._given
            error: Exception | None = None
            try:
                for taken in handed:
                    self.segments.add(*taken)
                self.segments.publish()
            except Exception as found:
                error = found
            with self._state:
                self._note(error, target)
                if isinstance(error, OvertakenError):
                    return

    def _note(self, error: Exception | None, target: int) -> None:
        if error is None:
            self._done = target
        else:
            self._failures += 1
            if str(error) != str(self._error):
                logger.warning("%s: %s; what was collected stays and is tried again", self._name, error)
        self._error = error
        self._state.notify_all()
