# SPDX-License-Identifier: Apache-2.0
"""Write changes as segments, with what could not be written before."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_training.export.changes import Changes
from elastic_training.export.collector import Taken
from elastic_training.export.contents import Contents
from elastic_training.export.published_state import read_state


class Segments:
    """The end of a timeline that begins with an export, and the changes that it lacks.

    Attributes
    ----------
    epoch : int
        The last one.
    streams : {stream: position of the next message}
        Of what was published.
    rows, deleted : int
        Numbers of rows and deleted keys that were published.
    written : int
        Number of segments.
    whole : bool
        Whether the changes that were added are those of one instant, so that they may be published.

    Raises
    ------
    graph_tools.errors.GraphToolsError
        The export or the timeline cannot be read, or the timeline does not continue the export.
    """

    def __init__(self, timeline: Path, export: Path, contents: Contents) -> None:
        from graph_tools.store.lineage import read_lineage
        from graph_tools.store.timeline_writer import TimelineWriter

        start = read_lineage(export)
        if start is None:
            raise ValueError(f"{export}: no lineage, expected an export of elastic_training")
        self._timeline, self._export, self._contents = timeline, export, contents
        self._start = start
        self._kinds = {table.name: (table.key, table.dim) for table in contents.tables}
        self._writer: Any = TimelineWriter(timeline, start, f"elastic_training, export {export}")
        # Whether the last publication failed, so that its segment may be there or not.
        self._unsure = False
        self.epoch: int = self._writer.position.epoch
        state = read_state(export, contents, timeline, start, self.epoch)
        # The first changes have all rows of the model, and are compared with what is published.
        self._all_rows = True
        self._before: dict[str, Changes] | None = state.tables
        self.whole = False
        self._variables: dict[str, NDArray[Any] | None] = state.variables
        self.streams = state.streams
        self._tables: dict[str, Changes] = {}
        self._values: dict[str, NDArray[np.float32]] = {}
        self._positions: dict[str, int] = {}
        self._event_time: float | None = None
        self._told: float | None = None
        self.rows = self.deleted = self.written = 0

    def add(self, taken: Taken, event_time: float | None, streams: dict[str, int]) -> None:
        """Read changes, and add them to those that are to be published.

        If memory was short and some rows were left to the next cut, nothing is published before that one is added.

        Raises
        ------
        tensorflow.errors.OpError, MemoryError
            Changes were lost, at least in part. The next cut must have all rows, which are compared with what is
            published.
        """
        self.whole = False
        try:
            for name, changes in taken.changes().items():
                waiting = self._tables.get(name)
                self._tables[name] = changes if waiting is None else waiting.then(changes)
            whole = taken.cut.end(succeeded=True)
            if whole and self._all_rows:
                before = self._before if self._before is not None else self._published()
                self._tables = {name: changes.since(before[name]) for name, changes in self._tables.items()}
                self._before, self._all_rows = None, False
        except BaseException:
            taken.cut.end(succeeded=False)
            self._tables, self._before, self._all_rows = {}, None, True
            raise
        self._values = {name: np.array(value) for name, value in taken.variables.items()}
        self._positions.update(streams)
        self._event_time = event_time
        self.whole = whole

    def _published(self) -> dict[str, Changes]:
        # A segment may be there that this writer does not know of, because of an error after it had its name.
        return read_state(self._export, self._contents, self._timeline, self._start, sys.maxsize).tables

    @property
    def waiting(self) -> int:
        """Number of rows and deleted keys that are to be published."""
        return sum(len(changes.keys) + len(changes.gone) for changes in self._tables.values())

    def publish(self) -> bool:
        """Publish what was added as the next epoch; return whether there was anything.

        Raises
        ------
        graph_tools.errors.GraphToolsError
            It could not be written; it stays.
        OvertakenError
            Another writer has taken over the timeline.
        """
        from graph_tools.store.delta import Delta, TableDelta
        from graph_tools.store.segment_layout import UNKNOWN_TIME
        from graph_tools.tensors import ArrayTensor

        changed = {name: changes for name, changes in sorted(self._tables.items()) if changes}
        values = {name: value for name, value in sorted(self._values.items()) if self._differs(name, value)}
        streams = {name: place for name, place in self._positions.items() if self.streams.get(name) != place}
        if not (changed or values or streams or self._event_time != self._told):
            self._writer.check_present()
            return False
        tables = [
            TableDelta(
                name, *self._kinds[name], ArrayTensor(found.keys), ArrayTensor(found.rows), ArrayTensor(found.gone)
            )
            for name, found in changed.items()
        ]
        time = UNKNOWN_TIME if self._event_time is None else round(self._event_time * 1e6)
        delta = Delta(tuple(tables), {name: ArrayTensor(value) for name, value in values.items()}, dict(streams))
        self._write(delta, time)
        self.epoch = self._writer.position.epoch
        self.rows += sum(len(found.keys) for found in changed.values())
        self.deleted += sum(len(found.gone) for found in changed.values())
        self.written += 1
        self._variables.update(values)
        self.streams.update(streams)
        self._tables, self._told = {}, self._event_time
        return True

    def _differs(self, name: str, value: NDArray[np.float32]) -> bool:
        known = self._variables.get(name)
        return known is None or known.tobytes() != value.tobytes()

    def _write(self, delta: Any, time: int) -> None:
        try:
            if self._unsure:
                self._writer.resume()
            self._writer.publish(delta, event_time=time)
        except Exception as error:
            self._check_overtaken(error)
            self._unsure = True
            raise
        self._unsure = False

    def _check_overtaken(self, error: Exception) -> None:
        from graph_tools.errors import UnreadableError
        from graph_tools.store.timeline import list_terms

        try:
            greatest = max(list_terms(self._timeline), default=0)
        except UnreadableError:
            return
        if greatest > self._writer.term:
            raise OvertakenError(str(error)) from error


class OvertakenError(RuntimeError):
    """Another writer has taken over the timeline."""
