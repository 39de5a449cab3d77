# SPDX-License-Identifier: Apache-2.0
"""The thread that reads and publishes the cuts which a training thread begins."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from elastic_training.export.collector import Taken
from elastic_training.export.segments import OvertakenError, Segments

logger = logging.getLogger(__name__)


class Worker:
    """Publishes one cut after the other, and tries again after errors.

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
        self._handed: tuple[Taken, float | None, dict[str, int]] | None = None
        self._busy = self._ending = False
        self._given = self._done = self._failures = 0
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def ready(self) -> bool:
        """Return whether the thread waits for a cut: it has read what was handed over, and has tried to publish it.

        A cut begins only then, so it is read at once, and training keeps few rows for it.
        """
        return self._handed is None and not self._busy

    def hand_over(self, taken: Taken, event_time: float | None, streams: dict[str, int]) -> None:
        """Read and publish a cut; the thread is ready."""
        with self._state:
            self._handed = taken, event_time, streams
            self._given += 1
            self._state.notify_all()

    def check(self) -> None:
        """Raise the error after which nothing can be published."""
        with self._state:
            if isinstance(self._error, OvertakenError):
                raise self._error

    def flush(self, push: Callable[[], bool], timeout: float) -> int:
        """Call `push`, which hands a cut over if the thread is ready, until all of one is published; return the epoch.

        Raises
        ------
        TimeoutError
            It is not published after `timeout` seconds.
        OvertakenError
        """
        end, handed = time.monotonic() + timeout, False
        while not handed or self._done < self._given:
            self._wait(self.ready, end, timeout)
            handed = push()
            self._wait(self._tells, end, timeout)
        return self.epoch

    def _tells(self) -> bool:
        """Return whether what was handed over is published, or has to be handed over again."""
        return self._done >= self._given or (self.ready() and not self.segments.whole)

    def _wait(self, condition: Callable[[], bool], end: float, timeout: float) -> None:
        with self._state:
            while not condition():
                if isinstance(self._error, OvertakenError):
                    raise self._error
                left = end - time.monotonic()
                if left <= 0:
                    reason = self._error or "the disk is slow"
                    raise TimeoutError(f"{self._name}: not published in {timeout:g} s: {reason}") from self._error
                self._state.wait(left)

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
        if self._handed is not None:
            self._handed[0].cut.end(succeeded=False)
            self._handed = None

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
                if self._handed is None and not self._ending:
                    self._state.wait(waits)
                if self._ending:
                    return
                handed, self._handed = self._handed, None
                self._busy = True
                target = self._given
            error: Exception | None = None
            try:
                if handed is not None:
                    self._add(*handed)
                if self.segments.whole:
                    self.segments.publish()
            except Exception as found:
                error = found
            # The memory of the cut's values is not needed any more.
            del handed
            with self._state:
                self._busy = False
                self._note(error, target)
                if isinstance(error, OvertakenError):
                    return

    def _add(self, taken: Taken, event_time: float | None, streams: dict[str, int]) -> None:
        try:
            self.segments.add(taken, event_time, streams)
        except Exception:
            taken.collector.follow()
            raise

    def _note(self, error: Exception | None, target: int) -> None:
        if error is not None:
            self._failures += 1
            if str(error) != str(self._error):
                logger.warning("%s: %s; what was learned stays and is published later", self._name, error)
            self._error = error
        elif self.segments.whole:
            self._done = target
            self._error = None
        self._state.notify_all()
