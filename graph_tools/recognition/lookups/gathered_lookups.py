# SPDX-License-Identifier: Apache-2.0
"""Recognize the lookups of one row for each id, of which masks may set some to zeros."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graph_tools.analysis.sizes import Size
from graph_tools.graph import Node, Output, attribute, constant, skip, source
from graph_tools.recognition.lookups.lookup_analyses import LookupFinder
from graph_tools.recognition.lookups.masks import Factor, as_numbers, covers, factors
from graph_tools.recognition.lookups.numbers import Numbers
from graph_tools.recognition.lookups.pieces import Part, Piece, is_static, row_width
from graph_tools.recognition.lookups.rows import Gathered
from graph_tools.recognition.lookups.safe_lookup import is_zeros
from graph_tools.recognition.lookups.tables import IDENTITY, StoredRows
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused

# Largest number of columns of ones and zeros; their table has as many rows.
_MOST_ONE_HOT = 1024


class GatheredFinder(LookupFinder):
    """Finds rows that are looked up one for each id, in a graph that must not change meanwhile."""

    def gathered(self, output: Output) -> Outcome[Piece]:
        """Return the rows that an output has side by side; refuse rows that cannot be looked up."""
        found = self.rows.of(output)
        return self._looked_up(found.value, found.value.numbers) if isinstance(found, Found) else found

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

    def _masked(self, node: Node, rows: Output, mask: Output, shaped: Output) -> Outcome[Piece]:
        outcome = self.rows.of(skip(self.graph, rows))
        if not isinstance(outcome, Found):
            return outcome
        found = outcome.value
        tests, ids = factors(self.graph, mask), self.batches.of(found.numbers)
        if tests is None or ids is None:
            return Refused(f"mask '{mask}' is not understood")
        if not covers(self.batches.leader, self.batches.of(shaped), ids, found.rows.row_shape, node.op == "Select"):
            return Refused(f"mask '{mask}' does not have one element for each id")
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

    def _looked_up(self, found: Gathered, ids: Output, tests: Iterable[Factor] = ()) -> Outcome[Piece]:
        """Return the rows for ids of which those that fail a test have rows of zeros."""
        numbers = self.numbers.of(ids)
        if isinstance(numbers, Found):
            numbers = self.masks.apply(tests, numbers.value)
        return self._piece(found, numbers.value) if isinstance(numbers, Found) else numbers

    def _piece(self, found: Gathered, numbers: Numbers) -> Outcome[Piece]:
        ids = self.batches.of(found.numbers)
        if not ids:
            return Refused(f"ids '{found.numbers}' have no batch, or their shape is not known")
        outcome = self.tables.of(found.rows, numbers)
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


def _shown(sizes: tuple[Size, ...]) -> str:
    return "[" + ", ".join(str(size) if isinstance(size, int) else "?" for size in sizes) + "]"
