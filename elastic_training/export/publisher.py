# SPDX-License-Identifier: Apache-2.0
"""Publish what a model learns, for servers that follow it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import keras

from elastic_training.checkpoints.cut import MEMORY_BYTES
from elastic_training.export.collector import Collector
from elastic_training.export.contents import read_contents
from elastic_training.export.segments import Segments
from elastic_training.export.worker import Worker

_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_EVERY = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(ms|s|min|h)\s*")

logger = logging.getLogger(__name__)


def seconds_of(every: str | float) -> float:
    """Return the seconds of "500ms", "1s", "2min", "1h" or a number.

    Raises
    ------
    ValueError
        It is none of these, or not above 0.
    """
    found = _EVERY.fullmatch(every) if isinstance(every, str) else None
    seconds = float(found[1]) * _UNITS[found[2]] if found else every
    if isinstance(seconds, (str, bool)) or not 0 < seconds < float("inf"):
        raise ValueError(f"every: {every!r}, expected a time such as '1s', '500ms' or '2min'")
    return float(seconds)


class PublisherParts:
    """Publisher, for either Keras."""

    model: Any

    def __init__(
        self,
        timeline: str | Path,
        every: str | float = "1s",
        *,
        export: str | Path,
        model: Any = None,
        streams: Callable[[], Mapping[str, int]] | None = None,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        super().__init__()
        self.timeline, self.export_path = Path(timeline), Path(export)
        self.every = seconds_of(every)
        self._contents = read_contents(self.export_path)
        self._streams = streams
        self._memory_bytes = memory_bytes
        self._seen: dict[str, int] = {}
        self._event_time: float | None = None
        self._due = 0.0
        self._collector: Collector | None = None
        self._worker: Worker | None = None
        self._push_s: list[float] = []
        self._push_cpu_s = 0.0
        self._postponed = 0
        if model is not None:
            self.start(model)

    # In loops

    def start(self, model: Any) -> None:
        """Begin to follow a model; this reads all of its rows, and takes over the timeline.

        Raises
        ------
        ValueError
            The model is not that of the export, or another publisher of this process follows it.
        graph_tools.errors.GraphToolsError
            The export or the timeline cannot be read, or the timeline does not continue the export.
        """
        if self._worker is not None:
            return
        positions = self._positions()
        collector = Collector(model, self._contents, f"the publisher of {self.timeline}", self._memory_bytes)
        try:
            segments = Segments(self.timeline, self.export_path, self._contents)
            self._worker = Worker(segments, f"publisher of {self.timeline.name}", self.every)
        except BaseException:
            collector.close()
            raise
        self._collector = collector
        self._worker.hand_over(collector.take(), self._event_time, positions)
        self._due = time.monotonic() + self.every

    def seen(self, event_time: float | None = None, streams: Mapping[str, int] | None = None) -> None:
        """Note what the model has learned, for the next publication.

        Parameters
        ----------
        event_time : float, optional [s since 1970]
            Time of the newest sample; one before an earlier call's changes nothing.
        streams : {stream: position of the next message}, optional
            A position may go back, after a checkpoint was restored.

        Raises
        ------
        graph_tools.errors.UsageError
            A position is not an integer from 0 to 2^64 - 1, or the time is not one or more than a day in the future.
            Nothing of this call is noted.
        """
        from graph_tools.store.trainer_progress import check_event_time, check_streams

        positions = check_streams(streams or {})
        if event_time is not None:
            self._event_time = max(self._event_time or 0.0, check_event_time(event_time))
        self._seen.update(positions)

    def step(self, event_time: float | None = None, streams: Mapping[str, int] | None = None) -> bool:
        """Call this after each batch: publish changes if they are due, and return whether a cut has begun.

        False is usual: the time of the next publication has not come, or the thread is busy with the one before.

        Raises
        ------
        OvertakenError
            Another writer has taken over the timeline.
        graph_tools.errors.UsageError
            As for `seen`.
        """
        self.seen(event_time, streams)
        if time.monotonic() < self._due:
            return False
        return self.push()

    def push(self) -> bool:
        """Begin a cut of what changed, for the thread to publish, and return True; errors are those of `step`.

        While the thread is busy with the cut before, nothing begins, the result is False, and the next step tries
        again.
        """
        collector, worker = self._running()
        worker.check()
        if not worker.ready():
            self._postponed += 1
            return False
        positions = self._positions()
        begin, cpu_begin = time.perf_counter(), time.thread_time()
        worker.hand_over(collector.take(), self._event_time, positions)
        self._push_s.append(time.perf_counter() - begin)
        self._push_cpu_s = max(self._push_cpu_s, time.thread_time() - cpu_begin)
        # A late push does not make the next ones come sooner.
        self._due = max(self._due + self.every, time.monotonic() + self.every / 2)
        return True

    def flush(self, timeout: float = 60.0) -> int:
        """Publish all that the model has learned, and return the epoch.

        Parameters
        ----------
        timeout : float [s]

        Raises
        ------
        TimeoutError
            It was not published in time; the message has the reason. Nothing is lost.
        graph_tools.errors.GraphToolsError
            Another writer has taken over the timeline.
        """
        return self._running()[1].flush(self.push, timeout)

    def close(self, timeout: float = 60.0) -> None:
        """Publish all that the model has learned, and end; errors are those of `flush`."""
        collector, worker = self._collector, self._worker
        if collector is None or worker is None:
            return
        try:
            self.flush(timeout)
        finally:
            self._collector = self._worker = None
            worker.end()
            collector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            self.close()
        except Exception:
            if kind is None:
                raise
            logger.exception("publisher of %s", self.timeline)

    # What it did

    @property
    def epoch(self) -> int:
        """The last epoch that was published."""
        return self._running()[1].epoch

    @property
    def published_streams(self) -> dict[str, int]:
        """Positions in streams of what was published."""
        return dict(self._running()[1].segments.streams)

    def stats(self) -> dict[str, Any]:
        """Return what the publisher has done so far.

        Returns
        -------
        dict
            `pushes`; `push_ms_longest`, `push_ms_median`: how long they held up the training thread;
            `push_cpu_ms_longest`: its CPU time; `postponed`: how often the thread was busy when one was due;
            `segments`, `rows`, `deleted` that were published; `failures`, and the `error` of the last attempt, null if
            it succeeded; `waiting`, rows that were read but not published.
        """
        times = sorted(self._push_s)
        own = {
            "pushes": len(times),
            "postponed": self._postponed,
            "push_ms_longest": 1e3 * times[-1] if times else 0.0,
            "push_cpu_ms_longest": 1e3 * self._push_cpu_s,
            "push_ms_median": 1e3 * times[len(times) // 2] if times else 0.0,
        }
        return {**own, **self._running()[1].stats()}

    # As a callback

    def on_train_begin(self, logs: Any = None) -> None:
        self.start(self.model)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.step()

    def on_train_end(self, logs: Any = None) -> None:
        self.flush()

    def _positions(self) -> dict[str, int]:
        from graph_tools.store.trainer_progress import check_streams

        return {**self._seen, **(check_streams(self._streams()) if self._streams is not None else {})}

    def _running(self) -> tuple[Collector, Worker]:
        if self._collector is None or self._worker is None:
            raise ValueError(f"the publisher of {self.timeline}: not started, expected fit, start(model) or model=")
        return self._collector, self._worker


class Publisher(PublisherParts, keras.callbacks.Callback):
    """Writes what changed in a model into the timeline of its export, every second or so.

    It is a callback of `fit`; in a loop of your own, call `step()` after each batch. The training thread only begins a
    cut, which takes no longer for larger tables; a thread of its own reads it while training goes on, and publishes it.
    After an error, such as a full disk, changes are published with those that follow.

    At the start, the model is compared with what the export and the timeline say, and the difference is published. So
    it does not matter at what step a restarted trainer resumes.

    Parameters
    ----------
    timeline : path
        The folder that servers follow; it is created if needed.
    every : str or float
        Time between two publications: "1s", "500ms", or seconds.
    export : path
        What `et.export` wrote of this model.
    model : optional
        None: that of `fit`.
    streams : callable, optional
        Returns {stream: position of the next message} of what the model has learned, as `seen` takes them.
    memory_bytes : int
        For rows that training changes before the thread has read them. Rows beyond are published one cut later.

    Raises
    ------
    ValueError
        `every` is not a time, or `export` is not an export of elastic_training.

    Examples
    --------
    >>> et.export(model, "export")
    >>> model.fit(clicks, callbacks=[et.Publisher("/deltas/ranking", every="1s", export="export")])
    """
