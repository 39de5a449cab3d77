# SPDX-License-Identifier: Apache-2.0
"""The content of a graph's native hash tables once they are filled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.analysis.ranges import count_lines
from graph_tools.graph import Node, Output, attribute, constant, skip, writes
from graph_tools.model import Model
from graph_tools.rewriting.outcome import Found, Refused
from graph_tools.tensors import Array, ArrayTensor, StreamTensor, TensorSource, rows_per_chunk

_READERS = {"LookupTableFindV2", "LookupTableSizeV2"}
_TABLES = {"HashTableV2", "MutableHashTableV2"}
_WHOLE_LINE, _LINE_NUMBER = -2, -1
_READ_BYTES = 1 << 22


@dataclass(frozen=True)
class Vocabulary:
    """Keys and their numbers.

    Attributes
    ----------
    keys : TensorSource [n] int64 or object
    values : TensorSource [n] integer, or None
        None: 0, 1, …, n - 1.
    least, most : int
        The least and the greatest value; 0 and -1 if there are no values.
    """

    keys: TensorSource
    values: TensorSource | None
    least: int
    most: int

    def holds(self, number: int) -> bool:
        """Return whether a key has a number."""
        if not self.least <= number <= self.most:
            return False
        if self.values is None:
            return True
        return any(bool((chunk == number).any()) for chunk in self.values.chunks(rows_per_chunk(self.values)))


class Vocabularies:
    """Reads the tables of a model, each once."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._known: dict[str, Found[Vocabulary] | Refused] = {}

    def of(self, handle: str) -> Found[Vocabulary] | Refused:
        """Return the content of a table, or the reason why it is not known."""
        if handle not in self._known:
            self._known[handle] = self._read(handle)
        return self._known[handle]

    def _read(self, handle: str) -> Found[Vocabulary] | Refused:
        model, node = self.model, self.model.graph[handle]
        if node.op not in _TABLES:
            return Refused(f"table '{handle}' is a {node.op}, expected one of {', '.join(sorted(_TABLES))}")
        users = [user for user in model.graph.users(handle) if user.op not in _READERS]
        content = model.hash_tables.get(handle)
        if content is not None:
            if any(writes(user) for user in users):
                return Refused(f"table '{handle}' is written by the graph")
            return _vocabulary(content.keys, content.values, handle)
        if len(users) != 1 or users[0].name not in model.graph.ancestors(model.init):
            return Refused(f"table '{handle}' has {len(users)} users besides lookups, expected its initializer only")
        return self._filled_by(users[0], handle)

    def _filled_by(self, filler: Node, handle: str) -> Found[Vocabulary] | Refused:
        if filler.op == "InitializeTableFromTextFileV2":
            file = self.model.assets.get(skip(self.model.graph, filler.inputs[1]).node)
            if file is None:
                return Refused(f"table '{handle}': no file that fills it")
            return _read_from_file(filler, file, handle)
        if filler.op not in {"InitializeTableV2", "LookupTableImportV2"}:
            return Refused(f"table '{handle}' is filled by {filler.op}")
        keys, values = (self._constant_or_range(source) for source in filler.inputs[1:3])
        if keys is None or values is None:
            return Refused(f"table '{handle}' is filled with values that are not constant")
        keys, values = keys.reshape(-1), values.reshape(-1)
        if len(keys) != len(values):
            return Refused(f"table '{handle}' is filled with {len(keys)} keys and {len(values)} values")
        # A key may occur twice, with the same value.
        first = sorted({key: i for i, key in reversed(list(enumerate(keys.tolist())))}.values())
        return _vocabulary(ArrayTensor(keys[first]), ArrayTensor(values[first]), handle)

    def _constant_or_range(self, output: Output) -> Array | None:
        """Return the elements of a constant, or of a Range between constants."""
        graph = self.model.graph
        node = graph[skip(graph, output).node]
        if node.op == "Cast":
            inner, after = self._constant_or_range(node.inputs[0]), attribute(node, "DstT")
            return inner.astype(after.as_numpy_dtype) if inner is not None and after.is_integer else None
        if node.op == "Range":
            bounds = [constant(graph, source) for source in node.inputs]
            if any(bound is None for bound in bounds):
                return None
            return np.arange(*(int(bound.item()) for bound in bounds if bound is not None), dtype=np.int64)
        return constant(graph, output)


def _vocabulary(keys: TensorSource, values: TensorSource | None, handle: str) -> Found[Vocabulary] | Refused:
    count = keys.shape[0]
    if keys.dtype.kind not in "iuO" or (values is not None and values.dtype.kind not in "iu"):
        found = keys.dtype if values is None else f"{keys.dtype} -> {values.dtype}"
        return Refused(f"table '{handle}' maps {found}, expected integers or strings to integers")
    if values is None:
        return Found(Vocabulary(_as_int64(keys), None, 0, count - 1))
    if values.shape != (count,):
        return Refused(f"table '{handle}' has values {list(values.shape)}, expected one number for each key")
    least, most = 0, -1
    first, position = None, 0
    counting = True
    for chunk in values.chunks(rows_per_chunk(values)):
        if not len(chunk):
            continue
        low, high = int(chunk.min()), int(chunk.max())
        least, most = (low, high) if first is None else (min(least, low), max(most, high))
        first = low
        counting = counting and bool((chunk == np.arange(position, position + len(chunk))).all())
        position += len(chunk)
    return Found(Vocabulary(_as_int64(keys), None if counting else values, least, most))


def _as_int64(keys: TensorSource) -> TensorSource:
    """Return integer keys as int64."""
    if keys.dtype.kind == "O" or keys.dtype == np.int64:
        return keys

    def make(rows: int) -> Iterator[Array]:
        for chunk in keys.chunks(rows):
            yield chunk.astype(np.int64)

    return StreamTensor(np.dtype(np.int64), keys.shape, make)


def _read_from_file(filler: Node, path: Path, handle: str) -> Found[Vocabulary] | Refused:
    """Describe a table that is filled from a text file, a key in each line."""
    key_column, value_column = attribute(filler, "key_index"), attribute(filler, "value_index")
    offset, said = int(attribute(filler, "offset", 0)), int(attribute(filler, "vocab_size", -1))
    if key_column != _WHOLE_LINE or value_column != _LINE_NUMBER or offset:
        return Refused(f"table '{handle}' is filled from columns of a file, expected whole lines and their numbers")
    table = filler.inputs[0]
    count = said if said > 0 else count_lines(path)
    return _vocabulary(_lines(path, count), None, table.node)


def _lines(path: Path, count: int) -> StreamTensor:
    """Return the first `count` lines of a file, without line ends."""

    def make(rows: int) -> Iterator[Array]:
        left = count
        with path.open("rb") as file:
            while left:
                lines: list[Any] = []
                while len(lines) < min(rows, left):
                    read = file.readlines(min(_READ_BYTES, 64 * (min(rows, left) - len(lines))))
                    if not read:
                        break
                    lines += read
                if not lines:
                    return
                for begin in range(0, min(len(lines), left), rows):
                    some = lines[begin : min(begin + rows, left)]
                    block = np.empty(len(some), object)
                    # TensorFlow drops every carriage return of a line.
                    block[:] = [line.rstrip(b"\n").replace(b"\r", b"") for line in some]
                    yield block
                left -= min(len(lines), left)

    return StreamTensor(np.dtype(object), (count,), make)
