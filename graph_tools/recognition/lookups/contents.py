# SPDX-License-Identifier: Apache-2.0
"""Compute the content of a new table from the variables and hash tables of a graph, while the table is written."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graph_tools.errors import ConversionError
from graph_tools.graph.attributes import const_array
from graph_tools.live import RowSource, TableOrigin, plain, row_source
from graph_tools.model import Model
from graph_tools.recognition.lookups.numbers import changed
from graph_tools.recognition.lookups.tables import IDENTITY, ArrayIndex, DefaultRows, HashIndex, StoredRows, TableSource
from graph_tools.recognition.lookups.vocabularies import Vocabularies, Vocabulary
from graph_tools.rewriting.outcome import Refused
from graph_tools.store.rows import is_quantized
from graph_tools.store.spec import EncodedRows, QuantisedRows, TableSpec
from graph_tools.tensors import Array, ArrayTensor, StreamTensor, TensorSource, rows_between


def table_spec(model: Model, source: TableSource, vocabularies: Vocabularies) -> TableSpec:
    """Describe the file of a table, without reading anything large.

    Raises
    ------
    ConversionError
        The content of a hash table has changed.
    """
    rows = source.rows
    origin = row_source(model.variables.get(rows.values))
    keys: TensorSource | None = None
    numbers: TensorSource | None = None
    default, absent = None, "default" if isinstance(source.absent, DefaultRows) else source.absent
    if isinstance(source.absent, DefaultRows):
        default = _default_rows(model, rows, source.absent)
        if not _may_differ_from_zeros(default, source.absent, origin):
            default, absent = None, "zeros"
    begin, end = 0, source.span
    picked: Array | None = None
    if isinstance(source.index, ArrayIndex):
        keys, numbers, end = _keys_of_array(model, source.index)
    elif isinstance(source.index, HashIndex):
        outcome = vocabularies.of(source.index.handle)
        if isinstance(outcome, Refused):
            raise ConversionError(f"{outcome.reason}; expected its content")
        vocabulary = outcome.value
        keys = vocabulary.keys
        begin, end = _span(vocabulary, source.index)
        if not _counts_up(vocabulary, source.index):
            if source.index.strings:
                keys, picked = _keys_in_order_of_rows(vocabulary, source.index)
            else:
                numbers = _numbers(vocabulary, source.index, begin)
    whole = _rows(model, rows, begin, end) if picked is None else _rows_with_numbers(model, rows, picked)
    place = None if origin is None else _origin(origin, source, begin, picked, default is not None)
    return TableSpec(source.dim, whole, rows.row_type, keys, numbers, default, str(absent), place)


def _origin(source: RowSource, table: TableSource, begin: int, picked: Array | None, has_defaults: bool) -> TableOrigin:
    """Return where the rows of a table come from; for tables with keys, these say it."""
    defaults: Array = np.empty(0, np.int64)
    if has_defaults and isinstance(table.absent, DefaultRows):
        defaults = table.absent.first + _places(table.absent)
    if source.key_kind == "row_number":
        return TableOrigin(source, begin, picked, tuple(map(int, defaults)))
    numbers = (int(row) - source.first_default if _is_default(int(row), source) else -1 for row in defaults)
    return TableOrigin(source, default_rows=tuple(numbers))


def _is_default(row: int, source: RowSource) -> bool:
    """Return whether a row of a tensor is a row for absent keys of the source."""
    return source.first_default >= 0 and 0 <= row - source.first_default < source.defaults


def sliced(tensor: TensorSource, begin: int, end: int) -> TensorSource:
    """Return rows `begin` … `end` of a tensor."""
    if (begin, end) == (0, tensor.shape[0]):
        return tensor

    def make(rows: int) -> Iterator[Array]:
        position = 0
        for chunk in tensor.chunks(rows):
            low, high = max(begin - position, 0), min(end - position, len(chunk))
            if low < high:
                yield chunk[low:high]
            position += len(chunk)
            if position >= end:
                return

    return StreamTensor(tensor.dtype, (end - begin, *tensor.shape[1:]), make)


def _as_matrix(tensor: TensorSource) -> TensorSource:
    """Return a tensor with rows of any shape as a tensor with vectors as rows."""
    if len(tensor.shape) == 2:
        return tensor
    width = int(np.prod(tensor.shape[1:], dtype=np.int64))

    def make(rows: int) -> Iterator[Array]:
        for chunk in tensor.chunks(rows):
            yield chunk.reshape(len(chunk), width)

    return StreamTensor(tensor.dtype, (tensor.shape[0], width), make)


def _tensor_of(model: Model, name: str) -> TensorSource:
    if name.startswith(f"{IDENTITY}/"):
        return ArrayTensor(np.eye(int(name.removeprefix(f"{IDENTITY}/")), dtype=np.float32))
    held = model.variables.get(name)
    return plain(held) if held is not None else ArrayTensor(const_array(model.graph[name]))


def _rows(model: Model, rows: StoredRows, begin: int, end: int) -> TensorSource:
    values = sliced(_as_matrix(_tensor_of(model, rows.values)), begin, end)
    if not is_quantized(rows.row_type):
        return values
    assert rows.scale_bias is not None
    return EncodedRows(QuantisedRows(values, sliced(_tensor_of(model, rows.scale_bias), begin, end)))


def _default_rows(model: Model, rows: StoredRows, absent: DefaultRows) -> TensorSource:
    """Return the rows of absent keys in the order of the remainders of keys."""
    place = _places(absent)
    values = rows_between(_as_matrix(_tensor_of(model, rows.values)), absent.first, absent.first + absent.count)[place]
    if not is_quantized(rows.row_type):
        return ArrayTensor(values)
    assert rows.scale_bias is not None
    pairs = rows_between(_tensor_of(model, rows.scale_bias), absent.first, absent.first + absent.count)[place]
    return EncodedRows(QuantisedRows(ArrayTensor(values), ArrayTensor(pairs)))


def _places(absent: DefaultRows) -> Array:
    """Return the place of each default row among the rows of absent keys."""
    places: Array = (np.arange(absent.count) + absent.shift) % absent.count
    return places


def _may_differ_from_zeros(rows: TensorSource, absent: DefaultRows, origin: RowSource | None) -> bool:
    """Return whether a bit of the default rows is set, or may be set by a change of their source."""
    if isinstance(rows, EncodedRows):
        return True
    if origin is not None and (origin.key_kind == "row_number" or _is_default(absent.first, origin)):
        return True
    return any(np.ascontiguousarray(chunk).view(np.uint8).any() for chunk in rows.chunks(1 << 16))


def _keys_of_array(model: Model, index: ArrayIndex) -> tuple[TensorSource, TensorSource, int]:
    """Return the keys of an index by key, their row numbers, and the number of rows that these reach."""
    held = np.concatenate([*sliced(model.variables[index.values], 0, index.span).chunks(1 << 20)])
    places = np.arange(index.span) if index.absent is None else np.flatnonzero(held != index.absent)
    numbers = held[places]
    return ArrayTensor(places + np.int64(index.low)), ArrayTensor(numbers), int(numbers.max(initial=-1)) + 1


def _span(vocabulary: Vocabulary, index: HashIndex) -> tuple[int, int]:
    """Return the first row to which a key leads, and the row after the last one."""
    if not vocabulary.keys.shape[0]:
        return 0, 0
    return changed(vocabulary.least, index.changes), changed(vocabulary.most, index.changes) + 1


def _counts_up(vocabulary: Vocabulary, index: HashIndex) -> bool:
    """Return whether the row numbers of the keys are consecutive, in the order of the keys."""
    begin, end = _span(vocabulary, index)
    return vocabulary.values is None and end - begin == vocabulary.keys.shape[0]


def _numbers(vocabulary: Vocabulary, index: HashIndex, begin: int) -> TensorSource:
    """Return the row numbers of the keys, counted from row `begin`."""
    count, values = vocabulary.keys.shape[0], vocabulary.values

    def make(rows: int) -> Iterator[Array]:
        for first in range(0, count, rows) if values is None else ():
            yield change(np.arange(first, min(first + rows, count)))
        for chunk in values.chunks(rows) if values is not None else ():
            yield change(chunk.astype(np.int64))

    def change(numbers: Array) -> Array:
        for op, number in index.changes:
            numbers = np.minimum(numbers, number) if op == "min" else numbers + number
        return numbers - begin

    return StreamTensor(np.dtype(np.int64), (count,), make)


def _keys_in_order_of_rows(vocabulary: Vocabulary, index: HashIndex) -> tuple[TensorSource, Array]:
    """Return string keys in the order of their rows, and the row number of each."""
    numbers = _numbers(vocabulary, index, 0).read()
    order = np.argsort(numbers, kind="stable")
    return ArrayTensor(vocabulary.keys.read()[order]), numbers[order]


def _rows_with_numbers(model: Model, rows: StoredRows, numbers: Array) -> TensorSource:
    """Return the rows with the given numbers, which ascend and may repeat."""

    def pick(tensor: TensorSource) -> TensorSource:
        def make(count: int) -> Iterator[Array]:
            position = 0
            for chunk in tensor.chunks(count):
                low, high = np.searchsorted(numbers, (position, position + len(chunk)))
                for begin in range(low, high, count):
                    yield chunk[numbers[begin : min(begin + count, high)] - position]
                position += len(chunk)

        return StreamTensor(tensor.dtype, (len(numbers), *tensor.shape[1:]), make)

    values = pick(_as_matrix(_tensor_of(model, rows.values)))
    if not is_quantized(rows.row_type):
        return values
    assert rows.scale_bias is not None
    return EncodedRows(QuantisedRows(values, pick(_tensor_of(model, rows.scale_bias))))
