# SPDX-License-Identifier: Apache-2.0
"""Publish the epochs of a trainer, whose changes are arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.errors import UsageError
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.readers.lineage import digest_model
from graph_tools.store.delta import Delta, TableDelta
from graph_tools.store.lineage import read_lineage
from graph_tools.store.segment_layout import LINEAGE_BYTES, UNKNOWN_TIME
from graph_tools.store.timeline import Position
from graph_tools.store.timeline_writer import TimelineWriter
from graph_tools.store.trainer_progress import check_event_time, check_streams
from graph_tools.tensors import Array, ArrayTensor, TensorSource
from graph_tools.verbs.exports import check_export

Keys = Array | Sequence[int] | Sequence[str] | Sequence[bytes]


class Publisher:
    """Publishes epochs of the timeline that begins with an export; each new publisher stops the one before.

    Parameters
    ----------
    timeline : path
        The folder; it is created if needed.
    export : path
        The export with which the timeline begins. It tells the names, kinds and sizes of tables and variables.
    about : str
        Text about the publisher, for people.
    permit_not_finite : bool
        Publish NaN and infinities as well, which servers refuse.

    Raises
    ------
    UnreadableError, UsageError, ConversionError
        The export cannot be read, or the timeline cannot be continued.
    """

    def __init__(
        self, timeline: str | Path, export: str | Path, about: str = "", *, permit_not_finite: bool = False
    ) -> None:
        model = read_model(Path(export), absent_key={"*": "zero"})
        check_export(model, "deltas have the variables of exports")
        self._path = Path(export)
        start = read_lineage(self._path) or Position.start(digest_model(model)[:LINEAGE_BYTES])
        PruneUnreachable().apply(model)
        self._tables = {
            name: ("string" if table.key_dtype == np.dtype(object) else "int64", table.dim)
            for name, table in model.sparse_tables.items()
        }
        self._variables = {name: tuple(tensor.shape) for name, tensor in model.variables.items()}
        self._writer = TimelineWriter(Path(timeline), start, about, permit_not_finite=permit_not_finite)

    @property
    def epoch(self) -> int:
        """Return the last epoch of the timeline."""
        return self._writer.position.epoch

    def publish(
        self,
        rows: Mapping[str, tuple[Keys, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        *,
        deleted: Mapping[str, Keys] | None = None,
        streams: Mapping[str, int] | None = None,
        event_time: float | None = None,
    ) -> int:
        """Publish the changes of the next epoch, and return its number.

        Parameters
        ----------
        rows : mapping of str to (keys [n], rows [n, dim] float32)
            New and changed rows by table, in any order. The keys of a variable are row numbers.
        variables : mapping of str to array float32
            New values of whole variables.
        deleted : mapping of str to keys [m]
            Keys that tables no longer have.
        streams : mapping of str to int
            By stream, the position of the next message that the trainer reads.
        event_time : float, optional [s since 1970]
            The time of the newest sample that the trainer had seen.

        Raises
        ------
        UsageError
            No output of the export needs such a table or variable, sizes differ, or a position or time is invalid;
            nothing is published.
        ConversionError
            As for `TimelineWriter.publish`.
        """
        rows, deleted = rows or {}, deleted or {}
        tables = tuple(self._table(name, rows.get(name), deleted.get(name)) for name in sorted({*rows, *deleted}))
        values: dict[str, TensorSource] = {
            name: self._variable(name, value) for name, value in sorted((variables or {}).items())
        }
        time = UNKNOWN_TIME if event_time is None else round(check_event_time(event_time) * 1e6)
        delta = Delta(tables, values, check_streams(streams or {}))
        return self._writer.publish(delta, event_time=time).header.last_epoch

    def _table(self, name: str, changed: tuple[Keys, Any] | None, deleted: Keys | None) -> TableDelta:
        kind, dim = self._kind(name)
        keys, order = _ascending(name, () if changed is None else changed[0], kind)
        rows = np.asarray(np.empty((0, dim)) if changed is None else changed[1], np.float32)
        if rows.size != len(keys) * dim:
            found = f"{list(rows.shape)} elements for {len(keys)} keys"
            raise UsageError(f"rows of '{name}': {found}, expected [{len(keys)}, {dim}]")
        rows = rows.reshape(len(keys), dim)[order]
        gone, _ = _ascending(name, () if deleted is None else deleted, kind)
        return TableDelta(name, kind, dim, ArrayTensor(keys), ArrayTensor(rows), ArrayTensor(gone))

    def _kind(self, name: str) -> tuple[str, int]:
        """Return the kind of a table's keys and the length of its rows."""
        if name in self._tables:
            return self._tables[name]
        matrices = {other: shape for other, shape in self._variables.items() if len(shape) > 1}
        if name not in matrices:
            raise self._unknown(name, [*self._tables, *matrices])
        return "row_number", math.prod(matrices[name][1:])

    def _variable(self, name: str, value: Any) -> ArrayTensor:
        if name not in self._variables:
            raise self._unknown(name, list(self._variables))
        found, shape = np.asarray(value, np.float32), self._variables[name]
        if found.shape != shape:
            raise UsageError(f"variable '{name}': shape {list(found.shape)}, expected {list(shape)} as in {self._path}")
        return ArrayTensor(found)

    def _unknown(self, name: str, known: list[str]) -> UsageError:
        listed = ", ".join(sorted(known)) or "none"
        return UsageError(f"'{name}': not what an output of {self._path} needs, expected one of {listed}")


def _ascending(name: str, keys: Keys, kind: str) -> tuple[Array, Array]:
    """Return keys in ascending order, and the places that they had; raise `UsageError` if one occurs twice, or they are
    of another kind.
    """
    found = np.empty(len(keys), object)
    if kind == "string":
        found[:] = [key.encode() if isinstance(key, str) else key for key in keys]
        fits, wanted = all(isinstance(key, bytes) for key in found), "strings"
    else:
        found = np.asarray(keys) if len(keys) else np.empty(0, np.int64)
        fits, wanted = np.issubdtype(found.dtype, np.integer), "integers"
    if not fits:
        raise UsageError(f"keys of '{name}': not all are {wanted}, expected only {wanted}")
    found = found if kind == "string" else found.astype(np.int64)
    order = np.argsort(found, kind="stable")
    found = found[order]
    twice = np.flatnonzero(found[1:] == found[:-1])
    if len(twice):
        raise UsageError(f"keys of '{name}': {found.tolist()[twice[0]]!r} occurs twice, expected each key once")
    return found, order
