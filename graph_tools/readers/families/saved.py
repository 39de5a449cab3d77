# SPDX-License-Identifier: Apache-2.0
"""Read keys and rows that a checkpoint contains as `<name>-keys` and `<name>-values`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.graph import Node, attribute
from graph_tools.model import Model
from graph_tools.model.tables import Part, SparseTable
from graph_tools.tensors import Array, StreamTensor, TensorSource, rows_per_chunk

KEYS, VALUES = "-keys", "-values"


def checkpoint_of(model: Model, node: Node) -> Any:
    """Return the model's checkpoint; raise `UnreadableError` if it has none."""
    if model.checkpoint is None:
        raise UnreadableError(f"{model.path}: no checkpoint, expected one with the rows of '{node.name}'")
    return model.checkpoint


def find_saved(bundle: Any, names: list[str], node: Node) -> str:
    """Return the first of some names under which keys are saved."""
    for name in names:
        if name + KEYS in bundle:
            return name
    tried = " or ".join(f"'{name}{KEYS}'" for name in dict.fromkeys(names))
    raise UnreadableError(f"{bundle.index}: no tensor {tried}, expected the keys of the table '{node.name}'")


def tensor(bundle: Any, name: str) -> TensorSource:
    """Return a tensor that must exist."""
    if name not in bundle:
        raise UnreadableError(f"{bundle.index}: no tensor '{name}', expected it beside the table's other tensors")
    found: TensorSource = bundle.tensor(name)
    return found


def read_part(bundle: Any, keys: str, values: str) -> Part:
    """Return the part of a table that two tensors contain."""
    part = Part(tensor(bundle, keys), tensor(bundle, values))
    if part.keys.shape[:1] != part.rows.shape[:1]:
        raise UnreadableError(
            f"{bundle.index}: tensor '{keys}' has {_length(part.keys)} keys and '{values}' {_length(part.rows)} rows, "
            f"expected equally many"
        )
    return part


def _length(tensor: TensorSource) -> Any:
    return tensor.shape[0] if tensor.shape else "no"


def row_length(node: Node, shape_attribute: str) -> int:
    """Return the length of a table's rows from an attribute of its handle."""
    shape = attribute(node, shape_attribute)
    if shape is None or len(shape) != 1 or shape[0] is None:
        raise ConversionError(f"table '{node.name}': rows of shape {shape}, expected one axis of known length")
    return int(shape[0])


def numpy_type(node: Node, name: str) -> np.dtype[Any]:
    """Return a dtype attribute as a NumPy dtype; strings are `object`."""
    dtype: np.dtype[Any] = np.dtype(attribute(node, name).as_numpy_dtype)
    return dtype


def drop(model: Model, table: SparseTable, name: str, reason: str) -> None:
    """Record a tensor of the checkpoint that belongs to a table but that serving does not need."""
    if name in model.checkpoint and all(name != dropped_tensor for dropped_tensor, _, _ in table.dropped_tensors):
        table.dropped_tensors.append((name, model.checkpoint.byte_size(name), reason))


def rows_in_ranges(source: TensorSource, ranges: list[tuple[int, int]]) -> TensorSource:
    """Return ranges (begin, end) of a tensor's rows; they must be ascending and must not overlap."""
    count = sum(end - begin for begin, end in ranges)
    begins, ends = (
        np.array([bounds[0] for bounds in ranges], np.int64),
        np.array([bounds[1] for bounds in ranges], np.int64),
    )

    def make(rows: int) -> Iterator[Array]:
        position = 0
        for chunk in source.chunks(min(rows, rows_per_chunk(source))):
            first = np.searchsorted(ends, position, "right")
            last = np.searchsorted(begins, position + len(chunk), "left")
            for begin, end in zip(begins[first:last], ends[first:last], strict=True):
                part = chunk[max(begin - position, 0) : end - position]
                if len(part):
                    yield part
            position += len(chunk)

    return StreamTensor(source.dtype, (count, *source.shape[1:]), make)
