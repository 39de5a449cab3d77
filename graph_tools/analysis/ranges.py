# SPDX-License-Identifier: Apache-2.0
"""Find the range in which the elements of an integer tensor lie in every request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.graph import Node, Output, attribute, constant, skip, writes
from graph_tools.model import Model
from graph_tools.tensors import rows_per_chunk

Range = tuple[int | None, int | None]
"""Least and largest value; None: no bound is known."""

ANY: Range = (None, None)

# Ops that return elements of input 0, some of them or in another order.
_PICK = {
    "EnsureShape", "ExpandDims", "GatherNd", "GatherV2", "Identity", "Reshape", "ReverseV2", "Slice", "Snapshot",
    "Squeeze", "StopGradient", "StridedSlice", "Tile", "Transpose", "Unique", "UniqueV2",
}  # fmt: skip
_JOIN = {"ConcatV2", "DynamicStitch", "Pack", "ParallelDynamicStitch"}
# Ops for which this is true of all outputs.
_PICK_ALL = {"DynamicPartition", "Split", "SplitV", "Unpack"}
_HASHES = {"StringToHashBucket", "StringToHashBucketFast", "StringToHashBucketStrong"}
_SMALL = {"DT_UINT8": 2**8, "DT_UINT16": 2**16, "DT_UINT32": 2**32, "DT_BOOL": 2}


class RangeFinder:
    """Finds ranges in a graph, which must not change meanwhile."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.graph = model.graph
        self._known: dict[Output, Range] = {}

    def of(self, output: Output) -> Range:
        """Return the range of a tensor's elements."""
        if output not in self._known:
            self._known[output] = ANY  # the range that a cycle sees
            self._known[output] = self._find(self.graph[output.node], output)
        return self._known[output]

    def is_nonnegative(self, output: Output) -> bool:
        """Return whether no element can be negative in any request."""
        low, _ = self.of(output)
        return low is not None and low >= 0

    def _find(self, node: Node, output: Output) -> Range:
        inputs = node.inputs
        if node.op == "Const":
            array = constant(self.graph, output)
            known = array is not None and array.dtype.kind in "iub" and array.size > 0
            return (int(array.min()), int(array.max())) if known and array is not None else ANY
        if (node.op in _PICK and output.port == 0) or node.op in _PICK_ALL:
            return self.of(inputs[1 if node.op == "Split" else 0])
        if node.op in _HASHES:
            return (0, attribute(node, "num_buckets") - 1)
        if node.op == "Bucketize":
            return (0, len(node.attrs["boundaries"].list.f))
        if node.op in {"Shape", "Size", "Where", "ArgMax", "ArgMin"}:
            return (0, None)
        if node.op == "Cast":
            return self._cast(node)
        if node.op == "LookupTableFindV2":
            return _union(_table_range(self.model, inputs[0].node), self.of(inputs[2]))
        if node.op == "LookupTableSizeV2":
            return (0, _most_keys(self.model, inputs[0].node))
        if node.op in {"Select", "SelectV2"}:
            return _union(self._chosen(node), self.of(inputs[2]))
        if node.op == "RaggedTensorToSparse" and output.port == 1:
            return self.of(inputs[-1])
        if node.op == "SparseFillEmptyRows" and output.port == 1:
            return _union(self.of(inputs[1]), self.of(inputs[3]))
        if node.op == "Fill":
            return self.of(inputs[1])
        if node.op in _JOIN:
            chosen = {"ConcatV2": inputs[:-1], "Pack": inputs}.get(node.op, inputs[len(inputs) // 2 :])
            parts = [self.of(source) for source in chosen]
            found = parts[0]
            for part in parts[1:]:
                found = _union(found, part)
            return found
        return self._arithmetic(node)

    def _chosen(self, node: Node) -> Range:
        """Return the range of the elements that a Select picks by its condition: not c in `select(x != c, x, …)`."""
        low, high = self.of(node.inputs[1])
        condition = self.graph[skip(self.graph, node.inputs[0]).node]
        if condition.op == "NotEqual":
            for side, against in ((0, 1), (1, 0)):
                unwanted = constant(self.graph, condition.inputs[against])
                same = skip(self.graph, condition.inputs[side]) == skip(self.graph, node.inputs[1])
                if same and low is not None and unwanted is not None and unwanted.size == 1 and (unwanted == low).all():
                    return (low + 1, high)
        return (low, high)

    def _arithmetic(self, node: Node) -> Range:
        if node.op == "ClipByValue":
            return self._clipped(*(self.of(source) for source in node.inputs))
        if node.op not in {"Add", "AddV2", "Sub", "Maximum", "Minimum", "FloorMod", "Mod", "Mul"}:
            return ANY
        (low, high), (other_low, other_high) = self.of(node.inputs[0]), self.of(node.inputs[1])
        if node.op == "Maximum":
            lows = [bound for bound in (low, other_low) if bound is not None]
            return (max(lows, default=None), None if None in (high, other_high) else max(high or 0, other_high or 0))
        if node.op == "Minimum":
            highs = [bound for bound in (high, other_high) if bound is not None]
            return (None if None in (low, other_low) else min(low or 0, other_low or 0), min(highs, default=None))
        if node.op in {"FloorMod", "Mod"} and (node.op == "FloorMod" or (low is not None and low >= 0)):
            return (0, other_high - 1) if other_low is not None and other_low > 0 and other_high is not None else ANY
        if node.op == "Mod" or low is None or high is None or other_low is None or other_high is None:
            return ANY
        if node.op == "Sub":
            found = (low - other_high, high - other_low)
        elif node.op == "Mul":
            corners = [a * b for a in (low, high) for b in (other_low, other_high)]
            found = (min(corners), max(corners))
        else:
            found = (low + other_low, high + other_high)
        limits = np.iinfo(attribute(node, "T").as_numpy_dtype)
        return found if limits.min <= found[0] and found[1] <= limits.max else ANY

    @staticmethod
    def _clipped(values: Range, low: Range, high: Range) -> Range:
        """Return the range of min(max(values, low), high)."""
        least = max((bound for bound in (values[0], low[0]) if bound is not None), default=None)
        most = max(values[1], low[1]) if values[1] is not None and low[1] is not None else None
        least = min(least, high[0]) if least is not None and high[0] is not None else None
        return (least, min((bound for bound in (most, high[1]) if bound is not None), default=None))

    def _cast(self, node: Node) -> Range:
        before, after = attribute(node, "SrcT"), attribute(node, "DstT")
        if not (before.is_integer or before.is_bool) or not after.is_integer:
            return ANY
        name = f"DT_{before.name.upper()}"
        low, high = self.of(node.inputs[0])
        if name in _SMALL:
            low = 0 if low is None else low
            high = _SMALL[name] - 1 if high is None else high
        limits = np.iinfo(after.as_numpy_dtype)
        if before.size <= after.size and not (before.is_unsigned and before.size == after.size):
            return (low, high)
        fits = low is not None and high is not None and limits.min <= low and high <= limits.max
        return (low, high) if fits else ANY


def _union(first: Range, second: Range) -> Range:
    low = None if first[0] is None or second[0] is None else min(first[0], second[0])
    high = None if first[1] is None or second[1] is None else max(first[1], second[1])
    return (low, high)


def _table_range(model: Model, handle: str) -> Range:
    """Return the range of the values of a hash table that is filled once."""
    content = model.hash_tables.get(handle)
    if content is not None and any(writes(user) for user in model.graph.users(handle)):
        return ANY
    if content is not None:
        if content.values is None:
            return (0, content.keys.shape[0] - 1)
        return _stream_range(content.values)
    filler = _filler(model, handle)
    if filler is None:
        return ANY
    if filler.op == "InitializeTableFromTextFileV2":
        # -1 stands for the line number.
        if attribute(filler, "value_index") != -1 or attribute(filler, "offset", 0):
            return ANY
        return (0, _lines(model, filler) - 1)
    if filler.op not in {"InitializeTableV2", "LookupTableImportV2"}:
        return ANY
    values = model.graph[filler.inputs[2].node]
    if values.op == "Range" and attribute(values, "Tidx").is_integer:
        start, limit, step = (constant(model.graph, source) for source in values.inputs)
        if start is not None and step is not None and int(start) >= 0 and int(step) > 0:
            return (int(start), None if limit is None else max(int(limit) - 1, int(start)))
        return ANY
    array = constant(model.graph, filler.inputs[2])
    return _array_range(array) if array is not None else ANY


def _filler(model: Model, handle: str) -> Node | None:
    """Return the only node that fills a hash table, or None."""
    found = [user for user in model.graph.users(handle) if user.op not in {"LookupTableFindV2", "LookupTableSizeV2"}]
    return found[0] if len(found) == 1 else None


def _most_keys(model: Model, handle: str) -> int | None:
    """Return an upper bound for the number of keys of a hash table, or None."""
    content, filler = model.hash_tables.get(handle), _filler(model, handle)
    if content is not None:
        return None if any(writes(user) for user in model.graph.users(handle)) else int(content.keys.shape[0])
    if filler is None:
        return None
    if filler.op == "InitializeTableFromTextFileV2":
        lines = _lines(model, filler)
        return lines if lines < 1 << 62 else None
    if filler.op not in {"InitializeTableV2", "LookupTableImportV2"}:
        return None
    keys = constant(model.graph, filler.inputs[1])
    return None if keys is None else int(keys.size)


def _lines(model: Model, filler: Node) -> int:
    """Return the number of lines that an initializer reads from its file: the number in its attribute, or all."""
    said = int(attribute(filler, "vocab_size", -1))
    file = model.assets.get(skip(model.graph, filler.inputs[1]).node)
    if said > 0 or file is None:
        return said if said > 0 else 1 << 62
    return count_lines(file)


def count_lines(path: Path) -> int:
    """Return the number of lines of a file, including a last line without an end."""
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def _array_range(array: Any) -> Range:
    return (int(array.min()), int(array.max())) if array.dtype.kind in "iu" and array.size else ANY


def _stream_range(values: Any) -> Range:
    found: Range | None = None
    for chunk in values.chunks(rows_per_chunk(values)):
        of_chunk = _array_range(chunk)
        found = of_chunk if found is None else _union(found, of_chunk)
    return found or ANY
