# SPDX-License-Identifier: Apache-2.0
"""Recognize lookups: the rows of tables for ids, which ids are ignored, and how rows are combined."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from graph_tools.analysis.batches import Batches
from graph_tools.analysis.ranges import RangeFinder
from graph_tools.analysis.sizes import Size
from graph_tools.graph import Node, Output, attribute, constant, constant_list, is_constant, operand, skip, source
from graph_tools.model import Model
from graph_tools.plans.embedding_parts import COMBINERS
from graph_tools.recognition.lookups.entries import Entries, EntryFinder
from graph_tools.recognition.lookups.keys import KeyFinder
from graph_tools.recognition.lookups.masks import Factor, MaskFinder, as_numbers, covers, factors
from graph_tools.recognition.lookups.numbers import NumberFinder, Numbers, changed
from graph_tools.recognition.lookups.pieces import Part, Piece, is_static, row_width
from graph_tools.recognition.lookups.rows import Gathered, RowFinder, dim_of
from graph_tools.recognition.lookups.safe_lookup import is_zeros
from graph_tools.recognition.lookups.tables import IDENTITY, ArrayIndex, DefaultRows, HashIndex, StoredRows, TableSource
from graph_tools.recognition.lookups.vocabularies import Vocabularies
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused, value_of
from graph_tools.tensors import rows_per_chunk

_SEGMENTS = {"SparseSegmentMean": "mean", "SparseSegmentSum": "sum", "SparseSegmentSqrtN": "sqrtn"}
# Largest number of columns of ones and zeros; their table has as many rows.
_MOST_ONE_HOT = 1024
# At most this is added to a number of values to avoid a division by zero.
_TINY = 1e-6
SEGMENT_OPS = {*_SEGMENTS, *(f"{op}WithNumSegments" for op in _SEGMENTS)}


class LookupFinder:
    """Finds lookups in a graph, which must not change meanwhile.

    Attributes
    ----------
    fills : dict of Output to str
        The SparseFillEmptyRows of combined lookups.
    """

    def __init__(self, model: Model, batches: Batches) -> None:
        ranges = RangeFinder(model)
        self.model, self.graph, self.batches = model, model.graph, batches
        self.vocabularies = Vocabularies(model)
        self.keys = KeyFinder(batches, ranges, self.vocabularies)
        self.numbers = NumberFinder(model, self.keys)
        self.masks = MaskFinder(self.keys, self.numbers)
        self.rows = RowFinder(model)
        self.entries = EntryFinder(batches, self.keys, self.numbers, self.masks)
        self.fills: dict[Output, str] = {}
        self._weighted: dict[Output, tuple[Output, Output]] = {}
        self._spans: dict[tuple[str, str], bool] = {}

    def gathered(self, output: Output) -> Outcome[Piece]:
        """Return the rows that an output has side by side; refuse rows that cannot be looked up."""
        found = self.rows.of(output)
        return self._looked_up(found.value, found.value.numbers) if isinstance(found, Found) else found

    def _looked_up(self, found: Gathered, ids: Output, tests: Iterable[Factor] = ()) -> Outcome[Piece]:
        """Return the rows for ids of which those that fail a test have rows of zeros."""
        numbers = self.numbers.of(ids)
        if isinstance(numbers, Found):
            numbers = self.masks.apply(tests, numbers.value)
        return self._piece(found, numbers.value) if isinstance(numbers, Found) else numbers

    def masked(self, select: Node) -> Outcome[Piece]:
        """Return the rows of which a Select keeps some and replaces the others by zeros."""
        if not is_zeros(self.graph, select.inputs[2]) or select.controls:
            return NoMatch()
        return self._masked(select, select.inputs[1], select.inputs[0], select.inputs[0])

    def multiplied(self, node: Node) -> Outcome[Piece]:
        """Return the rows that are multiplied with 1 or 0."""
        for rows, numbers in (node.inputs, reversed(node.inputs)):
            mask = as_numbers(self.graph, numbers)
            if mask is not None:
                return self._masked(node, rows, mask, numbers)
        return NoMatch()

    def _masked(self, node: Node, rows: Output, mask: Output, shaped: Output) -> Outcome[Piece]:
        outcome = self.rows.of(skip(self.graph, rows))
        if not isinstance(outcome, Found):
            return outcome
        found = outcome.value
        tests, ids = factors(self.graph, mask), self.batches.of(found.numbers)
        if tests is None or ids is None:
            return Refused(f"mask '{mask}' is not understood")
        if not covers(self.batches.leader, self.batches.of(shaped), ids, found.rows.row_shape, node.op == "Select"):
            return Refused(f"mask '{mask}' has not one element for each id")
        place = found.numbers
        repaired = source(self.graph, place, "SelectV2", "Select")
        if (
            repaired is not None
            and factors(self.graph, repaired.inputs[0]) == tests
            and constant(self.graph, repaired.inputs[2]) is not None
            and self.batches.of(repaired.inputs[1]) == ids
        ):
            place = repaired.inputs[1]
        return self._looked_up(found, place, tests)

    def averaged(self, node: Node, total: Piece) -> Outcome[Piece]:
        """Return the mean of the values that are present: their sum, divided by their number."""
        part = total.parts[0]
        if len(total.parts) > 1 or part.combiner != "sum" or part.key is None or total.initial or node.controls:
            return NoMatch()
        counted = self.graph[skip(self.graph, node.inputs[1]).node]
        safe = node.op == "DivNoNan"
        if counted.op in {"AddV2", "Add", "Maximum"}:
            least = constant(self.graph, counted.inputs[1])
            if least is None or least.size != 1 or not 0 < least.item() <= (_TINY if counted.op != "Maximum" else 1):
                return NoMatch()
            safe, counted = True, self.graph[skip(self.graph, counted.inputs[0]).node]
        sizes = self.batches.of(node.inputs[1])
        mask = as_numbers(self.graph, counted.inputs[0]) if counted.op == "Sum" and safe else None
        if mask is None or sizes is None or len(sizes) != len(total.shape) + 1 or set(sizes[1:]) != {1}:
            return NoMatch()
        tests, plain = factors(self.graph, mask), replace(part.key, ignore=None, ignore_negative=False)
        found = value_of(self.masks.apply(tests, Numbers(plain))) if tests is not None else None
        values, given = self.batches.of(part.key.values), self.batches.of(mask)
        if found is None or found.key != part.key or values is None or given is None:
            return NoMatch()
        if self.batches.total(values) != self.batches.total(given) or not self._sums_rows(counted):
            return NoMatch()
        return Found(replace(total, parts=(replace(part, combiner="mean"),)))

    def _sums_rows(self, node: Node) -> bool:
        """Return whether a Sum gives one number for each row."""
        before, axes = self.batches.of(node.inputs[0]), constant_list(self.graph, node.inputs[1])
        if before is None or axes is None:
            return False
        gone = {axis % len(before) for axis in axes}
        return 0 not in gone and all(axis in gone or size == 1 for axis, size in enumerate(before[1:], 1))

    def one_hot(self, node: Node) -> Outcome[Piece]:
        """Return the rows of an identity matrix that a OneHot returns; ids beyond them have rows of zeros."""
        depth, on, off = (constant(self.graph, source) for source in node.inputs[1:4])
        rank = len(self.batches.of(node.inputs[0]) or ())
        last = attribute(node, "axis", -1) in (-1, rank)
        if depth is None or on is None or off is None or not last or node.controls or on.dtype != np.float32:
            return NoMatch()
        size = int(depth.item())
        if not 0 < size <= _MOST_ONE_HOT or on.item() != 1 or off.item() != 0:
            return Refused(f"ones and zeros of {size} columns, expected at most {_MOST_ONE_HOT}")
        rows = StoredRows(f"{IDENTITY}/{size}", None, "fp32", size, (size,))
        found = Gathered(rows, node.inputs[0], (node.name,))
        ids, tests = node.inputs[0], None
        select = source(self.graph, ids, "SelectV2", "Select")
        if select is not None and (self.keys.number(select.inputs[2]) or 0) < 0:
            tests = factors(self.graph, select.inputs[0])
            same = self.batches.of(select.inputs[0]) == self.batches.of(select.inputs[1]) == self.batches.of(ids)
            tests, ids = (tests, select.inputs[1]) if same else (None, ids)
        numbers = self.numbers.of(ids)
        if tests is not None and isinstance(numbers, Found):
            masked = self.masks.apply(tests, numbers.value)
            numbers = masked if isinstance(masked, Found) else self.numbers.of(node.inputs[0])
        return self._piece(found, numbers.value) if isinstance(numbers, Found) else numbers

    def combined(self, node: Node) -> Outcome[Piece]:
        """Return the rows that an op on segments adds up."""
        table = self.rows.table(node.inputs[0])
        if isinstance(table, Found):
            stored, numbers = table.value, node.inputs[1]
            if stored.row_type != "fp32":
                return Refused(f"rows of '{stored.values}' are {stored.row_type}, expected float32")
        else:
            gathered = self._gathered_once(node)
            if not isinstance(gathered, Found):
                return gathered or table
            stored, numbers = gathered.value.rows, gathered.value.numbers
        if node.controls or len(stored.row_shape) != 1:
            return Refused(f"'{node.name}' waits for other nodes, or rows of '{stored.values}' are no vectors")
        count = node.inputs[3] if node.op.endswith("WithNumSegments") else None
        combiner = _SEGMENTS[node.op.removesuffix("WithNumSegments")]
        assert combiner in COMBINERS
        found = self.entries.of(numbers, node.inputs[2], count, absent_as_zeros=combiner == "sum")
        return self._combined(node, found.value, stored, combiner) if isinstance(found, Found) else found

    def _combined(self, node: Node, found: Entries, stored: StoredRows, combiner: str) -> Outcome[Piece]:
        outcome = self._table(stored, found.numbers)
        if not isinstance(outcome, Found):
            return outcome
        table = outcome.value
        empty: int | str | None = None
        if found.fill is not None:
            self.fills[node.output()] = found.fill
            # If each row has a value, none is filled.
            if found.numbers.key.layout != "dense":
                empty = self._empty(found.numbers, self.graph[found.fill])
                if empty is None:
                    return Refused(f"default id of '{found.fill}' is hashed or changed after it is filled in")
        part = Part(
            0,
            table.dim,
            key=found.numbers.key,
            table=table,
            combiner=combiner,
            weights=found.weights,
            positive_weights=found.positive,
            empty=empty,
        )
        return Found(Piece(found.batch, (table.dim,), (part,)))

    def weighted(self, node: Node) -> Outcome[Piece]:
        """Return the sum of rows times weights that a SegmentSum computes."""
        product = source(self.graph, node.inputs[0], "Mul")
        if product is None or node.controls or product.controls:
            return NoMatch()
        for rows, column in (product.inputs, product.inputs[::-1]):
            gathered, weights = value_of(self.rows.of(skip(self.graph, rows))), self._column(column)
            if gathered is not None and weights is not None and len(gathered.rows.row_shape) == 1:
                found = self.entries.of(gathered.numbers, node.inputs[1], None, weights)
                if not isinstance(found, Found):
                    return found
                self._weighted[node.output()] = (skip(self.graph, column), skip(self.graph, node.inputs[1]))
                return self._combined(node, found.value, gathered.rows, "sum")
        return NoMatch()

    def _column(self, output: Output) -> Output | None:
        """Return the vector [n] that has the elements of a column [n, 1]."""
        node, sizes = self.graph[skip(self.graph, output).node], self.batches.of(output)
        known = node.op in {"ExpandDims", "Reshape"} and sizes is not None and len(sizes) == 2 and sizes[1] == 1
        before = self.batches.of(node.inputs[0]) if known else None
        return skip(self.graph, node.inputs[0]) if before is not None and len(before) == 1 else None

    def normalized(self, node: Node, total: Piece) -> Outcome[Piece]:
        """Return a weighted sum divided by the sum of the weights, or by the root of the sum of their squares."""
        part, made = total.parts[0], self._weighted.get(skip(self.graph, node.inputs[0]))
        if made is None or part.combiner != "sum" or node.controls:
            return NoMatch()
        if node.op != "DivNoNan" and not part.positive_weights:
            return NoMatch()  # Weights whose sum is 0 give NaN.
        divisor, combiner = self.graph[skip(self.graph, node.inputs[1]).node], "mean"
        if divisor.op == "Sqrt":
            divisor, combiner = self.graph[skip(self.graph, divisor.inputs[0]).node], "sqrtn"
        column, segments = made
        if divisor.op != "SegmentSum" or skip(self.graph, divisor.inputs[1]) != segments:
            return NoMatch()
        added = skip(self.graph, divisor.inputs[0])
        if combiner == "sqrtn":
            square = self.graph[added.node]
            both = square.op == "Mul" and skip(self.graph, square.inputs[1]) == skip(self.graph, square.inputs[0])
            power = square.op == "Pow" and is_constant(self.graph, square.inputs[1], 2.0)
            if not (both or power or square.op == "Square"):
                return NoMatch()
            added = skip(self.graph, square.inputs[0])
        if added != column:
            return NoMatch()
        fill = self.fills.get(skip(self.graph, node.inputs[0]))
        if fill is not None:
            self.fills[node.output()] = fill
        return Found(replace(total, parts=(replace(part, combiner=combiner),)))

    def emptied(self, select: Node, combined: Piece) -> Outcome[Piece]:
        """Return a combined lookup whose filled rows a Select replaces by zeros."""
        fill = self.fills.get(skip(self.graph, select.inputs[2]))
        if fill is None or not is_zeros(self.graph, select.inputs[1]) or select.controls:
            return NoMatch()
        condition = self.graph[skip(self.graph, select.inputs[0]).node]
        empty = skip(self.graph, select.inputs[0])
        if condition.op in {"ExpandDims", "Reshape"}:
            empty = operand(self.graph, condition, 0)
        sizes = self.batches.of(select.inputs[0])
        column = sizes is not None and (len(sizes) == 1 or (len(sizes) == 2 and sizes[1] == 1))
        if empty != Output(fill, 2) or not column or (select.op == "SelectV2" and len(sizes or ()) != 2):
            return Refused(f"condition of '{select.name}' is not that of empty rows")
        return Found(replace(combined, parts=tuple(replace(part, empty=None) for part in combined.parts)))

    def _gathered_once(self, node: Node) -> Outcome[Gathered]:
        """Recognize rows that were gathered for each id, or once for each distinct id."""
        outcome = self.rows.of(skip(self.graph, node.inputs[0]))
        if not isinstance(outcome, Found):
            return outcome
        found = outcome.value
        numbers = skip(self.graph, node.inputs[1])
        made = self.graph[numbers.node]
        if made.op == "Range":
            size = source(self.graph, made.inputs[1], "Size")
            begins = is_constant(self.graph, made.inputs[0], 0) and is_constant(self.graph, made.inputs[2], 1)
            sizes = self.batches.of(found.numbers)
            counted = self.batches.of(size.inputs[0]) if size is not None else None
            if begins and sizes is not None and len(sizes) == 1 and counted == sizes:
                return outcome
        if made.op == "Unique" and numbers.port == 1 and skip(self.graph, found.numbers) == made.output(0):
            return Found(replace(found, numbers=made.inputs[0]))
        return Refused(f"'{node.name}' combines rows of '{node.inputs[0]}' in an order that is not known")

    def _empty(self, numbers: Numbers, fill: Node) -> int | str | None:
        """Return the key of the default id, which fills rows without a value."""
        default = constant(self.graph, fill.inputs[3])
        before = self.keys.walk(self._before_drop(fill), shaped=False)[1]
        if default is None or len(numbers.key.steps) != len(before):
            return None
        value = default.reshape(-1)[0]
        return value.decode() if isinstance(value, bytes) else int(value)

    def _before_drop(self, fill: Node) -> Output:
        gather = source(self.graph, fill.inputs[1], "GatherNd")
        return fill.inputs[1] if gather is None else gather.inputs[0]

    def _piece(self, found: Gathered, numbers: Numbers) -> Outcome[Piece]:
        ids = self.batches.of(found.numbers)
        if not ids:
            return Refused(f"ids '{found.numbers}' have no batch, or their shape is not known")
        outcome = self._table(found.rows, numbers)
        if not isinstance(outcome, Found):
            return outcome
        table = outcome.value
        if is_static(ids[1:]):
            shape = (*ids[1:], *found.rows.row_shape)
            if not row_width(shape):
                return Refused(f"rows for ids '{found.numbers}' have no elements")
            part = Part(0, row_width(shape), key=numbers.key, table=table)
            return Found(Piece(ids[0], shape, (part,)))
        if len(ids) != 2 or len(found.rows.row_shape) != 1:
            return Refused(
                f"ids '{found.numbers}' have the sizes {_shown(ids)}, expected [batch, n] where one is not known"
            )
        length = numbers.key.length
        if length is None or not self.batches.equal(length, ids[1]):
            return Refused(
                f"ids '{found.numbers}' have another shape than '{numbers.key.values}', which they are made of"
            )
        part = Part(0, table.dim, key=numbers.key, table=table)
        return Found(Piece(ids[0], (ids[1], table.dim), (part,), sequence=numbers.key))

    def _table(self, rows: StoredRows, numbers: Numbers) -> Outcome[TableSource]:
        dim = dim_of(rows)
        absent, span = numbers.absent, rows.count if numbers.span is None else numbers.span
        if rows.values.startswith(f"{IDENTITY}/"):
            beyond = isinstance(absent, DefaultRows) and absent.first >= rows.count
            absent, span = "zeros" if beyond or absent == "error" else absent, min(span, rows.count)
        if span > rows.count:
            return Refused(f"keys up to {span} for the {rows.count} rows of '{rows.values}'")
        if isinstance(absent, DefaultRows) and absent.first + absent.count > rows.count:
            if absent.count > 1:
                return Refused(f"default rows beyond the {rows.count} rows of '{rows.values}'")
            absent = "error"
        if not self._fits(numbers, rows.count):
            return Refused(f"an index leads beyond the {rows.count} rows of '{rows.values}'")
        if numbers.index is not None and rows.count != span:
            return Refused(f"{span} keys for '{rows.values}', expected an index alone")
        return Found(TableSource(rows, dim, span, numbers.index, absent))

    def _fits(self, numbers: Numbers, count: int) -> bool:
        """Return whether every number in an index is the number of a row."""
        index = numbers.index
        if isinstance(index, HashIndex):
            vocabulary = value_of(self.vocabularies.of(index.handle))
            assert vocabulary is not None
            if vocabulary.most < vocabulary.least:
                return True
            bounds = [changed(number, index.changes) for number in (vocabulary.least, vocabulary.most)]
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


def _shown(sizes: tuple[Size, ...]) -> str:
    return "[" + ", ".join(str(size) if isinstance(size, int) else "?" for size in sizes) + "]"
