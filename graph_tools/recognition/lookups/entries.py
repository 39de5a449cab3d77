# SPDX-License-Identifier: Apache-2.0
"""Recognize to which row of the batch each looked-up value belongs, for ops that combine the rows of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graph_tools.analysis.batches import Batches
from graph_tools.analysis.sizes import Size, Symbol
from graph_tools.graph import Node, Output, constant, dtype_of, first_column, is_constant, skip, source
from graph_tools.recognition.lookups.keys import KeyFinder
from graph_tools.recognition.lookups.masks import Factor, MaskFinder, factors
from graph_tools.recognition.lookups.numbers import NumberFinder, Numbers
from graph_tools.rewriting.outcome import Found, Outcome, Refused, value_of

# Ops that return the indices, values and shape of a sparse tensor.
_SPARSE = {"RaggedTensorToSparse", "StringSplitV2"}


@dataclass(frozen=True)
class Entries:
    """Values, with the rows to which they belong.

    Attributes
    ----------
    numbers : Numbers
        Row numbers; the layout of their key is that of the values.
    batch : Size
    fill : str or None
        Name of the SparseFillEmptyRows that adds a value to rows without one.
    weights : Output or None
        Weights of the values.
    positive : bool
        Whether values whose weight is not above 0 are ignored.
    """

    numbers: Numbers
    batch: Size
    fill: str | None = None
    weights: Output | None = None
    positive: bool = False


class EntryFinder:
    """Finds the layout of values in a graph, which must not change meanwhile."""

    def __init__(self, batches: Batches, keys: KeyFinder, numbers: NumberFinder, masks: MaskFinder) -> None:
        self.batches, self.keys, self.numbers, self.masks = batches, keys, numbers, masks
        self.graph = batches.graph

    def of(
        self,
        numbers: Output,
        segments: Output,
        count: Output | None,
        weights: Output | None = None,
        absent_as_zeros: bool = True,
    ) -> Outcome[Entries]:
        """Return the values from which row numbers are computed, with the rows of the batch.

        Parameters
        ----------
        numbers : Output [n]
            Row numbers of a table.
        segments : Output [n]
            Row of the result to which each is added, not decreasing.
        count : Output [] or None
            Number of rows of the result; None: as many as `segments` reach.
        weights : Output [n], optional
            Only for rows that were filled.
        absent_as_zeros : bool
            Whether keys that are dropped, since a table does not contain them, may count as rows of zeros instead.
        """
        if weights is None and count is not None:
            whole = self._before_number_mask(numbers, segments, count, absent_as_zeros)
            if whole is not None:
                return Found(whole)
        outcome = self.numbers.of(numbers, shaped=False)
        if not isinstance(outcome, Found):
            return outcome
        found = outcome.value
        segments = skip(self.graph, segments)
        node = self.graph[segments.node]
        matrix = first_column(self.graph, segments)
        fill = source(self.graph, matrix, "SparseFillEmptyRows") if matrix is not None else None
        if fill is not None and matrix is not None and skip(self.graph, matrix) == fill.output(0):
            return self._filled(found, fill, weights)
        if weights is not None:
            return Refused("weights of a sparse tensor whose empty rows are not filled")
        if count is None:
            return Refused("the number of rows depends on the ids, expected a number of segments or filled rows")
        entries: Entries | None = None
        if matrix is not None:
            entries = self._present_in_matrix(found, matrix, count) or self._sparse(found, matrix, count)
        elif node.op == "GatherNd":
            entries = self._before_mask(found, node, count)
        return self._segments(found, segments, count) if entries is None else Found(entries)

    def _before_number_mask(
        self, numbers: Output, segments: Output, count: Output, absent_as_zeros: bool
    ) -> Entries | None:
        """Recognize row numbers of which some are dropped after the keys were looked up."""
        dropped = self._before_drop([skip(self.graph, numbers), skip(self.graph, segments)])
        if dropped is None:
            return None
        (all_numbers, all_segments), tests = dropped
        whole = value_of(self.of(all_numbers, all_segments, count))
        if whole is None:
            return None
        masked = value_of(self.masks.apply(tests, whole.numbers, whole.numbers.key.layout == "dense"))
        if masked is None or (masked.absent != whole.numbers.absent and not absent_as_zeros):
            return None
        return replace(whole, numbers=masked)

    def _present_in_matrix(self, found: Numbers, matrix: Output, count: Output) -> Entries | None:
        """Recognize `x → Where(x ≠ missing)`: the values of a matrix that are present."""
        where = source(self.graph, matrix, "Where")
        gather = source(self.graph, found.key.values, "GatherNd")
        if where is None or gather is None or skip(self.graph, gather.inputs[1]) != where.output():
            return None
        dense, tests = skip(self.graph, gather.inputs[0]), factors(self.graph, where.inputs[0])
        sizes = self.batches.of(dense)
        rows = self.batches.vector(count)
        if tests is None or sizes is None or len(sizes) != 2 or rows is None:
            return None
        if not self.batches.equal(sizes[0], rows[0]) or self.batches.of(where.inputs[0]) != sizes:
            return None
        key = value_of(self.keys.of(dense))
        if key is None:
            return None
        key = replace(key, steps=(*key.steps, *found.key.steps))
        masked = value_of(self.masks.apply(tests, replace(found, key=key)))
        return None if masked is None else Entries(masked, sizes[0])

    def _before_mask(self, found: Numbers, rows: Node, count: Output) -> Entries | None:
        """Recognize values of a sparse tensor after a mask dropped some of them."""
        where = source(self.graph, rows.inputs[1], "Where")
        gather = source(self.graph, found.key.values, "GatherNd")
        if where is None or gather is None or skip(self.graph, gather.inputs[1]) != where.output():
            return None
        values, tests = skip(self.graph, gather.inputs[0]), factors(self.graph, where.inputs[0])
        if tests is None:
            return None
        key = value_of(self.keys.of(values, shaped=False))
        if key is None:
            return None
        key = replace(key, steps=(*key.steps, *found.key.steps))
        masked = value_of(self.masks.apply(tests, replace(found, key=key), shaped=False))
        segments = skip(self.graph, rows.inputs[0])
        matrix = first_column(self.graph, segments)
        if masked is None:
            return None
        sparse = self._sparse(masked, matrix, count) if matrix is not None else None
        return sparse or value_of(self._segments(masked, segments, count))

    def _sparse(self, found: Numbers, matrix: Output, count: Output) -> Entries | None:
        """Return the entries of a sparse tensor whose shape gives the number of rows."""
        rows = self.batches.vector(count)
        sizes = self.batches.of(matrix)
        if not rows or sizes is None or sizes[-1] != 2 or not isinstance(rows[0], Symbol):
            return None
        made = self.graph[skip(self.graph, matrix).node]
        shape = self._shape_vector(count)
        if made.op in _SPARSE and self.batches.vector(made.output(2)) is not None:
            shape = made.output(2) if (self.batches.vector(made.output(2)) or (None,))[0] == rows[0] else shape
        if shape is None or not self._is_int64(matrix, shape):
            return None
        key = replace(found.key, layout="sparse", indices=skip(self.graph, matrix), shape=shape)
        return Entries(replace(found, key=key), rows[0])

    def _shape_vector(self, count: Output) -> Output | None:
        """Return the vector [2] whose first element is the given number of rows."""
        node = self.graph[skip(self.graph, count).node]
        while node.op == "Cast":
            node = self.graph[skip(self.graph, node.inputs[0]).node]
        if node.op not in {"StridedSlice", "GatherV2"}:
            return None
        vector = skip(self.graph, node.inputs[0])
        elements = self.batches.vector(vector)
        wanted = self.batches.vector(count)
        known = elements is not None and wanted is not None and len(elements) == 2 and elements[0] == wanted[0]
        return vector if known else None

    def _is_int64(self, *outputs: Output) -> bool:
        types = [dtype_of(self.graph, output) for output in outputs]
        return all(dtype_ is not None and dtype_.name == "int64" for dtype_ in types)

    def _segments(self, found: Numbers, segments: Output, count: Output) -> Outcome[Entries]:
        """Return the entries of values whose rows a tensor of row numbers gives."""
        rows, sizes = self.batches.vector(count), self.batches.of(segments)
        types = [dtype_of(self.graph, output) for output in (segments, count)]
        if any(dtype_ is None or dtype_.name not in ("int32", "int64") for dtype_ in types):
            return Refused(f"rows '{segments}' or their number '{count}' are not int32 or int64")
        if not rows or (sizes is not None and len(sizes) != 1) or self.batches.of(count) != ():
            return Refused(f"number of rows '{count}' is not a scalar, or rows '{segments}' are not a vector")
        key = replace(found.key, layout="segments", segment_ids=segments, rows=skip(self.graph, count))
        return Found(Entries(replace(found, key=key), rows[0]))

    def _filled(self, found: Numbers, fill: Node, weights: Output | None) -> Outcome[Entries]:
        """Recognize a sparse tensor in which rows without a value were filled with one."""
        if found.key.values != fill.output(1):
            return Refused(f"ids come from '{found.key.values}', rows from '{fill.name}': expected one sparse tensor")
        indices, shape = (skip(self.graph, fill.inputs[i]) for i in (0, 2))
        rows, sizes = self.batches.vector(shape), self.batches.of(indices)
        if constant(self.graph, fill.inputs[3]) is None:
            return Refused(f"default id '{fill.inputs[3]}' is not a constant")
        if not rows or len(rows) != 2 or (sizes is not None and sizes[-1] != 2):
            return Refused(f"sparse tensor of '{fill.name}' is not known to have two axes")
        tensors = [indices, skip(self.graph, fill.inputs[1])]
        tests: list[Factor] = []
        if weights is not None:
            filled = self.graph[skip(self.graph, weights).node]
            same = filled.op == "SparseFillEmptyRows" and skip(self.graph, weights) == filled.output(1)
            same = same and [skip(self.graph, filled.inputs[i]) for i in (0, 2)] == [indices, shape]
            if not same or not is_constant(self.graph, filled.inputs[3], 1.0):
                return Refused(f"weights '{weights}' are not those of one sparse tensor with the ids")
            tensors.append(skip(self.graph, filled.inputs[1]))
        left = self._before_drop(tensors)
        if left is not None:
            tensors, tests = left
        indices, values = tensors[:2]
        positive = [test for test in tests if test.op == "Positive"]
        if any(weights is None or test.tensor != tensors[2] for test in positive):
            return Refused(f"mask of '{positive[0].tensor}' is not one of the weights")
        dense = weights is None and self._is_one_each(indices, values)
        outcome = self.keys.of(values, shaped=dense)
        if not isinstance(outcome, Found):
            return outcome
        key = replace(outcome.value, steps=(*outcome.value.steps, *found.key.steps))
        if not dense:
            key = replace(key, layout="sparse", indices=indices, shape=shape)
        others = [test for test in tests if test.op != "Positive"]
        masked = self.masks.apply(others, replace(found, key=key), shaped=dense)
        if not isinstance(masked, Found):
            return masked
        weights_before = None if weights is None else tensors[2]
        return Found(Entries(masked.value, rows[0], fill.name, weights_before, bool(positive)))

    def _is_one_each(self, indices: Output, values: Output) -> bool:
        """Recognize the indices of one value for each row: `transpose([range(batch), zeros])`."""
        node = self.graph[skip(self.graph, indices).node]
        if node.op == "Cast":
            node = self.graph[skip(self.graph, node.inputs[0]).node]
        pack = source(self.graph, node.inputs[0], "Pack") if node.op == "Transpose" else None
        rows = source(self.graph, pack.inputs[0], "Range") if pack is not None and len(pack.inputs) == 2 else None
        if rows is None or [self.keys.number(rows.inputs[i]) for i in (0, 2)] != [0, 1]:
            return False
        count, sizes = self.batches.vector(rows.inputs[1]), self.batches.of(values)
        return bool(count and sizes and len(sizes) == 1 and self.batches.equal(count[0], sizes[0]))

    def _before_drop(self, tensors: list[Output]) -> tuple[list[Output], list[Factor]] | None:
        """Return the tensors before entries were dropped, and the tests that the kept entries passed."""
        gathers = [source(self.graph, tensor, "GatherNd") for tensor in tensors]
        places = {skip(self.graph, gather.inputs[1]) for gather in gathers if gather is not None}
        if None in gathers or len(places) > 1:
            return None
        where = source(self.graph, places.pop(), "Where")
        tests = factors(self.graph, where.inputs[0]) if where is not None else None
        before = [skip(self.graph, gather.inputs[0]) for gather in gathers if gather is not None]
        return None if tests is None else (before, tests)
