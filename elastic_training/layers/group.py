# SPDX-License-Identifier: Apache-2.0
"""Features of a layer, and the tables that they share, looked up and updated by one op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from elastic_training.layers import native
from elastic_training.layers.feature import Feature, check_table, config_of, merge
from elastic_training.layers.gradient import Entry, look_up
from elastic_training.layers.keys import FlatKeys, as_keys, flatten, is_key, kind_of
from elastic_training.layers.pooling import pool
from elastic_training.layers.trap import TrapState
from elastic_training.optimizers import Optimizer
from elastic_training.table import Table


class FeatureGroup:
    """The features of one layer.

    Tables are made when their keys are first seen, since that tells integers from strings.

    Parameters
    ----------
    owner : str
        What messages call the layer.
    features : {name: Feature}
    defaults : {field: value}
        Settings of tables for which no feature says: fields of Feature.
    """

    def __init__(self, owner: str, features: Mapping[str, Feature], defaults: Mapping[str, Any]) -> None:
        if not features:
            raise ValueError(f"{owner}: no features, expected at least one")
        self.owner = owner
        self._features = dict(features)
        self._sharing: dict[str, list[str]] = {}
        self._settings: dict[str, dict[str, Any]] = {}
        self._given: dict[str, Table] = {}
        for name, feature in features.items():
            self._sharing.setdefault(self.table_of(name), []).append(name)
            if isinstance(feature.table, Table):
                given = self._given.setdefault(feature.table.name, feature.table)
                if given is not feature.table:
                    raise ValueError(f"{owner}: two tables have the name {given.name!r}, expected one Table")
        for table, names in self._sharing.items():
            merged = merge(owner, table, {name: features[name] for name in names}, {})
            if table in self._given:
                check_table(owner, self._given[table], merged)
            self._settings[table] = {**defaults, **merged}
        self.tables: dict[str, Table] = dict(self._given)
        self.state = TrapState(owner, self._optimizers)
        # Called with each table that this object makes.
        self.on_table: Callable[[Table], None] = lambda table: None

    def table_of(self, feature: str) -> str:
        """Return the name of a feature's table."""
        table = self._features[feature].table
        return table.name if isinstance(table, Table) else table or feature

    def dim_of(self, feature: str) -> int:
        table = self.table_of(feature)
        dim = self._given[table].dim if table in self._given else self._settings[table].get("dim")
        if dim is None:
            raise ValueError(f"{self.owner}: table {table!r}: no dim, expected the number of columns")
        return int(dim)

    def _optimizers(self) -> list[Optimizer]:
        return [table.settings.optimizer for table in self.tables.values()]

    def prepare(self, dtypes: Mapping[str, Any]) -> None:
        """Make the tables of features that have none yet.

        Parameters
        ----------
        dtypes : {feature: dtype of its keys}

        Raises
        ------
        ValueError
            If they are neither integers nor strings, or a table has keys of the other kind.
        """
        for feature, dtype in dtypes.items():
            kind = kind_of(self._what(feature), dtype)
            name = self.table_of(feature)
            if name not in self.tables:
                config = config_of(self.owner, name, kind, self._settings[name])
                with tf.init_scope():
                    self.tables[name] = Table(config)
                    self.on_table(self.tables[name])
            has = self.tables[name].settings.key
            if has != kind:
                what = f"keys of feature {feature!r} are {kind}, but table {name!r} has {has} keys"
                raise ValueError(f"{self.owner}: {what}")

    def only_table(self) -> Table:
        """Return the table of a layer with one feature.

        Raises
        ------
        ValueError
            If it does not exist yet, because the layer has seen no keys.
        """
        for table in self.tables.values():
            return table
        raise ValueError(f"{self.owner}: no table yet, expected a call with keys, which tell integers from strings")

    def prepare_tables(self, keys: Mapping[str, str]) -> None:
        """Make tables from their names and kinds of keys; names that the layer does not have are left out."""
        for table in keys.keys() & self._sharing.keys():
            self.prepare(dict.fromkeys(self._sharing[table], keys[table]))

    def table_names(self) -> list[str]:
        """Return the names of all tables, also of those that do not exist yet."""
        return list(self._sharing)

    def readers(self) -> dict[str, Table]:
        """Return the table of each feature, of those that exist."""
        tables = {name: self.table_of(name) for name in self._features}
        return {name: self.tables[table] for name, table in tables.items() if table in self.tables}

    def kinds(self) -> dict[str, str]:
        """Return the kind of keys of each feature whose table exists."""
        return {name: table.settings.key for name, table in self.readers().items()}

    @tf.autograph.experimental.do_not_convert
    def look_up(
        self,
        inputs: Mapping[str, Any],
        weights: Mapping[str, Any],
        masks: Mapping[str, Any],
        trap: Any,
        training: bool | None,
    ) -> dict[str, Any]:
        """Return the output of each feature.

        Parameters
        ----------
        inputs, weights, masks : {feature: tensor}
            Features without weights or masks are left out of these two.
        trap : variable [] float32
        training : bool or None
            See look_up of gradient.py.
        """
        missing = self._features.keys() - inputs.keys()
        if missing:
            raise ValueError(f"{self.owner}: no input for feature {min(missing)!r}, expected {sorted(self._features)}")
        for name in [*weights, *masks]:
            if name not in self._features:
                raise ValueError(f"{self.owner}: weights or mask of {name!r}, expected one of {sorted(self._features)}")
        keys = {name: as_keys(self._what(name), inputs[name]) for name in self._features}
        self.prepare({name: value.dtype for name, value in keys.items()})
        find = native.current()
        if find is not None:
            return {
                name: native.look_up(
                    self._what(name),
                    find,
                    self.tables[self.table_of(name)],
                    feature,
                    keys[name],
                    weights.get(name),
                    masks.get(name),
                )
                for name, feature in self._features.items()
            }
        flat = {
            name: flatten(
                self._what(name), keys[name], weights.get(name), masks.get(name), pooled=feature.combiner is not None
            )
            for name, feature in self._features.items()
        }
        entries = [self._entry(table, {name: flat[name] for name in names}) for table, names in self._sharing.items()]
        rows = look_up(self.owner, entries, trap, self.state, training)
        outputs: dict[str, Any] = {}
        for entry, found, names in zip(entries, rows, self._sharing.values(), strict=True):
            for name, part in zip(names, self._parts(entry, found, [flat[name] for name in names]), strict=True):
                outputs[name] = flat[name].restore(self._pooled(name, entry, part, flat[name]))
        return {name: outputs[name] for name in self._features}

    def _what(self, feature: str) -> str:
        return self.owner if len(self._features) == 1 else f"{self.owner}: feature {feature!r}"

    def _entry(self, table: str, flat: Mapping[str, FlatKeys]) -> Entry:
        """Return the lookup in a table for all its features.

        The op pools if there is one combiner and no weights. Features without combiner may be among them: each of their
        keys is pooled alone, which leaves it as it is.
        """
        features = [self._features[name] for name in flat]
        combiners = {feature.combiner for feature in features} - {None}
        fused = (
            len(combiners) == 1
            and all(keys.weights is None for keys in flat.values())
            and not self.tables[table].settings.optimizer.clips
        )
        keys = [part.values for part in flat.values()]
        return Entry(
            self.tables[table],
            keys[0] if len(keys) == 1 else tf.concat(keys, 0),
            _join_splits([_splits_of(part) for part in flat.values()]) if fused else None,
            combiners.pop() if fused else None,
            features[0].mask_zero,
        )

    def _parts(self, entry: Entry, rows: tf.Tensor, flat: list[FlatKeys]) -> list[tf.Tensor]:
        """Cut the rows of an entry into those of its features."""
        if len(flat) == 1:
            return [rows]
        if entry.row_splits is not None:
            sizes = [tf.shape(_splits_of(keys))[0] - 1 for keys in flat]
        else:
            sizes = [tf.shape(keys.values)[0] for keys in flat]
        return list(tf.split(rows, sizes))

    def _pooled(self, name: str, entry: Entry, rows: tf.Tensor, flat: FlatKeys) -> tf.Tensor:
        """Pool the rows of a feature that the op has not pooled."""
        feature = self._features[name]
        if feature.combiner is None or entry.row_splits is not None:
            return rows
        weights = tf.ones(tf.shape(flat.values)) if flat.weights is None else flat.weights
        if feature.mask_zero:
            weights = tf.where(is_key(flat.values), weights, 0.0)
        return pool(rows, flat.row_splits, weights, feature.combiner)


def _splits_of(keys: FlatKeys) -> tf.Tensor:
    """Return the row splits of a feature's keys; without a combiner each key is a row."""
    return tf.range(tf.shape(keys.values, tf.int64)[0] + 1) if keys.row_splits is None else keys.row_splits


def _join_splits(splits: list[Any]) -> tf.Tensor:
    """Return the row splits [rows + 1] of the concatenated keys."""
    joined, end = [splits[0]], splits[0][-1]
    for part in splits[1:]:
        joined.append(part[1:] + end)
        end += part[-1]
    return joined[0] if len(joined) == 1 else tf.concat(joined, 0)
