# SPDX-License-Identifier: Apache-2.0
"""What an export and the segments of its timeline say together: the state at the last epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_training.export.changes import Changes
from elastic_training.export.contents import Contents


@dataclass
class State:
    """Rows and weights that servers have.

    Attributes
    ----------
    tables : {name in the export: all rows}
    variables : {name in the export: value, None if it is not known}
    streams : {stream: position of the next message}
    """

    tables: dict[str, Changes]
    variables: dict[str, NDArray[Any] | None]
    streams: dict[str, int] = field(default_factory=dict)


def read_state(export: Path, contents: Contents, timeline: Path, start: Any, last_epoch: int) -> State:
    """Return the state at an epoch of a timeline.

    Parameters
    ----------
    start : graph_tools.store.timeline.Position
        That of the export.

    Raises
    ------
    UnreadableError
        The export or a segment cannot be read.
    """
    from graph_tools.readers import read_model
    from graph_tools.store.timeline import TimelineReader

    model = read_model(export)
    tables = {}
    for table in contents.tables:
        kind = object if table.key == "string" else np.int64
        source = model.sparse_tables[table.name]
        keys = np.concatenate([np.asarray(part.keys.read(), kind) for part in source.parts])
        rows = np.concatenate([part.rows.read() for part in source.parts])
        tables[table.name] = Changes.of(keys, rows, np.empty(0, kind))
    state = State(tables, {entry.name: model.variables[entry.name].read() for entry in contents.variables})
    reader = TimelineReader(timeline, start)
    while reader.position.epoch < last_epoch and (segment := reader.next()) is not None:
        _apply(state, segment.delta)
    return state


def _apply(state: State, delta: Any) -> None:
    for table in delta.tables:
        if table.name in state.tables:
            changes = Changes(_read(table.changed), _read(table.rows), _read(table.deleted))
            before = state.tables[table.name].then(changes)
            state.tables[table.name] = Changes(before.keys, before.rows, before.gone[:0])
        elif table.name in state.variables:
            # Rows of a variable, by another writer.
            state.variables[table.name] = None
    for name, value in delta.variables.items():
        if name in state.variables:
            state.variables[name] = np.array(value.read())
    state.streams.update(delta.streams)


def _read(tensor: Any) -> NDArray[Any]:
    return np.array(tensor.read())
