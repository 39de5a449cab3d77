# SPDX-License-Identifier: Apache-2.0
"""A table of embedding rows, which a resource of TensorFlow holds."""

from __future__ import annotations

import json
import uuid
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from elastic_training import _library
from elastic_training.config import TableConfig

# Kinds of `RowContents.meta[:, 2]`.
ABSENT, FULL, RELEASED, CANDIDATE = range(4)


@dataclass(frozen=True)
class RowContents:
    """Contents of rows.

    Attributes
    ----------
    weights : tensor [n, dim] float32
    slots : tensor [n, slots] float32
        State of the optimizer.
    meta : tensor [n, 3] int64
        Last touch [s since 2020-01-01 UTC]; how often training looked the key up; kind: 0 absent, 1 row, 2 released
        (all zero, nothing stored), 3 candidate (counted by admission, not admitted).
    """

    weights: tf.Tensor
    slots: tf.Tensor
    meta: tf.Tensor


def _destroy(handle: tf.Tensor) -> None:
    # It may run while some graph is built, such as that of a SavedModel.
    with context.eager_mode():
        tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)


class Table:
    """The owner of a table: it makes the table, and frees its memory when it is collected.

    Any number of threads may use a table at once; no row is read torn.

    Parameters
    ----------
    config : TableConfig or mapping
        A mapping has the members of `TableConfig.to_json()`, and may have `stop_on_nan`: a gradient that is not finite
        is then an error instead of being refused and counted.

    Raises
    ------
    tensorflow.errors.InvalidArgumentError
        A field is unknown or has a wrong value; the message names the table and the field.
    """

    def __init__(self, config: TableConfig | Mapping[str, Any]) -> None:
        text = config.to_json() if isinstance(config, TableConfig) else json.dumps(dict(config))
        # What the op of the table was given.
        self.fields: dict[str, Any] = json.loads(text)
        fields = self.fields
        self.config = config
        self.name = str(fields.get("name", ""))
        with tf.init_scope(), tf.device("CPU:0"):
            self.handle: tf.Tensor = _library.ops().elastic_table(
                config=text, shared_name=f"elastic_table_{self.name}_{uuid.uuid4().hex}"
            )
        self.dim = int(fields["dim"])
        self.key_dtype = tf.string if fields.get("key") == "string" else tf.int64
        finalizer = weakref.finalize(self, _destroy, self.handle)
        # At exit TensorFlow frees everything itself.
        finalizer.atexit = False

    @property
    def settings(self) -> TableConfig:
        """The configuration, for layers.

        Raises
        ------
        ValueError
            If the table was made of a mapping, which has no learning rate.
        """
        if not isinstance(self.config, TableConfig):
            raise ValueError(f"table {self.name!r}: made of a mapping, expected a Table of a TableConfig")
        return self.config

    def __repr__(self) -> str:
        return f"<Table {self.name!r}: {self.dim} columns, {self.key_dtype.name} keys, {self.size():,} rows>"

    def _as_keys(self, keys: Any) -> tf.Tensor:
        """Return keys as a tensor of the table's dtype.

        Raises
        ------
        ValueError
            If they are of another kind.
        """
        try:
            return tf.convert_to_tensor(keys, self.key_dtype)
        except (TypeError, ValueError) as error:
            kind = "strings" if self.key_dtype == tf.string else "64-bit integers"
            raise ValueError(f"table {self.name!r}: keys are not {kind}, expected {kind}: {error}") from error

    def lookup(self, keys: Any, *, training: bool = False) -> tf.Tensor:
        """Return the rows of keys.

        Parameters
        ----------
        keys : tensor [...] int64 or string
        training : bool
            Count the keys, and give rows to those that are admitted; otherwise nothing is written.

        Returns
        -------
        tensor [..., dim] float32
        """
        keys = self._as_keys(keys)
        outputs, _, _ = _library.ops().elastic_table_lookup(
            tables=[self.handle],
            keys=[keys],
            row_splits=[tf.constant([], tf.int64)],
            weights=[tf.constant([], tf.float32)],
            combiners=["none"],
            mask_zero=[False],
            training=training,
            dims=[self.dim],
        )
        return tf.reshape(outputs[0], tf.concat([tf.shape(keys), [self.dim]], axis=0))

    def insert(self, keys: Any, weights: Any = None, slots: Any = None, meta: Any = None) -> None:
        """Write rows, past admission.

        Parameters
        ----------
        keys : tensor [n] int64 or string
            The last of equal keys counts.
        weights, slots, meta : as in `RowContents`, or None
            None leaves what a row has; new rows get what training would give them.
        """
        empty = tf.constant([], tf.float32)
        _library.ops().elastic_table_insert(
            table=self.handle,
            keys=self._as_keys(keys),
            weights=empty if weights is None else tf.convert_to_tensor(weights, tf.float32),
            slots=empty if slots is None else tf.convert_to_tensor(slots, tf.float32),
            meta=tf.constant([], tf.int64) if meta is None else tf.convert_to_tensor(meta, tf.int64),
        )

    def read(self, keys: Any) -> RowContents:
        """Read rows without counting them; keys without a row read the default row."""
        return RowContents(*_library.ops().elastic_table_read(self.handle, self._as_keys(keys)))

    def prefetch(self, keys: Any) -> tf.Operation | None:
        """Ask the device for the rows on SSD of keys that a later step looks up, without waiting for them.

        Call it with the keys of the next batch while a step runs, or in the map of a `tf.data` pipeline.

        Parameters
        ----------
        keys : tensor [...] int64 or string
        """
        return _library.ops().elastic_table_prefetch(self.handle, self._as_keys(keys))

    def counts(self, keys: Any) -> tf.Tensor:
        """Return how often training has looked up each key, int64 like `keys`; 0 if the table does not know it."""
        keys = self._as_keys(keys)
        rows = _library.ops().elastic_table_read(self.handle, tf.reshape(keys, [-1]))
        return tf.reshape(rows.meta[:, 1], tf.shape(keys))

    def evict(self, keys: Any = None) -> int:
        """Remove rows and candidates, and return how many there were.

        Parameters
        ----------
        keys : tensor [n] int64 or string, or None
            None makes a sweep: what the strategy of the table's eviction condemns, and what its limits want to leave.
            Other threads may train meanwhile.
        """
        if keys is None:
            return int(_library.ops().elastic_table_sweep(self.handle))
        return int(_library.ops().elastic_table_evict(self.handle, self._as_keys(keys)))

    def export(self, part: int = 0, parts: int = 1) -> tuple[np.ndarray, RowContents]:
        """Return the keys and contents of all rows in one of `parts` ranges of hashes; each row is in one part."""
        keys, *rows = _library.ops().elastic_table_export(self.handle, part, parts, Tkeys=self.key_dtype)
        return keys.numpy(), RowContents(*rows)

    def step(self) -> tf.Tensor:
        """Return the number of updates so far: a scalar int64 tensor, for schedules of the learning rate."""
        return _library.ops().elastic_table_step(self.handle)

    def stats(self) -> dict[str, Any]:
        """Return the counters of the table.

        Among them are `evicted`, rows that left, and `eviction`: {`sweep_evicted`: rows and candidates that left by
        sweeps, `sweeps`, ...}.
        """
        return dict(json.loads(_library.ops().elastic_table_stats(self.handle).numpy()))

    def size(self) -> int:
        """Return the number of rows, without candidates."""
        return int(self.stats()["rows"])

    def bytes(self) -> int:
        """Return the memory of the table [bytes]."""
        return int(self.stats()["bytes"])
