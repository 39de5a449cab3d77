# SPDX-License-Identifier: Apache-2.0
"""Find the tensors that have the same number of rows in every successful request.

Two inputs of unknown length may differ: one user and many items. They are equal only if the graph demands it, for
example for the parts of a `ConcatV2` along another axis, in all signatures that have them.
"""

from __future__ import annotations

from graph_tools.analysis.shapes import shapes
from graph_tools.analysis.sizes import Size, SizeFinder, Sizes, Symbol
from graph_tools.graph import Graph, Node, Output, attribute, constant_list, first_column, skip, source
from graph_tools.model import Model

_UNARY = {
    "Abs", "Acos", "Ceil", "Cos", "Elu", "Erf", "Exp", "Expm1", "Floor", "IsFinite", "IsInf", "IsNan", "LeakyRelu",
    "Log", "Log1p", "LogSoftmax", "Neg", "Reciprocal", "Relu6", "Rint", "Round", "Rsqrt", "Selu", "Sign", "Sin",
    "Snapshot", "Softplus", "Sqrt", "Square", "StopGradient",
}  # fmt: skip
_BINARY = {"Div", "FloorDiv", "Mod", "Pow", "SquaredDifference", "TruncateMod", "Xdivy", "Xlogy"}
_REDUCTIONS = {"All", "Any", "Max", "Mean", "Min", "Prod", "Sum"}
# Ops that other passes added: they return one row for each row of their input.
_FUSED = {
    "RecCrossNetwork", "RecDotInteraction", "RecFieldOuter", "RecFmInteraction", "RecHeadAttention", "RecProduct",
    "RecRecurrentLayer", "RecSequencePooling", "RecTargetAttention",
}  # fmt: skip
_FIRST = {"ArgMax", "ArgMin"}


class Batches(SizeFinder):
    """Finds the sizes of tensors, and the symbols among them that are equal numbers."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._static = shapes(model)
        self._leader: dict[Symbol, Size] = {}
        #: The signatures that need a node, by node.
        self.needs: dict[str, frozenset[str]] = _needs(model)
        for node in model.graph.ordered():
            self._learn_from(node)

    def leader(self, size: Size) -> Size:
        """Return the size that represents all sizes known to be equal to it."""
        while isinstance(size, Symbol) and size in self._leader:
            size = self._leader[size]
        return size

    def equal(self, first: Size, second: Size) -> bool:
        return self.leader(first) == self.leader(second)

    def rows(self, output: Output) -> Size | None:
        """Return the first size of a tensor; None for a scalar, or if it is not known at all."""
        found = self.of(output)
        return found[0] if found else None

    def total(self, sizes: Sizes) -> tuple[int, tuple[Symbol, ...]]:
        """Return the number of elements, as a number and the symbols by which it is multiplied."""
        number, symbols = 1, []
        for size in map(self.leader, sizes):
            if isinstance(size, Symbol):
                symbols.append(size)
            else:
                number *= size
        return number, tuple(sorted(symbols))

    def keeps_rows(self, node: Node) -> bool:
        """Return whether a node that changes the shape of a tensor keeps the elements of each row together."""
        if not is_reshape(self.graph, node):
            return False
        before, after = self.of(node.inputs[0]), self.of(node.output())
        if not before or not after or not self.equal(before[0], after[0]):
            return False
        return self.total(before[1:]) == self.total(after[1:])

    def _find(self, node: Node, output: Output) -> Sizes | None:
        return super()._find(node, output) or self._find_more(node, output) or self._inferred(output)

    def _inferred(self, output: Output) -> Sizes | None:
        found = self._static(output)
        if found is None:
            return None
        return tuple(Symbol("size", output, i) if size is None else size for i, size in enumerate(found))

    def _find_more(self, node: Node, output: Output) -> Sizes | None:
        if node.op in {"Split", "SplitV", "StridedSlice", "Transpose"}:
            return self._rows_kept(node, output)
        if node.op in _FUSED and not output.port:
            before, after = self.of(node.inputs[node.op == "RecTargetAttention"]), self._inferred(output)
            return (before[0], *after[1:]) if before and after else None
        if node.op in _UNARY:
            return self.of(node.inputs[0])
        if node.op in _BINARY:
            return self._broadcast(node.inputs)
        if node.op == "AddN":
            return self.of(node.inputs[0])
        if node.op in _REDUCTIONS | _FIRST:
            return self._reduced(node)
        if node.op in {"ConcatV2", "Pack"}:
            return self._joined(node)
        if node.op == "Tile":
            return self._tiled(node)
        if node.op == "SegmentSum":
            row, rows = self.of(node.inputs[0]), self._segment_rows(node.inputs[1])
            return None if row is None or rows is None else (rows, *row[1:])
        if node.op in {"BatchMatMul", "BatchMatMulV2"}:
            return self._multiplied(node)
        return None

    def _segment_rows(self, segments: Output) -> Size | None:
        """Return the number of segments, if every row was filled."""
        matrix = first_column(self.graph, segments)
        fill = source(self.graph, matrix, "SparseFillEmptyRows") if matrix is not None else None
        shape = self.vector(fill.inputs[2]) if fill is not None else None
        return shape[0] if shape else None

    def _tiled(self, node: Node) -> Sizes | None:
        before, times = self.of(node.inputs[0]), self.vector(node.inputs[1])
        if before is None or times is None or len(before) != len(times):
            return None
        made: list[Size] = []
        for i, (size, count) in enumerate(zip(before, times, strict=True)):
            if isinstance(size, int) and isinstance(count, int):
                made.append(size * count)
            else:
                made.append(size if count == 1 else count if size == 1 else Symbol("size", node.output(), i))
        return tuple(made)

    def _multiplied(self, node: Node) -> Sizes | None:
        left, right = self.of(node.inputs[0]), self.of(node.inputs[1])
        if left is None or right is None or min(len(left), len(right)) < 2:
            return None
        rows = left[-1 if attribute(node, "adj_x", False) else -2]
        columns = right[-2 if attribute(node, "adj_y", False) else -1]
        before = self._joint(left[:-2], right[:-2])
        return None if before is None else (*before, rows, columns)

    @staticmethod
    def _joint(left: Sizes, right: Sizes) -> Sizes | None:
        """Return the sizes to which two shapes are broadcast."""
        length = max(len(left), len(right))
        left, right = (1,) * (length - len(left)) + left, (1,) * (length - len(right)) + right
        if any(a != b and a != 1 and b != 1 for a, b in zip(left, right, strict=True)):
            return None
        return tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))

    def _rows_kept(self, node: Node, output: Output) -> Sizes | None:
        """Return the inferred sizes of a node that moves or picks columns, with the rows of its input."""
        before, after = self.of(node.inputs[1 if node.op == "Split" else 0]), self._inferred(output)
        if not before or not after:
            return None
        if node.op == "Transpose":
            order = constant_list(self.graph, node.inputs[1])
            return None if order is None else tuple(before[axis % len(before)] for axis in order)
        if node.op == "StridedSlice" and is_reshape(self.graph, node):
            return _with_new_axes(node, before, len(constant_list(self.graph, node.inputs[3]) or ()))
        if node.op == "StridedSlice":
            begin, step = (constant_list(self.graph, node.inputs[i]) for i in (1, 3))
            masks = [attribute(node, f"{key}_mask", 0) for key in ("new_axis", "shrink_axis", "ellipsis")]
            whole = attribute(node, "end_mask", 0) & 1 and (
                attribute(node, "begin_mask", 0) & 1 or (begin or [1])[0] == 0
            )
            known = whole and not masks[0] and not masks[1] & 1 and step is not None and step[0] == 1
            return (before[0], *after[1:]) if known or (masks[2] & 1 and not masks[0] and not masks[1] & 1) else None
        axis = constant_list(self.graph, node.inputs[0 if node.op == "Split" else 2])
        return None if axis is None or axis[0] % len(before) == 0 else (before[0], *after[1:])

    def _reduced(self, node: Node) -> Sizes | None:
        before, axes = self.of(node.inputs[0]), constant_list(self.graph, node.inputs[1])
        if before is None or axes is None:
            return None
        gone = {axis % len(before) for axis in axes} if before else set()
        if node.op not in _FIRST and attribute(node, "keep_dims", False):
            return tuple(1 if i in gone else size for i, size in enumerate(before))
        return tuple(size for i, size in enumerate(before) if i not in gone)

    def _joined(self, node: Node) -> Sizes | None:
        parts = joined_parts(node)
        first, axis = self.of(parts[0]), joined_axis(self, node)
        if first is None or axis is None:
            return None
        if node.op == "Pack":
            return (*first[:axis], len(parts), *first[axis:])
        total = 0
        for part in parts:
            sizes = self.of(part)
            size = sizes[axis] if sizes is not None and len(sizes) == len(first) else None
            if not isinstance(size, int):
                return (*first[:axis], Symbol("size", node.output(), axis), *first[axis + 1 :])
            total += size
        return (*first[:axis], total, *first[axis + 1 :])

    def _learn_from(self, node: Node) -> None:
        """Record sizes as equal if a node refuses parts of different sizes."""
        if node.op == "RecTargetAttention" and node.name in self.needs:
            query, keys = self.of(node.inputs[0]), self.of(node.inputs[1])
            # It counts elements: one row for each row of the keys.
            if query and keys and self.total(query[1:]) == self.total(keys[2:]):
                self._join(query[0], keys[0], self.needs[node.name])
            return
        if node.op not in {"ConcatV2", "Pack", "AddN"} or node.name not in self.needs:
            return
        axis = None if node.op == "AddN" else joined_axis(self, node)
        if node.op == "ConcatV2" and axis is None:
            return
        known = [sizes for sizes in (self.of(part) for part in joined_parts(node)) if sizes is not None]
        for sizes in known[1:]:
            if len(sizes) == len(known[0]):
                for i, (first, second) in enumerate(zip(known[0], sizes, strict=True)):
                    if i != axis or node.op == "Pack":
                        self._join(first, second, self.needs[node.name])

    def _join(self, first: Size, second: Size, needs: frozenset[str]) -> None:
        first, second = self.leader(first), self.leader(second)
        if first == second:
            return
        for size in (first, second):
            if isinstance(size, Symbol) and not self.needs.get(size.of.node, frozenset()) <= needs:
                return
        if isinstance(first, Symbol):
            self._leader[first] = second
        elif isinstance(second, Symbol):
            self._leader[second] = first


def is_reshape(graph: Graph, node: Node) -> bool:
    """Return whether a node returns the elements of its first input in another shape, also as `x[:, None]`."""
    if node.op != "StridedSlice":
        return node.op in {"ExpandDims", "Reshape", "Squeeze"}
    steps = constant_list(graph, node.inputs[3])
    masks = [attribute(node, f"{key}_mask", 0) for key in ("begin", "end", "new_axis", "ellipsis", "shrink_axis")]
    if steps is None or set(steps) != {1} or masks[4] or not masks[2]:
        return False
    begin, end, new_axis, ellipsis, _ = masks
    return all((begin & end | new_axis | ellipsis) >> place & 1 for place in range(len(steps)))


def _with_new_axes(node: Node, before: Sizes, count: int) -> Sizes:
    """Return the sizes of `x[:, None]` with `count` entries in the brackets."""
    new_axis, ellipsis = attribute(node, "new_axis_mask", 0), attribute(node, "ellipsis_mask", 0)
    made: list[Size] = []
    left = list(before)
    for place in range(count):
        bit = 1 << place
        if ellipsis & bit:
            behind = sum(1 for later in range(place + 1, count) if not new_axis >> later & 1)
            taken = len(left) - behind
            made, left = [*made, *left[:taken]], left[taken:]
        elif new_axis & bit:
            made.append(1)
        elif left:
            made.append(left.pop(0))
    return (*made, *left)


def joined_parts(node: Node) -> list[Output]:
    """Return the tensors that a ConcatV2, Pack or AddN joins."""
    return node.inputs[:-1] if node.op == "ConcatV2" else node.inputs


def joined_axis(sizes: SizeFinder, node: Node) -> int | None:
    """Return the axis of a ConcatV2 or Pack, 0 or more, or None if it is not known."""
    rank = sizes.rank(node.inputs[0])
    if rank is None:
        return None
    if node.op == "Pack":
        return int(attribute(node, "axis", 0)) % (rank + 1)
    axis = constant_list(sizes.graph, skip(sizes.graph, node.inputs[-1]))
    return None if axis is None or not rank else axis[0] % rank


def _needs(model: Model) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for name, signature in model.signatures.items():
        for node in model.graph.ancestors(output.tensor.node for output in signature.outputs.values()):
            found.setdefault(node, set()).add(name)
    return {node: frozenset(names) for node, names in found.items()}
