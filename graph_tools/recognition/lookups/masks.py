# SPDX-License-Identifier: Apache-2.0
"""Translate masks over ids, which make values ignored, to `ignore`, `ignore_negative` or zeros for absent keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from graph_tools.analysis.batches import is_reshape
from graph_tools.analysis.sizes import Sizes
from graph_tools.graph import Graph, Output, attribute, constant, is_constant, skip
from graph_tools.plans.embedding_parts import Clip
from graph_tools.recognition.lookups.keys import KeyFinder
from graph_tools.recognition.lookups.numbers import NumberFinder, Numbers
from graph_tools.recognition.lookups.pieces import KeySource
from graph_tools.recognition.lookups.tables import HashIndex
from graph_tools.rewriting.outcome import Found, Outcome, Refused, value_of

_LARGEST = (1 << 63) - 1


@dataclass(frozen=True)
class Factor:
    """One test that a value must pass: `NotEqual(tensor, number)`, `AtLeast(tensor, number)` or `Positive(tensor)`."""

    op: str
    tensor: Output
    number: int | bytes = 0


def factors(graph: Graph, mask: Output) -> list[Factor] | None:
    """Return the tests whose conjunction a mask is, whatever its shape; None if it is no such conjunction."""
    node = graph[skip(graph, mask).node]
    if node.controls:
        return None
    if is_reshape(graph, node):
        return factors(graph, node.inputs[0])
    if node.op == "LogicalAnd":
        both = [factors(graph, source) for source in node.inputs]
        return None if None in both else [factor for side in both for factor in side or ()]
    if node.op not in {"NotEqual", "GreaterEqual", "Greater"}:
        return None
    tensor, number = skip(graph, node.inputs[0]), _number(graph, node.inputs[1])
    if node.op == "Greater" and is_constant(graph, node.inputs[1], 0.0) and attribute(node, "T").is_floating:
        return [Factor("Positive", tensor)]
    if number is None:
        return None
    if node.op == "NotEqual":
        return [Factor("NotEqual", tensor, number)]
    if not isinstance(number, int):
        return None
    return [Factor("AtLeast", tensor, number + (node.op == "Greater"))]


def _number(graph: Graph, output: Output) -> int | bytes | None:
    array = constant(graph, output)
    if array is None or array.size != 1:
        return None
    value: Any = array.reshape(-1)[0]
    if array.dtype.kind in "iu":
        return int(value)
    return bytes(value) if isinstance(value, bytes) else None


def as_numbers(graph: Graph, output: Output) -> Output | None:
    """Return the mask whose elements an output has as 1 and 0, for every column of a row or for one column."""
    node = graph[skip(graph, output).node]
    while (node.op == "Tile" or is_reshape(graph, node)) and not node.controls:
        node = graph[skip(graph, node.inputs[0]).node]
    made = node.op == "Cast" and attribute(node, "SrcT").name == "bool" and attribute(node, "DstT").name == "float32"
    return node.inputs[0] if made and not node.controls else None


def covers(leader: Any, mask: Sizes | None, ids: Sizes, row: tuple[int, ...], by_rows: bool) -> bool:
    """Return whether a mask has one element for each id, whatever the length of a row.

    Parameters
    ----------
    leader : callable
        Size -> the size that represents all sizes equal to it.
    mask, ids : sizes
    row : tuple of int
        Shape of a row of the table.
    by_rows : bool
        Whether the mask may be a vector for the first axis, as in `Select`.
    """
    if mask is None:
        return False
    same = [leader(size) for size in ids]
    given = [leader(size) for size in mask]
    if by_rows and len(given) == 1 and len(same) == 1:
        return given == same
    return given[: len(same)] == same and given[len(same) :] in ([1] * len(row), list(row))


class MaskFinder:
    """Applies masks to lookups."""

    def __init__(self, keys: KeyFinder, numbers: NumberFinder) -> None:
        self.keys, self.numbers = keys, numbers

    def apply(self, tests: Iterable[Factor], found: Numbers, shaped: bool = True) -> Outcome[Numbers]:
        """Return row numbers that ignore values which fail a test; refuse if a key cannot express this."""
        for test in tests:
            result = self._apply(test, found, shaped)
            if not isinstance(result, Found):
                return result
            found = result.value
        return Found(found)

    def _apply(self, test: Factor, found: Numbers, shaped: bool) -> Outcome[Numbers]:
        key = found.key
        values, steps = self.keys.walk(test.tensor, shaped)
        raw = values == key.values and not steps
        if test.op == "Positive":
            return Refused(f"mask of '{test.tensor}' is not one of looked-up values")
        if test.op == "NotEqual" and raw:
            return self._ignoring(found, test.number)
        if test.op == "AtLeast" and test.number == 0 and self.numbers.is_row(test.tensor, shaped):
            return Found(found)
        if found.index is not None:
            absent = self._absent(test, found)
            if absent is not None:
                return Found(absent)
        elif values == key.values and isinstance(test.number, int):
            after = self._negative(test, key, steps)
            if after is not None:
                return Found(replace(found, key=after))
        return Refused(f"mask of '{test.tensor}' ({test.op} {test.number!r}) is not one of the looked-up values")

    def _ignoring(self, found: Numbers, number: int | bytes) -> Outcome[Numbers]:
        if isinstance(number, bytes):
            try:
                number_or_text: int | str = number.decode()
            except UnicodeDecodeError:
                return Refused(f"value {number!r} that stands for a missing one is not UTF-8")
        else:
            number_or_text = number
        if found.key.ignore not in (None, number_or_text):
            return Refused(f"two values stand for a missing one, {found.key.ignore!r} and {number_or_text!r}")
        return Found(replace(found, key=replace(found.key, ignore=number_or_text)))

    def _negative(self, test: Factor, key: KeySource, steps: tuple[Any, ...]) -> KeySource | None:
        """Return the key with negative numbers ignored, if this is the meaning of the test."""
        if test.op == "AtLeast" and test.number == 0:
            if steps == key.steps:
                return replace(key, ignore_negative=True)
            if key.steps and key.steps[:-1] == steps and key.steps[-1] == Clip(0, _LARGEST):
                return replace(key, steps=steps, ignore_negative=True)
        if test.op == "NotEqual" and steps == key.steps and self.keys.ranges.of(test.tensor)[0] == -1 == test.number:
            return replace(key, ignore_negative=True)
        return None

    def _absent(self, test: Factor, found: Numbers) -> Numbers | None:
        """Return a lookup whose absent keys give zeros, if the test excludes exactly these."""
        if not isinstance(found.index, HashIndex) or found.found is None or not isinstance(test.number, int):
            return None
        node = self.keys.graph[test.tensor.node]
        find = self.keys.graph[found.found.node]
        output = test.tensor
        while (node.op == "Cast" or is_reshape(self.keys.graph, node)) and not node.controls:
            output = skip(self.keys.graph, node.inputs[0])
            node = self.keys.graph[output.node]
        default = _number(self.keys.graph, find.inputs[2])
        vocabulary = value_of(self.numbers.vocabularies.of(found.index.handle))
        if output != found.found or not isinstance(default, int) or vocabulary is None:
            return None
        if test.op == "AtLeast":
            known = default < test.number <= vocabulary.least
        else:
            known = default == test.number and not vocabulary.holds(default)
        return replace(found, absent="zeros") if known else None
