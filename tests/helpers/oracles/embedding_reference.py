# SPDX-License-Identifier: Apache-2.0
"""Compute the plan of a RecEmbeddingGroup in NumPy, and the content of its tables, without any kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graph_tools.graph import Node, Output, attribute
from graph_tools.model import Model
from graph_tools.plans.embedding_parts import (
    Add,
    Bits,
    Bucketize,
    Clip,
    Copy,
    Divide,
    FastHash,
    Key,
    Linear,
    Lookup,
    Mod,
    Multiply,
    Step,
    ToString,
    WrapNegative,
    XorShift,
)
from graph_tools.plans.embedding_plan import EmbeddingPlan
from graph_tools.store.quantize import decode
from graph_tools.store.spec import EncodedRows, TableSpec

Array = np.ndarray[Any, Any]
OP = "RecEmbeddingGroup"


class AbsentKeyError(LookupError):
    """An absent key was looked up in a table that refuses absent keys."""


def groups(model: Model) -> list[tuple[Node, EmbeddingPlan]]:
    """List the groups of a model with their plans."""
    found = model.graph.of(OP)
    return [(node, EmbeddingPlan.from_json(attribute(node, "plan"))) for node in found]


def group(model: Model) -> tuple[Node, EmbeddingPlan]:
    """Return the only group of a model."""
    (found,) = groups(model)
    return found


def tables_of(model: Model, node: Node) -> list[TableSpec]:
    """List the tables of a group."""
    return [model.embedding_tables[source.node] for source in node.inputs if source.node in model.embedding_tables]


def rows_of(spec: TableSpec, rows: Any) -> Array:
    """Return rows [n, dim] float32."""
    held: Array = np.concatenate([np.zeros((0, *rows.shape[1:]), rows.dtype), *rows.chunks(3)])
    assert held.shape == rows.shape
    return decode(held, spec.row_type, spec.dim) if isinstance(rows, EncodedRows) else held.astype(np.float32)


def fingerprints(strings: Sequence[bytes], buckets: int) -> list[int]:
    """Return the result of StringToHashBucketFast."""
    import tensorflow as tf

    return [int(bucket) for bucket in tf.strings.to_hash_bucket_fast(list(strings) or [b""], buckets).numpy()][
        : len(strings)
    ]


class Table:
    """Return the result of a lookup of one key."""

    def __init__(self, spec: TableSpec) -> None:
        self.spec, self.rows = spec, rows_of(spec, spec.rows)
        self.default = None if spec.default_rows is None else rows_of(spec, spec.default_rows)
        self.places: dict[Any, int] | None = None
        if spec.keys is not None:
            keys = [key for chunk in spec.keys.chunks(3) for key in chunk.tolist()]
            numbers: list[int] = list(range(len(keys)))
            if spec.row_numbers is not None:
                numbers = [number for chunk in spec.row_numbers.chunks(3) for number in chunk.tolist()]
            assert len(set(keys)) == len(keys) == len(numbers)
            self.places = dict(zip(keys, numbers, strict=True))

    def row(self, key: Any) -> Array:
        places = self.places
        place = places.get(key) if places is not None else key if 0 <= key < len(self.rows) else None
        if place is not None:
            return self.rows[place]
        if self.spec.absent_key == "error":
            raise AbsentKeyError(key)
        if self.default is None:
            return np.zeros(self.spec.dim, np.float32)
        count = len(self.default)
        return self.default[fingerprints([key], count)[0] if isinstance(key, bytes) else key % count]


_WORD = (1 << 64) - 1


def _applied(step: Step, values: list[Any]) -> list[Any]:
    simple: dict[type, Callable[[Any, Any], Any]] = {
        ToString: lambda _, v: str(v).encode(),
        Mod: lambda s, v: v % s.by,
        Add: lambda s, v: v + s.value,
        Multiply: lambda s, v: v * s.value,
        Clip: lambda s, v: min(max(v, s.low), s.high),
        WrapNegative: lambda s, v: v + s.by if v < 0 else v,
        Divide: lambda s, v: v // s.by,
        # Of numbers beyond 64 bits, which sums and products may be here, the lowest 64 count.
        XorShift: lambda s, v: (v & _WORD) ^ (v & _WORD) >> s.by,
        Bits: lambda s, v: sum((v >> s.first + i * s.every & 1) << i for i in range(s.count)),
        Bucketize: lambda s, v: int(np.searchsorted(np.array(s.boundaries, np.float32), v, side="right")),
    }
    if isinstance(step, FastHash):
        return fingerprints(values, step.buckets)
    return [simple[type(step)](step, value) for value in values]


def keys_of(key: Key, features: Sequence[Array]) -> list[list[tuple[Any, bool, int]]]:
    """Return, for each row of the batch, (key, counts as none, position among the values)."""
    values = features[key.feature]
    flat = [value.encode() if isinstance(value, str) else value for value in values.reshape(-1).tolist()]
    ignore = key.ignore.encode() if isinstance(key.ignore, str) else key.ignore
    after = flat
    for step in key.steps:
        after = _applied(step, after)
    none = [
        (ignore is not None and before == ignore) or (key.ignore_negative and after_key < 0)
        for before, after_key in zip(flat, after, strict=True)
    ]
    entries = [(value, gone, place) for place, (value, gone) in enumerate(zip(after, none, strict=True))]
    if key.layout == "dense":
        width = len(flat) // max(1, len(values))
        return [entries[i * width : (i + 1) * width] for i in range(len(values))]
    if key.layout == "sparse":
        assert key.indices is not None
        assert key.shape is not None
        rows, count = features[key.indices][:, 0], int(features[key.shape][0])
    else:
        assert key.segment_ids is not None
        assert key.rows is not None
        rows, count = features[key.segment_ids], int(features[key.rows])
    return [[entry for entry, row in zip(entries, rows, strict=True) if row == i] for i in range(count)]


def computed(plan: EmbeddingPlan, features: Sequence[Array], specs: Sequence[TableSpec]) -> list[Array]:
    """Compute the outputs of a plan."""
    tables = [Table(spec) for spec in specs]
    keys = [keys_of(key, features) for key in plan.keys]
    batch = len(keys[0]) if keys else len(features[0])
    made = [
        np.zeros((batch, output.width), np.float32) + np.array(output.initial or 0, np.float32)
        for output in plan.outputs
    ]
    for i, output in enumerate(plan.outputs):
        if output.sequence is not None:
            length = features[plan.keys[output.sequence].feature].shape[1]
            made[i] = np.zeros((batch, length, output.width), np.float32)
    for column in plan.columns:
        target = made[column.output]
        if isinstance(column, Copy):
            block = _matrix(features[column.feature]).astype(np.float32)
        elif isinstance(column, Linear):
            block = _matrix(features[column.feature]) @ np.array(column.weights, np.float32)
        else:
            factors = [(keys[factor.key], tables[factor.table]) for factor in column.factors]
            block = _looked_up(column, keys[column.key], tables[column.table], factors, features, target.ndim == 3)
        place = (..., slice(column.offset, column.offset + block.shape[-1]))
        target[place] = target[place] + block if column.accumulate else block
    return made


def _looked_up(
    column: Lookup, rows: Any, table: Table, factors: Any, features: Sequence[Array], sequence: bool
) -> Array:
    made = []
    zero = np.zeros(table.spec.dim, np.float32)
    for number, entries in enumerate(rows):
        found = [zero if gone else table.row(key) for key, gone, _ in entries]
        for keys, other in factors:
            others = [zero if gone else other.row(key) for key, gone, _ in keys[number]]
            found = [row * factor for row, factor in zip(found, others, strict=True)]
        begin = entries[0][2] if entries else 0
        if column.combiner is None:
            made.append(np.stack(found) if sequence else np.concatenate(found))
            continue
        if column.weights is not None and column.positive_weights:
            given = features[column.weights].reshape(-1)
            entries = [entry for entry in entries if given[entry[2]] > 0]
        kept = [(found[place - begin], place) for key, gone, place in entries if not gone]
        if not kept:
            made.append(zero if column.empty is None else table.row(_bytes(column.empty)))
            continue
        weights = np.ones(len(kept), np.float32)
        if column.weights is not None:
            weights = features[column.weights].reshape(-1)[[place for _, place in kept]]
        total = sum(w * row for w, (row, _) in zip(weights, kept, strict=True))
        scale = {"sum": 1.0, "mean": weights.sum(), "sqrtn": np.sqrt((weights**2).sum())}[column.combiner]
        made.append(np.asarray(total / np.float32(scale), np.float32))
    return np.stack(made) if made else np.zeros((0, table.spec.dim), np.float32)


def _matrix(values: Array) -> Array:
    return values.reshape(len(values), int(np.prod(values.shape[1:])))


def _bytes(key: Any) -> Any:
    return key.encode() if isinstance(key, str) else key


def features_of(model: Model, node: Node) -> list[Output]:
    """Return the input tensors of a group."""
    return [source for source in node.inputs if source.node not in model.embedding_tables]
