# SPDX-License-Identifier: Apache-2.0
"""Find every tensor of a graph that a group of lookups may produce."""

from __future__ import annotations

from graph_tools.analysis.batches import Batches
from graph_tools.analysis.values import Values
from graph_tools.graph import CONTROL_FLOW, PASS_THROUGH, Node, Output
from graph_tools.model import Model
from graph_tools.recognition.lookups.combined_lookups import SEGMENT_OPS, CombinedFinder
from graph_tools.recognition.lookups.gathered_lookups import GatheredFinder
from graph_tools.recognition.lookups.joins import Joiner
from graph_tools.recognition.lookups.lookup_analyses import LookupAnalyses
from graph_tools.recognition.lookups.pieces import Piece
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused

_JOINS = {
    "Reshape": "reshaped", "ExpandDims": "reshaped", "Squeeze": "reshaped", "StridedSlice": "reshaped",
    "ConcatV2": "concatenated",
    "Pack": "concatenated", "AddN": "added", "Add": "added", "AddV2": "added", "BiasAdd": "added", "Sum": "reduced",
    "Mean": "reduced", "MatMul": "linear", "Mul": "multiplied",
}  # fmt: skip
_PASS_ON = PASS_THROUGH | {"EnsureShape"}
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
        self.lookups = LookupAnalyses(model, self.batches)
        self.gathered, self.combined = GatheredFinder(self.lookups), CombinedFinder(self.lookups)
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
        if node.op in CONTROL_FLOW or any(name in self._flow for name in [*before, *node.controls]):
            self._flow.add(node.name)
        if self._is_fixed(node):
            self._fixed.add(node.name)
        found: Outcome[Piece] = self._find(node) if node.name in self.batches.needs else NoMatch()
        if isinstance(found, Found):
            found = self._refuse_if_unsuitable(node, found.value)
        if found and node.controls:
            found = Refused(f"it runs after '{node.controls[0]}'")
        reads = node.op in _READS or (node.op in _GATHERS and self._reads_rows(node))
        self._depths[node.name] = max((self._depths.get(name, 0) for name in before), default=0) + reads
        if isinstance(found, Found):
            self.pieces[node.output()] = found.value
        elif isinstance(found, Refused) and node.op in _EXPLAINED:
            self.refused[node.name] = found.reason

    def _refuse_if_unsuitable(self, node: Node, piece: Piece) -> Outcome[Piece]:
        """Refuse a piece that a group cannot produce because of when the node runs, or of where its ids come from."""
        if piece.looks_up and node.name in self._flow:
            return Refused("it runs in a branch or loop of TensorFlow 1")
        if any(part.key and part.key.values.node in self._fixed for part in piece.parts):
            return Refused("its ids are the same in all requests with the same number of rows")
        return Found(piece)

    def _is_fixed(self, node: Node) -> bool:
        """Return whether a node gives the same result for all requests of one shape."""
        if node.op in {"Placeholder", "PlaceholderWithDefault"} or (not node.inputs and node.op != "Const"):
            return False
        return node.op in _OF_SHAPE or all(source.node in self._fixed for source in node.inputs)

    def _reads_rows(self, node: Node) -> bool:
        """Return whether a node is a gather of float32 rows, or the last node that converts rows to float32."""
        return isinstance(self.lookups.rows.of(node.output()), Found)

    def _find(self, node: Node) -> Outcome[Piece]:
        if node.op in _PASS_ON:
            return _outcome(self.pieces.get(node.inputs[0]))
        found: Outcome[Piece] = NoMatch()
        if node.op in SEGMENT_OPS:
            found = self.combined.combined(node)
            computed = self.pieces.get(node.inputs[0])
            if isinstance(found, Found) or computed is None:
                return found
            return self.combined.pooled(node, computed) or found
        if node.op in _GATHERS:
            found = self.gathered.gathered(node.output())
        elif node.op in _SELECTS:
            found = self.gathered.masked(node)
            combined = self.pieces.get(node.inputs[2])
            if not found and combined is not None:
                found = self.combined.emptied(node, combined)
        elif node.op == "Mul":
            found = self.gathered.multiplied(node)
        elif node.op in _QUOTIENTS:
            total = self.pieces.get(node.inputs[0])
            if total is not None and total.looks_up:
                found = self.combined.averaged(node, total) or self.combined.normalized(node, total)
        elif node.op == "OneHot":
            found = self.gathered.one_hot(node)
        elif node.op == "SegmentSum":
            found = self.combined.weighted(node)
        if not found and node.op in _JOINS:
            found = _outcome(getattr(self.joins, _JOINS[node.op])(node))
        return found


def _outcome(piece: Piece | None) -> Outcome[Piece]:
    return NoMatch() if piece is None else Found(piece)
