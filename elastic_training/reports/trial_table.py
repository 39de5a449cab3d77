# SPDX-License-Identifier: Apache-2.0
"""A native table that has one column, to see what an admission setting does with a stream of keys."""

from __future__ import annotations

import json
import uuid
import weakref
from typing import Any

import numpy as np
import tensorflow as tf

from elastic_training import _library
from elastic_training.admission import Admission
from elastic_training.config import TableConfig
from elastic_training.initializers import Zeros
from elastic_training.optimizers import SGD

# Kind of a row in the ops' `meta`.
_FULL = 1


def _destroy(handle: tf.Tensor) -> None:
    with tf.init_scope():
        tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)


class TrialTable:
    """A table that meets keys in training and is never updated: the filter and the records are those of real tables.

    Parameters
    ----------
    admission : Admission
    key : {"int64", "string"}
    seed : int
        Of the draws of filters that draw.

    Attributes
    ----------
    trained : int
        Occurrences that had a row, so training would have updated it.
    occurrences : int
        All occurrences.
    """

    def __init__(self, admission: Admission, key: str = "int64", seed: int = 0) -> None:
        config = TableConfig(
            "trial", 1, key=key, seed=seed, initializer=Zeros(), optimizer=SGD(0.0), admission=admission
        )
        with tf.init_scope(), tf.device("CPU:0"):
            self._handle = _library.ops().elastic_table(
                config=config.to_json(), shared_name=f"elastic_trial_{uuid.uuid4().hex}"
            )
        self._key_dtype = tf.string if key == "string" else tf.int64
        self.trained = self.occurrences = 0
        weakref.finalize(self, _destroy, self._handle).atexit = False

    def meet(self, keys: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Look keys [n] up in training; return which occurrences had a row [n] bool."""
        keys = tf.reshape(tf.convert_to_tensor(keys, self._key_dtype), [-1])
        _, places, _ = _library.ops().elastic_table_lookup(
            tables=[self._handle],
            keys=[keys],
            row_splits=[tf.constant([], tf.int64)],
            weights=[tf.constant([], tf.float32)],
            combiners=["none"],
            mask_zero=[False],
            training=True,
            dims=[1],
        )
        found: np.ndarray[Any, np.dtype[np.bool_]] = places[0].numpy() >= 0
        self.trained += int(found.sum())
        self.occurrences += found.size
        return found

    def counts_of(self, keys: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return how often the table has counted keys [n] int64, and whether they have a row [n] bool."""
        meta = _library.ops().elastic_table_read(self._handle, tf.convert_to_tensor(keys, self._key_dtype))[2].numpy()
        return meta[:, 1], meta[:, 2] == _FULL

    def keys(self) -> np.ndarray[Any, Any]:
        """Return the keys that have a row."""
        keys, _, _, meta = _library.ops().elastic_table_export(self._handle, 0, 1, Tkeys=self._key_dtype)
        with_row: np.ndarray[Any, Any] = keys.numpy()[meta.numpy()[:, 2] == _FULL]
        return with_row

    def stats(self) -> dict[str, Any]:
        """Return the counters of the table and of its filter."""
        return dict(json.loads(_library.ops().elastic_table_stats(self._handle).numpy()))
