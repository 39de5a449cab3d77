# SPDX-License-Identifier: Apache-2.0
"""Rows of keys that are made of a few rows of a small table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from elastic_training.layers import native
from elastic_training.layers.feature import Feature
from elastic_training.layers.group import FeatureGroup
from elastic_training.layers.keys import FlatKeys, as_keys, flatten, is_key, kind_of
from elastic_training.layers.pooling import COMBINERS, pool
from elastic_training.layers.row_codes import RowCode
from elastic_training.table import Table

COMBINES = ("add", "mul", "concat")
# The key of the table that stands for no key; rows are numbered from 1.
_NO_KEY = 0


class CompressedGroup:
    """The table of a layer whose keys have several rows each, and how these become one.

    Parameters
    ----------
    owner : str
        What messages call the layer.
    feature : Feature
        With the columns of the output as `dim`, and the name of the table.
    code : RowCode
    combine : {"add", "mul", "concat"}
    """

    def __init__(self, owner: str, feature: Feature, code: RowCode, combine: str) -> None:
        if combine not in COMBINES:
            raise ValueError(f"{owner}: combine is {combine!r}, expected 'add', 'mul' or 'concat'")
        if feature.combiner is not None and feature.combiner not in COMBINERS:
            raise ValueError(f"{owner}: combiner is {feature.combiner!r}, expected None, 'sum', 'mean' or 'sqrtn'")
        parts = len(code.sizes)
        if combine == "concat" and feature.dim is not None and feature.dim % parts:
            raise ValueError(f"{owner}: dim {feature.dim} in {parts} parts, expected a multiple of {parts}")
        self.owner, self.feature, self.code, self.combine = owner, feature, code, combine
        columns = feature.dim // parts if combine == "concat" and feature.dim is not None else feature.dim
        # A product has to be made before rows are pooled; sums and pieces of rows may be pooled first.
        self._pools_first = feature.combiner is not None and combine != "mul"
        settings = {**vars(feature), "dim": columns, "mask_zero": True}
        self._part = Feature(**{**settings, "combiner": feature.combiner if self._pools_first else None})
        self._names = [f"part_{number}" for number in range(parts)]
        self._group = FeatureGroup(owner, dict.fromkeys(self._names, self._part), {})
        # "int64" or "string", once keys were seen.
        self.kind: str | None = None

    @property
    def tables(self) -> dict[str, Table]:
        return self._group.tables

    @property
    def state(self) -> Any:
        return self._group.state

    @property
    def on_table(self) -> Callable[[Table], None]:
        """Called with the table when it is made."""
        return self._group.on_table

    @on_table.setter
    def on_table(self, function: Callable[[Table], None]) -> None:
        self._group.on_table = function

    def only_table(self) -> Table:
        """Return the table; it exists once the layer has seen keys."""
        return self._group.only_table()

    def prepare_tables(self, keys: Mapping[str, str]) -> None:
        """Make the table, as FeatureGroup does."""
        self._group.prepare_tables(keys)

    def table_names(self) -> list[str]:
        """Return the name of the table, as FeatureGroup does."""
        return self._group.table_names()

    def readers(self) -> dict[str, Table]:
        """Return the table as that of the feature "keys", if it exists."""
        return dict.fromkeys(["keys"], self.only_table()) if self.tables else {}

    def kinds(self) -> dict[str, str]:
        return {} if self.kind is None else {"keys": self.kind}

    def prepare(self, kinds: Mapping[str, Any]) -> None:
        """Make the table, and note the kind of keys.

        Parameters
        ----------
        kinds : {"keys": dtype of the keys}

        Raises
        ------
        ValueError
            If they are neither integers nor strings, or of another kind than before: as a string, a number has other
            rows.
        """
        for dtype in kinds.values():
            kind = kind_of(self.owner, dtype)
            if self.kind not in (None, kind):
                raise ValueError(f"{self.owner}: keys are {kind}, expected {self.kind}, as before")
            self.kind = kind
            self._group.prepare(dict.fromkeys(self._names, tf.int64))

    @tf.autograph.experimental.do_not_convert
    def look_up(self, inputs: Any, weights: Any, mask: Any, trap: Any, training: bool | None) -> Any:
        """Return the rows [*keys, dim] float32; the arguments are those of HashEmbedding.call."""
        keys = as_keys(self.owner, inputs)
        self.prepare({"keys": keys.dtype})
        if self.feature.combiner is None or self._pools_first:
            return self._joined(self._rows(keys, weights, mask, trap, training))
        flat = flatten(self.owner, keys, weights, mask, pooled=True)
        rows = self._joined(self._rows(flat.values, None, None, trap, training))
        return flat.restore(self._pooled(rows, flat))

    def _rows(self, keys: Any, weights: Any, mask: Any, trap: Any, training: bool | None) -> list[Any]:
        """Return the rows of each part."""
        find = native.current()
        if find is not None:
            table = self.only_table()
            plain = Feature(**{**vars(self._part), "mask_zero": self.feature.mask_zero})
            finds = [self._find_of(find, number) for number in range(len(self._names))]
            return [native.look_up(self.owner, each, table, plain, keys, weights, mask) for each in finds]
        numbers = self._numbers(keys)
        given = dict(zip(self._names, numbers, strict=True))
        found = self._group.look_up(given, self._for_parts(weights), self._for_parts(mask), trap, training)
        return list(found.values())

    def _for_parts(self, value: Any) -> dict[str, Any]:
        return {} if value is None else dict.fromkeys(self._names, value)

    def _find_of(self, find: native.Find, part: int) -> native.Find:
        """Return the lookup of a part's rows for keys of the layer, in a graph that is exported."""
        return lambda table, keys: find(table, self._places(keys)[part])

    def _places(self, keys: tf.Tensor) -> list[tf.Tensor]:
        """Return the keys of the table for keys of the layer, for each part."""
        offsets = self.code.offsets
        return [place + (offset + 1) for place, offset in zip(self.code.places(keys), offsets, strict=True)]

    def _numbers(self, keys: Any) -> list[Any]:
        """Return the same for keys of any form, and 0 for a key that means none."""
        flat = keys.values if isinstance(keys, tf.SparseTensor) else getattr(keys, "flat_values", keys)
        numbers = self._places(flat)
        if self.feature.mask_zero:
            numbers = [tf.where(is_key(flat), each, tf.constant(_NO_KEY, tf.int64)) for each in numbers]
        if isinstance(keys, tf.SparseTensor):
            return [tf.SparseTensor(keys.indices, each, keys.dense_shape) for each in numbers]
        return [keys.with_flat_values(each) for each in numbers] if isinstance(keys, tf.RaggedTensor) else numbers

    def _joined(self, rows: list[Any]) -> Any:
        if isinstance(rows[0], tf.RaggedTensor):
            return rows[0].with_flat_values(self._joined([each.flat_values for each in rows]))
        if self.combine == "concat":
            return tf.concat(rows, -1)
        if self.combine == "add":
            return rows[0] if len(rows) == 1 else tf.add_n(rows)
        product = rows[0]
        for each in rows[1:]:
            product = product * each
        return product

    def _pooled(self, rows: tf.Tensor, flat: FlatKeys) -> tf.Tensor:
        assert self.feature.combiner is not None
        weights = tf.ones(tf.shape(flat.values)) if flat.weights is None else flat.weights
        if self.feature.mask_zero:
            weights = tf.where(is_key(flat.values), weights, 0.0)
        return pool(rows, flat.row_splits, weights, self.feature.combiner)
