# SPDX-License-Identifier: Apache-2.0
"""Find every tensor of a graph that a group of lookups may produce."""

from __future__ import annotations

from graph_tools.analysis.batches import Batches
from graph_tools.analysis.values import Values
from graph_tools.graph import CONTROL_FLOW, Node, Output
from graph_tools.model import Model
from graph_tools.recognition.lookups.joins import Joiner
from graph_tools.recognition.lookups.lookup_finder import SEGMENT_OPS, LookupFinder
from graph_tools.recognition.lookups.pieces import Piece

_JOINS = {
    "Reshape": "reshaped", "ExpandDims": "reshaped", "Squeeze": "reshaped", "StridedSlice": "reshaped",
    "ConcatV2": "concatenated",
    "Pack": "concatenated", "AddN": "added", "Add": "added", "AddV2": "added", "BiasAdd": "added", "Sum": "reduced",
    "Mean": "reduced", "MatMul": "linear",
}  # fmt: skip
_PASS_ON = {"Identity", "Snapshot", "StopGradient", "PreventGradient", "EnsureShape"}
_GATHERS = {"ResourceGather", "GatherV2", "Cast", "Add", "AddV2"}
_SELECTS = {"Select", "SelectV2"}
# Ops whose result does not depend on the elements.
_OF_SHAPE = {"OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"}
_QUOTIENTS = {"DivNoNan", "RealDiv"}
_READS = {*SEGMENT_OPS, "OneHot"}
_EXPLAINED = {*SEGMENT_OPS, *_SELECTS, "GatherV2", "Mul", "ResourceGather", "SegmentSum"}


class PieceFinder:
    """Examines all nodes of a graph, each after its inputs.

    Attributes
    ----------
    pieces : dict of Output to Piece
    refused : dict of str to str
        Nodes that read rows of tables but are not part of a piece, with the reason.
    batches : Batches
    """

    def __init__(self, model: Model) -> None:
        self.model, self.graph = model, model.graph
        self.batches = Batches(model)
        self.pieces: dict[Output, Piece] = {}
        self.refused: dict[str, str] = {}
        self._depths: dict[str, int] = {}
        self._flow: set[str] = set()
        self._fixed: set[str] = set()
        self.lookups = LookupFinder(model, self.batches)
        self.joins = Joiner(self.batches, Values(model), self.pieces.get, self.depth)
        for node in self.graph.ordered():
            self._visit(node)
        for name, reason in self.lookups.numbers.refused.items():
            self.refused.setdefault(name, f"{reason}; its numbers are given to the group")

    def depth(self, output: Output) -> int:
        """Return the number of lookups that a tensor needs, one after another."""
        return self._depths.get(output.node, 0)

    def _visit(self, node: Node) -> None:
        before = [source.node for source in node.inputs]
        if node.op in CONTROL_FLOW or any(one in self._flow for one in [*before, *node.controls]):
            self._flow.add(node.name)
        if self._is_fixed(node):
            self._fixed.add(node.name)
        piece = self._find(node) if node.name in self.batches.needs else None
        if piece and node.controls:
            piece = f"it runs after '{node.controls[0]}'"
        reads = node.op in _READS or (node.op in {"ResourceGather", "GatherV2"} and self._reads_rows(node))
        self._depths[node.name] = max((self._depths.get(one, 0) for one in before), default=0) + reads
        if isinstance(piece, Piece) and piece.looks_up and node.name in self._flow:
            piece = "it runs in a branch or loop of TensorFlow 1"
        if isinstance(piece, Piece) and any(part.key and part.key.values.node in self._fixed for part in piece.parts):
            piece = "its ids are the same in every request of so many rows"
        if isinstance(piece, Piece):
            self.pieces[node.output()] = piece
        elif piece and node.op in _EXPLAINED:
            self.refused[node.name] = piece

    def _is_fixed(self, node: Node) -> bool:
        """Return whether a node gives the same result for all requests of one shape."""
        if node.op in {"Placeholder", "PlaceholderWithDefault"} or (not node.inputs and node.op != "Const"):
            return False
        return node.op in _OF_SHAPE or all(source.node in self._fixed for source in node.inputs)

    def _reads_rows(self, node: Node) -> bool:
        """Return whether a gather reads rows of numbers."""
        found = self.lookups.rows.of(node.output())
        return not isinstance(found, str)

    def _find(self, node: Node) -> Piece | str | None:
        if node.op in _PASS_ON:
            return self.pieces.get(node.inputs[0])
        found: Piece | str | None = ""
        if node.op in SEGMENT_OPS:
            return self.lookups.combined(node)
        if node.op in _GATHERS:
            found = self.lookups.gathered(node.output())
        elif node.op in _SELECTS:
            found = self.lookups.masked(node)
            combined = self.pieces.get(node.inputs[2])
            if not found and combined is not None:
                found = self.lookups.emptied(node, combined)
        elif node.op == "Mul":
            found = self.lookups.multiplied(node)
        elif node.op in _QUOTIENTS:
            total = self.pieces.get(node.inputs[0])
            if total is not None and total.looks_up:
                found = self.lookups.averaged(node, total) or self.lookups.normalized(node, total)
        elif node.op == "OneHot":
            found = self.lookups.one_hot(node)
        elif node.op == "SegmentSum":
            found = self.lookups.weighted(node)
        if not found and node.op in _JOINS:
            found = getattr(self.joins, _JOINS[node.op])(node)
        return found
