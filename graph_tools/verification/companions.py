# SPDX-License-Identifier: Apache-2.0
"""Find pairs of inputs that need the same entries, such as the ids of a bag and their weights."""

from __future__ import annotations

from graph_tools.graph import Graph, Node, Output, constant
from graph_tools.model import Model, Signature

#: Ops that combine the entries of their two operands one by one.
_MEETINGS = {"LogicalAnd", "Mul"}
#: Op -> the input whose entries, all or some of them, are those of its first output.
_FOLLOWED = {
    "Identity": 0, "Snapshot": 0, "Cast": 0, "Reshape": 0, "ExpandDims": 0, "Squeeze": 0, "GatherNd": 0,
    "ResourceGather": 1, "Unique": 0, "LookupTableFindV2": 1, "StringToHashBucket": 0, "StringToHashBucketFast": 0,
    "StringToHashBucketStrong": 0, "AsString": 0, "StringToNumber": 0, "Abs": 0, "PlaceholderWithDefault": 0,
}  # fmt: skip
_COMPARED = {"Greater", "GreaterEqual", "Less", "LessEqual", "NotEqual", "Equal", "Maximum", "Minimum", "FloorMod"}
#: Ops on sparse tensors: output 1 has the entries of input 1.
_SPARSE = {"SparseFillEmptyRows", "SparseReorder"}


def find_companions(model: Model, signature: Signature) -> list[tuple[str, str]]:
    """Return the pairs of inputs (ids, weights) whose entries a graph combines one by one.

    If both are parts of sparse tensors, the keys are those of their values.
    """
    keys = {source.tensor.node: key for key, source in signature.inputs.items()}
    found: dict[tuple[str, str], None] = {}
    for node in model.graph:
        if node.op not in _MEETINGS:
            continue
        first, second = (_origin(model.graph, tensor, keys) for tensor in node.inputs)
        if first is None or second is None or first == second:
            continue
        floats = [signature.inputs[key].dtype.is_floating for key in (first, second)]
        # If both are integers or both are floats, neither is the weight of the other.
        if floats[0] != floats[1]:
            found[(second, first) if floats[0] else (first, second)] = None
    return list(found)


def _origin(graph: Graph, output: Output, keys: dict[str, str]) -> str | None:
    """Return the input whose entries an output has, or None."""
    seen: set[Output] = set()
    while output not in seen:
        seen.add(output)
        node = graph[output.node]
        if node.name in keys:
            return keys[node.name]
        following = _following(graph, node, output.port)
        if following is None:
            return None
        output = following
    return None


def _following(graph: Graph, node: Node, port: int) -> Output | None:
    if node.op in _SPARSE:
        return node.inputs[1] if port == 1 else None
    if node.op in {"GatherV2", "Gather"}:
        # The output has rows of a table for ids, or those entries of input 0 that a mask keeps.
        table = graph.source(node.inputs[0]).op in {"ReadVariableOp", "Const", "VarHandleOp", "VariableV2"}
        return node.inputs[1] if table else node.inputs[0]
    if node.op in _COMPARED:
        others = [source for source in node.inputs if constant(graph, source) is None]
        return others[0] if len(others) == 1 else None
    place = _FOLLOWED.get(node.op)
    return None if place is None or place >= len(node.inputs) else node.inputs[place]
