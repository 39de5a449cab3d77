# SPDX-License-Identifier: Apache-2.0
"""The rows of tables at one instant, read while training goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from elastic_training import _library
from elastic_training.table import CANDIDATE, FULL, Table

# In the place of its kind, what a row on SSD has that a checkpoint leaves there: this bit and its place.
ON_SSD = 1 << 31

MEMORY_BYTES = 256 << 20
_READ_BYTES = 4 << 20


@dataclass(frozen=True)
class Keys:
    """Keys of a table.

    Attributes
    ----------
    numbers : ndarray [n] int64
        Keys, or fingerprints of strings.
    lengths : ndarray [n] uint32
        Of string keys [bytes]; empty for a table of numbers.
    texts : bytes
        The string keys, one after the other.
    """

    numbers: np.ndarray
    lengths: np.ndarray
    texts: bytes

    def of(self, table: Table) -> np.ndarray:
        """Return the keys as the table takes them: [n] int64 or bytes."""
        if table.key_dtype != tf.string:
            return self.numbers
        ends = np.cumsum(self.lengths, dtype=np.int64)
        texts = np.empty(len(ends), object)
        texts[:] = [self.texts[end - length : end] for end, length in zip(ends, self.lengths, strict=True)]
        return texts


@dataclass(frozen=True)
class Rows:
    """Rows of a table.

    Attributes
    ----------
    keys : Keys
    values : ndarray [rows of kind 1, dim + slots] float32
        Weights and state of the optimizer.
    meta : ndarray [n, 3] uint32
        Last touch [s since 2020-01-01 UTC], count, kind (1 row, 2 released row, 3 candidate).
    """

    keys: Keys
    values: np.ndarray
    meta: np.ndarray


class Reading:
    """Reads a cut that has begun.

    Attributes
    ----------
    tables : list of Table
    """

    tables: list[Table]
    _handle: Any = None

    def rows(self, position: int) -> Iterator[Rows]:
        """Read the rows of a table, in no order, some megabytes at a time."""
        while True:
            keys, lengths, texts, values, meta = _library.ops().elastic_table_cut_read(
                self._handle, position, _READ_BYTES
            )
            if keys.shape[0] == 0:
                return
            yield Rows(Keys(keys.numpy(), lengths.numpy(), texts.numpy()), values.numpy(), meta.numpy())

    def evicted(self, position: int) -> Keys:
        """Return the keys that were evicted since the cut before; those that came back are among the rows too."""
        keys, lengths, texts = _library.ops().elastic_table_cut_evicted(self._handle, position)
        return Keys(keys.numpy(), lengths.numpy(), texts.numpy())

    def end(self, *, succeeded: bool) -> bool:
        """End the cut, and return whether it succeeded, was read to its end and had all rows as they were."""
        if self._handle is None:
            return succeeded
        whole = bool(_library.ops().elastic_table_cut_end(self._handle, succeeded))
        self._handle = None
        return whole


class Cut(Reading):
    """All rows of tables as they were when this object was made, or those that had changed.

    Later changes are known by its token if `end` returns that the cut was whole.

    Parameters
    ----------
    tables : sequence of Table
        A table has one cut of this kind at a time.
    base : int
        Token of the cut whose changes are wanted; 0 for all rows.
    token : int
        Not 0 if a later cut may be of the changes since this one.
    memory_bytes : int
        Training waits while it has changed so many bytes of rows that were not read yet.
    leaves_ssd : bool
        Rows on SSD stay there: of them, the cut has places and the first 40 bits of hashes, or string keys.

    Attributes
    ----------
    changes_only : bool
        False if all rows are read, because a table does not have the changes since `base`.
    """

    def __init__(
        self,
        tables: Sequence[Table],
        base: int = 0,
        token: int = 0,
        memory_bytes: int = MEMORY_BYTES,
        leaves_ssd: bool = False,
    ) -> None:
        self.tables = list(tables)
        self.changes_only = False
        if not self.tables:
            return
        handles = [table.handle for table in self.tables]
        self._handle, changes_only, steps, occurrences = _library.ops().elastic_table_cut_begin(
            handles, base, token, memory_bytes, leaves_ssd=leaves_ssd
        )
        self.changes_only = bool(changes_only)
        self._counters = np.stack([steps.numpy(), occurrences.numpy()], axis=1)

    def describe(self, position: int) -> dict[str, Any]:
        """Return what must be equal in a table that takes the rows, and its counters."""
        step, occurrences = self._counters[position]
        return {**description_of(self.tables[position]), "step": int(step), "occurrences": int(occurrences)}

    def promise(self, position: int) -> str:
        """Bring the rows of a table that stay on SSD to the device; return the run of its folder, "" if none stay."""
        run: bytes = _library.ops().elastic_table_cut_promise(self._handle, position).numpy()
        return run.decode()

    def filter(self, position: int) -> bytes:
        """Return the state of the admission filter; may be called once."""
        state: bytes = _library.ops().elastic_table_cut_filter(self._handle, position).numpy()
        return state


def description_of(table: Table) -> dict[str, Any]:
    """Return what the rows of a table depend on."""
    fields = table.fields
    slots = int(table.read(tf.zeros([0], table.key_dtype)).slots.shape[1])
    optimizer = fields.get("optimizer", {}).get("kind", "sgd")
    key = fields.get("key", "int64")
    admission = fields.get("admission", {"kind": "always"})
    found = {"name": table.name, "key": key, "dim": table.dim, "slots": slots, "optimizer": optimizer}
    return {**found, "admission": admission}


def check(table: Table, description: dict[str, Any], source: str) -> None:
    """Check that a table can take rows over.

    Raises
    ------
    ValueError
        If key, dimension or optimizer differ.
    """
    has = description_of(table)
    for field in ("key", "dim", "optimizer", "slots"):
        if has[field] == description[field]:
            continue
        what = "floats of optimizer state a row" if field == "slots" else field
        found = f"{what} is {description[field]!r}, expected {has[field]!r} as the table has"
        raise ValueError(f"{source}: table {table.name!r}: {found}")


class Restoring:
    """Fills a table with rows that were saved.

    Parameters
    ----------
    table : Table
    description : mapping
        What `Cut.describe` returned; `check` has passed.
    filter_state : bytes
    """

    def __init__(self, table: Table, description: dict[str, Any], filter_state: bytes) -> None:
        self._table = table
        self._description = description
        same = description["admission"] == description_of(table)["admission"]
        # With another filter, counts and candidates begin anew.
        self._filter = [filter_state] if same else []
        self._candidates = same
        # Refused before any row changes.
        self._set_state(step=-1)
        _library.ops().elastic_table_clear(table.handle)
        self._left_on_ssd = False

    def resume(self, run: str, tokens: Sequence[int]) -> None:
        """Let the table take the rows that checkpoints have left in its folder on SSD."""
        _library.ops().elastic_table_resume(self._table.handle, run, tf.constant(tokens, tf.int64))
        self._left_on_ssd = True

    def _set_state(self, step: int) -> None:
        state = tf.constant(self._filter, tf.string, shape=[len(self._filter)])
        occurrences = self._description["occurrences"]
        _library.ops().elastic_table_set_state(self._table.handle, step, occurrences, state)

    def evict(self, keys: Keys) -> None:
        if len(keys.numbers):
            self._table.evict(keys.of(self._table))

    def insert(self, rows: Rows) -> None:
        keys, kinds, dim = rows.keys.of(self._table), rows.meta[:, 2], self._table.dim
        full = kinds == FULL
        if full.any():
            meta = rows.meta[full].astype(np.int64)
            self._table.insert(keys[full], rows.values[:, :dim], rows.values[:, dim:], meta)
        on_ssd = kinds >= ON_SSD
        if on_ssd.any():
            meta = rows.meta[on_ssd].astype(np.int64)
            _library.ops().elastic_table_adopt(
                self._table.handle, tf.convert_to_tensor(keys[on_ssd], self._table.key_dtype), meta
            )
        full |= on_ssd
        others = ~full if self._candidates else ~full & (kinds != CANDIDATE)
        if others.any():
            self._table.insert(keys[others], meta=rows.meta[others].astype(np.int64))

    def end(self) -> None:
        """Set the counters, and the filter, which insertions have changed."""
        self._set_state(step=self._description["step"])
        if self._left_on_ssd:
            _library.ops().elastic_table_resume(self._table.handle, "", tf.constant([], tf.int64))


def to_json(description: dict[str, Any]) -> bytes:
    return json.dumps(description).encode()
