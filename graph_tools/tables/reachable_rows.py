# SPDX-License-Identifier: Apache-2.0
"""Which row numbers or keys a graph can ask a table for, as far as its ops prove it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graph_tools.graph import Graph, Node, Output, attribute
from graph_tools.model import Model
from graph_tools.tensors import Array

# More values than these are taken as the range between the smallest and the largest.
_MOST_VALUES = 1 << 20

_SAME_VALUES = {
    "Identity", "Snapshot", "StopGradient", "PreventGradient", "Reshape", "ExpandDims", "Squeeze", "Tile", "Transpose",
    "StridedSlice", "Slice", "GatherV2", "Gather", "GatherNd", "BroadcastTo", "Unique", "UniqueV2", "Reverse",
    "ReverseV2", "EnsureShape", "Unpack", "DynamicPartition",
}  # fmt: skip
_BUCKETS = {"StringToHashBucketFast", "StringToHashBucketStrong", "StringToHashBucket"}
_INTEGERS = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"}


@dataclass(frozen=True)
class Reach:
    """A set of integers that holds all that may come: a range, or values that are listed.

    Attributes
    ----------
    low, high : int or None
        Both included; None: no bound.
    values : ndarray [n] int64 or None
        Sorted; then `low` and `high` are its ends.
    """

    low: int | None = None
    high: int | None = None
    values: Array | None = None

    @property
    def everything(self) -> bool:
        return self.low is None and self.high is None

    def holds(self, keys: Array) -> Array:
        """Return [n] bool for keys [n] int64."""
        inside = np.ones(len(keys), bool)
        if self.low is not None:
            inside &= keys >= self.low
        if self.high is not None:
            inside &= keys <= self.high
        if self.values is not None and len(self.values):
            place = np.minimum(np.searchsorted(self.values, keys), len(self.values) - 1)
            inside &= self.values[place] == keys
        return inside

    def union(self, other: Reach) -> Reach:
        """Return what is in one of both."""
        if self.values is not None and other.values is not None:
            return of_values(np.union1d(self.values, other.values))
        low = None if self.low is None or other.low is None else min(self.low, other.low)
        high = None if self.high is None or other.high is None else max(self.high, other.high)
        return Reach(low, high)


EVERYTHING = Reach()


def of_values(values: Array) -> Reach:
    """Return the set of some integers."""
    if not values.size:
        return EVERYTHING
    distinct = np.unique(values).astype(np.int64)
    low, high = int(distinct[0]), int(distinct[-1])
    listed = len(distinct) <= _MOST_VALUES and len(distinct) < high - low + 1
    return Reach(low, high, distinct if listed else None)


def reachable(model: Model, outputs: list[Output]) -> Reach:
    """Return what integer tensors can hold, all of them together."""
    found: Reach | None = None
    walker = _Walker(model)
    for output in outputs:
        one = walker.of(output)
        found = one if found is None else found.union(one)
    return found or EVERYTHING


class _Walker:
    """Follows tensors upwards; what it does not know may be anything."""

    def __init__(self, model: Model) -> None:
        self.model, self.graph = model, model.graph
        self._known: dict[Output, Reach] = {}

    def of(self, output: Output) -> Reach:
        if output not in self._known:
            # While it is being asked for: a loop says nothing.
            self._known[output] = EVERYTHING
            self._known[output] = self._find(self.graph.source(output), output.port)
        return self._known[output]

    def _all(self, outputs: list[Output]) -> Reach:
        found = self.of(outputs[0])
        for output in outputs[1:]:
            found = found.union(self.of(output))
        return found

    def _find(self, node: Node, port: int) -> Reach:
        op, inputs = node.op, node.inputs
        if op == "Const":
            value = self.graph.const_value(node.output())
            return of_values(value) if value is not None and value.dtype.kind in "iu" else EVERYTHING
        if op in _BUCKETS:
            return Reach(0, int(attribute(node, "num_buckets")) - 1)
        if op == "Bucketize":
            return Reach(0, len(attribute(node, "boundaries", [])))
        if op in ("FloorMod", "Mod"):
            return self._remainder(node)
        if op in ("LookupTableFindV2", "LookupTableFind"):
            return table_values(self.model, inputs[0].node).union(self.of(inputs[2]))
        if op == "Cast":
            return self._cast(node)
        return self._combined(node, port)

    def _combined(self, node: Node, port: int) -> Reach:
        op, inputs = node.op, node.inputs
        if op in ("Unique", "UniqueV2") and port > 0:
            return EVERYTHING
        if op in _SAME_VALUES:
            return self.of(inputs[0])
        if op in ("ConcatV2", "Concat"):
            return self._all(inputs[:-1] if op == "ConcatV2" else inputs[1:])
        if op == "Pack":
            return self._all(inputs)
        if op in ("Split", "SplitV"):
            return self.of(inputs[1] if op == "Split" else inputs[0])
        if op in ("Select", "SelectV2"):
            return self._all(inputs[1:])
        if op in ("DynamicStitch", "ParallelDynamicStitch"):
            return self._all(inputs[len(inputs) // 2 :])
        if op == "SparseFillEmptyRows" and port == 1:
            return self._all([inputs[1], inputs[3]])
        if op in ("Maximum", "Minimum"):
            return self._bounded(op, self.of(inputs[0]), self.of(inputs[1]))
        if op == "ClipByValue":
            low = self._bounded("Maximum", self.of(inputs[0]), self.of(inputs[1]))
            return self._bounded("Minimum", low, self.of(inputs[2]))
        return EVERYTHING

    def _remainder(self, node: Node) -> Reach:
        divisor = self.graph.const_value(node.inputs[1])
        if divisor is None or divisor.size != 1 or divisor.dtype.kind not in "iu" or int(divisor.reshape(())) <= 0:
            return EVERYTHING
        largest = int(divisor.reshape(())) - 1
        if node.op == "FloorMod":
            return Reach(0, largest)
        # The remainder has the sign of what is divided.
        low = self.of(node.inputs[0]).low
        return Reach(0 if low is not None and low >= 0 else -largest, largest)

    def _cast(self, node: Node) -> Reach:
        source, target = attribute(node, "SrcT").name, attribute(node, "DstT").name
        if source == "bool":
            return Reach(0, 1)
        if source not in _INTEGERS or target not in _INTEGERS:
            return EVERYTHING
        found, bounds = self.of(node.inputs[0]), np.iinfo(target)
        fits = found.low is not None and found.high is not None and bounds.min <= found.low <= found.high <= bounds.max
        return found if fits else EVERYTHING

    def _bounded(self, op: str, a: Reach, b: Reach) -> Reach:
        pick = max if op == "Maximum" else min
        certain, doubtful = ("low", "high") if op == "Maximum" else ("high", "low")
        ends: dict[str, int | None] = {}
        for end, both in ((certain, False), (doubtful, True)):
            known = [one for one in (getattr(a, end), getattr(b, end)) if one is not None]
            ends[end] = pick(known) if len(known) == 2 or (known and not both) else None
        return Reach(ends["low"], ends["high"])


def table_values(model: Model, handle: str) -> Reach:
    """Return the values that a native table holds."""
    graph = model.graph
    while graph[handle].op in ("Identity", "RefIdentity"):
        handle = graph[handle].inputs[0].node
    found: Reach | None = None
    if handle in model.hash_tables:
        content = model.hash_tables[handle]
        if content.values is None:
            found = Reach(0, content.keys.shape[0] - 1)
        elif content.values.dtype.kind in "iu" and content.values.shape[0] <= _MOST_VALUES:
            found = of_values(content.values.read())
        else:
            return EVERYTHING
    for user in graph.users(handle):
        if user.op.removesuffix("V2") in ("LookupTableFind", "LookupTableSize", "LookupTableExport"):
            continue
        one = _filled(model, user)
        if one is None:
            return EVERYTHING
        found = one if found is None else found.union(one)
    return found or EVERYTHING


def _filled(model: Model, node: Node) -> Reach | None:
    """Return what a node writes into a table, or None where that is not known."""
    graph = model.graph
    if node.op in ("InitializeTableV2", "InitializeTable", "LookupTableImportV2"):
        values = graph.const_value(node.inputs[2])
        if values is not None and values.dtype.kind in "iu" and values.size:
            return of_values(values)
        return None
    if node.op not in ("InitializeTableFromTextFileV2", "InitializeTableFromTextFile"):
        return None
    file = model.assets.get(_through_identity(graph, node.inputs[1]))
    if file is None or attribute(node, "value_index") != -1:
        return None
    size = int(attribute(node, "vocab_size", -1))
    return Reach(0, (size if size > 0 else count_lines(file)) - 1)


def _through_identity(graph: Graph, output: Output) -> str:
    node = graph.source(output)
    while node.op == "Identity":
        node = graph.source(node.inputs[0])
    return node.name


def count_lines(path: Path) -> int:
    """Count the lines of a file, a last one without an end included."""
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")
