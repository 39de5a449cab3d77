# SPDX-License-Identifier: Apache-2.0
"""Follow row numbers back to keys: through hash tables, indexes and the treatment of absent keys.

Nodes that are recognized here become part of a table with keys; other nodes stay, and their numbers become a feature.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graph_tools.graph import Node, Output, attribute, skip, source
from graph_tools.model import Model
from graph_tools.plans.embedding_parts import Add, FastHash, Mod, Step, WrapNegative
from graph_tools.recognition.lookups.keys import KeyFinder
from graph_tools.recognition.lookups.pieces import KeySource
from graph_tools.recognition.lookups.tables import ArrayIndex, DefaultRows, HashIndex, Index
from graph_tools.rewriting.chains import FINDS
from graph_tools.rewriting.outcome import Found, Outcome, Refused, value_of
from graph_tools.tensors import TensorSource, rows_between

# Strings are sorted by their rows in memory.
_MOST_SORTED = 1 << 27
_MISSING = {"Less": "absent", "Equal": "absent", "GreaterEqual": "present", "NotEqual": "present"}


@dataclass(frozen=True)
class Numbers:
    """The origin of row numbers.

    Attributes
    ----------
    key : KeySource
    index : Index or None
        None: keys are row numbers.
    absent : "error", "zeros" or DefaultRows
    span : int or None
        Number of keys of a direct table that are not absent; None: all rows.
    found : Output or None
        The result of a hash table for the keys, before absent keys are treated.
    """

    key: KeySource
    index: Index | None = None
    absent: str | DefaultRows = "error"
    span: int | None = None
    found: Output | None = None


@dataclass(frozen=True)
class _TableLookup:
    """Numbers of a hash table, after some arithmetic."""

    find: Node
    changes: tuple[tuple[str, int], ...]


class NumberFinder:
    """Finds the origin of row numbers in a graph, which must not change meanwhile.

    Attributes
    ----------
    refused : dict of str to str
        Lookups in hash tables that stay in the graph, with the reason.
    """

    def __init__(self, model: Model, keys: KeyFinder) -> None:
        self.model, self.graph, self.keys = model, model.graph, keys
        self.vocabularies = keys.vocabularies
        self.refused: dict[str, str] = {}

    def of(self, numbers: Output, shaped: bool = True) -> Outcome[Numbers]:
        """Return the origin of row numbers; refuse only if not even the numbers can be a feature."""
        for form in (self._in_range, self._kept_in_range, self._remapped, self._hashed, self._counted_from_the_end):
            found = form(skip(self.graph, numbers), shaped)
            if found is not None:
                return Found(found)
        key = self.keys.of(numbers, shaped)
        return Found(Numbers(key.value)) if isinstance(key, Found) else key

    # Keys that are row numbers, counted from a smallest key

    def _range(self, output: Output) -> tuple[Output, int, Output, int] | None:
        """Recognize `select(uint64(keys - low) < span, keys - low, absent)`: (keys - low, span, absent, low)."""
        select = source(self.graph, output, "SelectV2")
        less = source(self.graph, select.inputs[0], "Less") if select is not None else None
        cast = source(self.graph, less.inputs[0], "Bitcast") if less is not None else None
        if select is None or less is None or cast is None or attribute(cast, "T").name != "int64":
            return None
        span, shifted = self.keys.number(less.inputs[1]), skip(self.graph, cast.inputs[0])
        if span is None or attribute(cast, "type").name != "uint64" or skip(self.graph, select.inputs[1]) != shifted:
            return None
        node = self.graph[shifted.node]
        low = self.keys.number(node.inputs[1]) if node.op == "Sub" else None
        return shifted, span, select.inputs[2], low or 0

    def _in_range(self, output: Output, shaped: bool) -> Numbers | None:
        found = self._range(output)
        if found is None:
            return None
        shifted, span, absent, low = found
        node = self.graph[shifted.node]
        keys = skip(self.graph, node.inputs[0]) if low else shifted
        rows = self._absent_rows(absent, keys, shaped)
        key = value_of(self.keys.of(shifted, shaped))
        if rows is None or key is None:
            return None
        if rows.count > 1 and low:
            # Keys that overflow when they are shifted have another remainder, except for a power of two.
            if rows.count & (rows.count - 1):
                return None
            rows = DefaultRows(rows.first, rows.count, low % rows.count)
        return Numbers(key, None, rows, span)

    def _kept_in_range(self, output: Output, shaped: bool) -> Numbers | None:
        """Recognize `select(ids < 0 or ids >= n, default, ids)`."""
        select = source(self.graph, output, "SelectV2", "Select")
        either = source(self.graph, select.inputs[0], "LogicalOr") if select is not None else None
        if select is None or either is None:
            return None
        ids, tests = skip(self.graph, select.inputs[2]), {}
        for either_test in either.inputs:
            test = source(self.graph, either_test, "Less", "GreaterEqual")
            if test is not None and skip(self.graph, test.inputs[0]) == ids:
                tests[test.op] = self.keys.number(test.inputs[1])
        span, default = tests.get("GreaterEqual"), self.keys.number(select.inputs[1])
        key = value_of(self.keys.of(ids, shaped))
        if tests.get("Less") != 0 or not span or span < 0 or default is None or default < 0 or key is None:
            return None
        return Numbers(key, None, DefaultRows(default), span)

    def is_row(self, output: Output, shaped: bool = True) -> bool:
        """Return whether a row number cannot be negative in any request."""
        if self.keys.ranges.is_nonnegative(output):
            return True
        found = value_of(self.of(output, shaped))
        if found is None or not isinstance(found.absent, DefaultRows):
            return False
        if not isinstance(found.index, HashIndex):
            return True
        vocabulary = value_of(self.vocabularies.of(found.index.handle))
        return vocabulary is not None and changed(vocabulary.least, found.index.changes) >= 0

    def _remapped(self, output: Output, shaped: bool) -> Numbers | None:
        """Recognize row numbers that a variable of integers contains for each key."""
        node, absent = self.graph[output.node], None
        if node.op == "SelectV2":
            less = source(self.graph, node.inputs[0], "Less")
            inside = skip(self.graph, node.inputs[2])
            if less is None or skip(self.graph, less.inputs[0]) != inside or self.keys.number(less.inputs[1]) != 0:
                return None
            absent, node = node.inputs[1], self.graph[inside.node]
        if node.op == "Cast" and attribute(node, "SrcT").name == "int32":
            node = self.graph[skip(self.graph, node.inputs[0]).node]
        if node.op != "ResourceGather" or attribute(node, "batch_dims", 0) or node.controls:
            return None
        held = self.model.variables.get(skip(self.graph, node.inputs[0]).node)
        handle = skip(self.graph, node.inputs[0]).node
        written = handle in self.model.written_variables()
        if held is None or held.dtype.kind not in "i" or len(held.shape) != 1 or written:
            return None
        found = self._range(node.inputs[1])
        if found is None:
            key = value_of(self.keys.of(node.inputs[1], shaped))
            return None if absent is not None or key is None else Numbers(key, ArrayIndex(handle, held.shape[0]))
        shifted, span, last, low = found
        keys = skip(self.graph, self.graph[shifted.node].inputs[0]) if low else shifted
        key = value_of(self.keys.of(keys, shaped))
        if self.keys.number(last) != span or held.shape[0] <= span or key is None:
            return None
        number = _element_at(held, span)
        rows = DefaultRows(number) if absent is None else self._absent_rows(absent, keys, shaped)
        if rows is None or (absent is None and number < 0):
            return None
        return Numbers(key, ArrayIndex(handle, span, low, number), rows)

    # Hash tables

    def _hashed(self, output: Output, shaped: bool) -> Numbers | None:
        found = self._before_arithmetic(output, shaped)
        if found is not None:
            default = self._default(found)
            if default is None:
                return None
            absent: str | DefaultRows = DefaultRows(default) if default >= 0 else "error"
            return self._with_table(found, absent, shaped, None)
        return self._with_absent_branch(output, shaped)

    def _counted_from_the_end(self, output: Output, shaped: bool) -> Numbers | None:
        """Recognize numbers of a hash table whose negative ones, of absent keys, count from the end of the rows."""
        wrapped = self.keys.step(self.graph[output.node])
        if wrapped is None or not isinstance(wrapped[1], WrapNegative):
            return None
        ids, by = wrapped[0], wrapped[1].by
        found, lookup = self._hashed(skip(self.graph, ids), shaped), self._before_arithmetic(ids, shaped)
        if found is None or not isinstance(found.index, HashIndex):
            return None
        vocabulary = value_of(self.vocabularies.of(found.index.handle))
        if vocabulary is None or changed(vocabulary.least, found.index.changes) < 0:
            return None
        if found.absent != "error":
            return found
        default = self._default(lookup) if lookup is not None else None
        if default is None or not -by <= default < 0:
            return None
        return replace(found, absent=DefaultRows(default + by))

    def _with_absent_branch(self, output: Output, shaped: bool) -> Numbers | None:
        """Recognize `select(found < 0, number of an absent key, found)` and equivalent forms."""
        select = source(self.graph, output, "SelectV2", "Select")
        test = source(self.graph, select.inputs[0], *_MISSING) if select is not None else None
        if select is None or test is None:
            return None
        first = _MISSING[test.op] == "absent"
        absent, present = select.inputs[1 if first else 2], select.inputs[2 if first else 1]
        found, tested = self._before_arithmetic(present, shaped), self._before_arithmetic(test.inputs[0], shaped)
        against = self.keys.number(test.inputs[1])
        if found is None or tested is None or tested.changes or found.find is not tested.find or against is None:
            return None
        default = self._default(tested)
        rows = self._absent_rows(absent, skip(self.graph, found.find.inputs[1]), shaped)
        if rows is None or default is None:
            return None
        if test.op in {"Less", "GreaterEqual"}:
            least = against
            if default >= least:
                return None
            return self._with_table(found, rows, shaped, ("below", least))
        return self._with_table(found, rows, shaped, ("equal", against)) if default == against else None

    def _with_table(
        self, found: _TableLookup, absent: str | DefaultRows, shaped: bool, missing: tuple[str, int] | None
    ) -> Numbers | None:
        find = found.find
        handle = skip(self.graph, find.inputs[0]).node
        content, key = self.vocabularies.of(handle), self.keys.of(find.inputs[1], shaped)
        if isinstance(content, Refused):
            self.refused[find.name] = content.reason
            return None
        if isinstance(key, Refused):
            self.refused[find.name] = key.reason
            return None
        vocabulary = content.value
        if missing is not None:
            kind, number = missing
            if vocabulary.least < number if kind == "below" else vocabulary.holds(number):
                self.refused[find.name] = f"table '{handle}' gives a key the number that stands for an absent one"
                return None
        strings, count = attribute(find, "Tin").name == "string", vocabulary.keys.shape[0]
        if strings and vocabulary.values is not None and count > _MOST_SORTED:
            self.refused[find.name] = f"table '{handle}' has {count} strings in an order of their own"
            return None
        return Numbers(key.value, HashIndex(handle, strings, found.changes), absent, None, find.output())

    def _before_arithmetic(self, output: Output, shaped: bool) -> _TableLookup | None:
        """Return the result of a hash table before arithmetic on it."""
        changes: list[tuple[str, int]] = []
        while True:
            node = self.graph[skip(self.graph, output).node]
            if node.controls:
                return None
            if node.op in FINDS:
                return _TableLookup(node, tuple(reversed(changes))) if attribute(node, "Tout").is_integer else None
            if node.op in {"AddV2", "Add", "Sub", "Minimum"}:
                number = self.keys.number(node.inputs[1])
                if number is None:
                    return None
                changes.append(
                    ("min", number) if node.op == "Minimum" else ("add", -number if node.op == "Sub" else number)
                )
            elif node.op == "Cast":
                if not (attribute(node, "SrcT").is_integer and attribute(node, "DstT").name in ("int32", "int64")):
                    return None
            elif not (shaped and self.keys.batches.keeps_rows(node)):
                return None
            output = node.inputs[0]

    def _default(self, found: _TableLookup) -> int | None:
        number = self.keys.number(found.find.inputs[2])
        return None if number is None else changed(number, found.changes)

    def _absent_rows(self, output: Output, keys: Output, shaped: bool) -> DefaultRows | None:
        """Recognize the row number of an absent key: one for all keys, or by the remainder of the key."""
        number = self.keys.number(output)
        if number is not None:
            return DefaultRows(number) if number >= 0 else None
        wanted = self.keys.walk(keys, shaped)
        values, steps = self.keys.walk(output, shaped)
        first, rest = (steps[-1].value, steps[:-1]) if steps and isinstance(steps[-1], Add) else (0, steps)
        if not rest or first < 0 or values != wanted[0] or rest[:-1] != wanted[1]:
            return None
        count = _divisor_of(rest[-1])
        return None if count is None else DefaultRows(first, count)


def changed(number: int, changes: tuple[tuple[str, int], ...]) -> int:
    """Return the row number that a table's number becomes after some changes."""
    for op, operand in changes:
        number = min(number, operand) if op == "min" else number + operand
    return number


def _divisor_of(step: Step) -> int | None:
    """Return n if a step computes the `k mod n` of the table format."""
    if isinstance(step, FastHash):
        return step.buckets
    return step.by if isinstance(step, Mod) else None


def _element_at(tensor: TensorSource, place: int) -> int:
    return int(np.asarray(rows_between(tensor, place, place + 1)).reshape(-1)[0])
