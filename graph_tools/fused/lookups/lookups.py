# SPDX-License-Identifier: Apache-2.0
"""Recognise lookups: rows of tables for ids, with what counts as none, and combined."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graph_tools.fused.embedding_plan import COMBINERS
from graph_tools.fused.lookups.batches import Batches
from graph_tools.fused.lookups.entries import EntryFinder
from graph_tools.fused.lookups.keys import KeyFinder
from graph_tools.fused.lookups.masks import MaskFinder, covers, factors
from graph_tools.fused.lookups.numbers import NumberFinder, Numbers, changed
from graph_tools.fused.lookups.pieces import Part, Piece, is_static, row_width
from graph_tools.fused.lookups.rows import Gathered, RowFinder, dim_of
from graph_tools.fused.lookups.tables import ArrayIndex, DefaultRows, HashIndex, StoredRows, TableSource
from graph_tools.fused.lookups.vocabularies import Vocabulary
from graph_tools.graph import Node, Output, attribute
from graph_tools.model import Model
from graph_tools.passes._match import constant, is_constant, operand, skip, source
from graph_tools.passes._ranges import RangeFinder
from graph_tools.passes._safe_lookup import is_zeros
from graph_tools.passes._sizes import Size
from graph_tools.tensors import rows_per_chunk

_SEGMENTS = {"SparseSegmentMean": "mean", "SparseSegmentSum": "sum", "SparseSegmentSqrtN": "sqrtn"}
SEGMENT_OPS = {*_SEGMENTS, *(f"{op}WithNumSegments" for op in _SEGMENTS)}


@dataclass(frozen=True)
class Base:
    """Rows for each of some ids, before they are combined."""

    gathered: Gathered
    numbers: Numbers
    ids: tuple[Size, ...]
    mask: tuple[str, ...] = ()


class LookupFinder:
    """Finds lookups in a graph that does not change meanwhile.

    Attributes
    ----------
    fills : dict of Output to str
        The SparseFillEmptyRows of combined lookups.
    """

    def __init__(self, model: Model, batches: Batches) -> None:
        ranges = RangeFinder(model)
        self.model, self.graph, self.batches = model, model.graph, batches
        self.keys = KeyFinder(batches, ranges)
        self.numbers = NumberFinder(model, self.keys)
        self.masks = MaskFinder(self.keys, self.numbers)
        self.rows = RowFinder(model)
        self.entries = EntryFinder(batches, self.keys, self.numbers, self.masks)
        self.fills: dict[Output, str] = {}
        self._spans: dict[tuple[str, str], bool] = {}

    def gathered(self, output: Output) -> Piece | str:
        """Return the rows that an output holds side by side; "" where it holds none, else why not."""
        found = self.rows.of(output)
        if isinstance(found, str):
            return found
        numbers = self.numbers.of(found.numbers)
        return numbers if isinstance(numbers, str) else self._piece(found, numbers)

    def masked(self, select: Node) -> Piece | str:
        """Return the rows of which a Select keeps some and makes the others zeros."""
        if not is_zeros(self.graph, select.inputs[2]) or select.controls:
            return ""
        found = self.rows.of(skip(self.graph, select.inputs[1]))
        if isinstance(found, str):
            return found
        tests = factors(self.graph, select.inputs[0])
        ids = self.batches.of(found.numbers)
        if tests is None or ids is None:
            return f"mask '{select.inputs[0]}' is not understood"
        mask, rank = self.batches.of(select.inputs[0]), len(found.rows.row_shape)
        if not covers(self.batches.leader, mask, ids, rank, select.op == "Select"):
            return f"mask '{select.inputs[0]}' has not one element for each id"
        place = found.numbers
        repaired = source(self.graph, place, "SelectV2", "Select")
        if repaired is not None and factors(self.graph, repaired.inputs[0]) == tests:
            if constant(self.graph, repaired.inputs[2]) is not None and self.batches.of(repaired.inputs[1]) == ids:
                place = repaired.inputs[1]
        numbers = self.numbers.of(place)
        if isinstance(numbers, str):
            return numbers
        masked = self.masks.apply(tests, numbers)
        return masked if isinstance(masked, str) else self._piece(found, masked)

    def combined(self, node: Node) -> Piece | str:
        """Return the rows that an op on segments adds up."""
        stored = self.rows.table(node.inputs[0])
        numbers = node.inputs[1]
        if isinstance(stored, str):
            gathered = self._gathered_once(node)
            if isinstance(gathered, str):
                return gathered or stored
            stored, numbers = gathered.rows, gathered.numbers
        elif stored.row_type != "fp32":
            return f"rows of '{stored.values}' are {stored.row_type}, expected float32"
        if node.controls or len(stored.row_shape) != 1:
            return f"'{node.name}' waits for other nodes, or rows of '{stored.values}' are no vectors"
        count = node.inputs[3] if node.op.endswith("WithNumSegments") else None
        found = self.entries.of(numbers, node.inputs[2], count)
        if isinstance(found, str):
            return found
        table = self._table(stored, found.numbers)
        if isinstance(table, str):
            return table
        combiner = _SEGMENTS[node.op.removesuffix("WithNumSegments")]
        assert combiner in COMBINERS
        empty: int | str | None = None
        if found.fill is not None:
            filled = self._empty(found.numbers, self.graph[found.fill])
            if isinstance(filled, str) and filled.startswith("default id"):
                return filled
            empty = filled
            self.fills[node.output()] = found.fill
        part = Part(0, table.dim, key=found.numbers.key, table=table, combiner=combiner, empty=empty)
        return Piece(found.batch, (table.dim,), (part,))

    def emptied(self, select: Node, combined: Piece) -> Piece | str:
        """Return a combined lookup whose filled rows a Select makes zeros."""
        fill = self.fills.get(skip(self.graph, select.inputs[2]))
        if fill is None or not is_zeros(self.graph, select.inputs[1]) or select.controls:
            return ""
        condition = self.graph[skip(self.graph, select.inputs[0]).node]
        empty = skip(self.graph, select.inputs[0])
        if condition.op in {"ExpandDims", "Reshape"}:
            empty = operand(self.graph, condition, 0)
        sizes = self.batches.of(select.inputs[0])
        column = sizes is not None and (len(sizes) == 1 or (len(sizes) == 2 and sizes[1] == 1))
        if empty != Output(fill, 2) or not column or (select.op == "SelectV2" and len(sizes or ()) != 2):
            return f"condition of '{select.name}' is not that of empty rows"
        return replace(combined, parts=tuple(replace(one, empty=None) for one in combined.parts))

    def _gathered_once(self, node: Node) -> Gathered | str:
        """Recognise rows that were gathered for the ids one by one, or for each different id."""
        found = self.rows.of(skip(self.graph, node.inputs[0]))
        if isinstance(found, str):
            return found
        numbers = skip(self.graph, node.inputs[1])
        made = self.graph[numbers.node]
        if made.op == "Range":
            size = source(self.graph, made.inputs[1], "Size")
            begins = is_constant(self.graph, made.inputs[0], 0) and is_constant(self.graph, made.inputs[2], 1)
            if begins and size is not None and operand(self.graph, size, 0) == skip(self.graph, found.numbers):
                return found
        if made.op == "Unique" and numbers.port == 1 and skip(self.graph, found.numbers) == made.output(0):
            return replace(found, numbers=made.inputs[0])
        return f"'{node.name}' combines rows of '{node.inputs[0]}' in an order that is not known"

    def _empty(self, numbers: Numbers, fill: Node) -> int | str | None:
        """Return the key of the default id of rows without a value."""
        default = constant(self.graph, fill.inputs[3])
        after = self.keys.walk(fill.output(1), shaped=False)[1]
        before = self.keys.walk(fill.inputs[1], shaped=False)[1]
        if default is None or after or len(numbers.key.steps) != len(before):
            return f"default id of '{fill.name}' is hashed or changed after it is filled in"
        value = default.reshape(-1)[0]
        return value.decode() if isinstance(value, bytes) else int(value)

    def _piece(self, found: Gathered, numbers: Numbers) -> Piece | str:
        ids = self.batches.of(found.numbers)
        if not ids:
            return f"ids '{found.numbers}' have no batch, or their shape is not known"
        table = self._table(found.rows, numbers)
        if isinstance(table, str):
            return table
        if is_static(ids[1:]):
            shape = (*ids[1:], *found.rows.row_shape)
            if not row_width(shape):
                return f"rows for ids '{found.numbers}' have no elements"
            part = Part(0, row_width(shape), key=numbers.key, table=table)
            return Piece(ids[0], shape, (part,))
        if len(ids) != 2 or len(found.rows.row_shape) != 1:
            return f"ids '{found.numbers}' have the sizes {_shown(ids)}, expected [batch, n] where one is not known"
        length = numbers.key.length
        if length is None or not self.batches.equal(length, ids[1]):
            return f"ids '{found.numbers}' have another shape than '{numbers.key.values}', which they are made of"
        part = Part(0, table.dim, key=numbers.key, table=table)
        return Piece(ids[0], (ids[1], table.dim), (part,), sequence=numbers.key)

    def _table(self, rows: StoredRows, numbers: Numbers) -> TableSource | str:
        dim = dim_of(rows)
        absent, span = numbers.absent, rows.count if numbers.span is None else numbers.span
        if span > rows.count:
            return f"keys up to {span} for the {rows.count} rows of '{rows.values}'"
        if isinstance(absent, DefaultRows) and absent.first + absent.count > rows.count:
            if absent.count > 1:
                return f"default rows beyond the {rows.count} rows of '{rows.values}'"
            absent = "error"
        if not self._fits(numbers, rows.count):
            return f"an index leads beyond the {rows.count} rows of '{rows.values}'"
        if numbers.index is not None and rows.count != span:
            return f"{span} keys for '{rows.values}', expected an index alone"
        return TableSource(rows, dim, span, numbers.index, absent)

    def _fits(self, numbers: Numbers, count: int) -> bool:
        """Say whether every number that an index holds is that of a row."""
        index = numbers.index
        if isinstance(index, HashIndex):
            vocabulary = self.numbers.vocabularies.of(index.handle)
            assert isinstance(vocabulary, Vocabulary)
            if vocabulary.most < vocabulary.least:
                return True
            bounds = [changed(one, index.changes) for one in (vocabulary.least, vocabulary.most)]
            return bounds[0] >= 0 and bounds[1] < count
        return index is None or self._array_fits(index, count)

    def _array_fits(self, index: ArrayIndex, count: int) -> bool:
        place = (index.values, str((index.span, index.absent, count)))
        if place not in self._spans:
            tensor, left = self.model.variables[index.values], index.span
            fits = True
            for chunk in tensor.chunks(rows_per_chunk(tensor)):
                some = np.asarray(chunk[:left])
                present = some if index.absent is None else some[some != index.absent]
                fits = fits and not bool(((present < 0) | (present >= count)).any())
                left -= len(some)
            self._spans[place] = fits
        return self._spans[place]


def is_lookup(graph: object, node: Node) -> bool:
    """Say whether a node may read rows of a table."""
    return node.op in SEGMENT_OPS or (
        node.op in {"ResourceGather", "GatherV2"} and not attribute(node, "batch_dims", 0)
    )


def _shown(sizes: tuple[Size, ...]) -> str:
    return "[" + ", ".join(str(one) if isinstance(one, int) else "?" for one in sizes) + "]"
