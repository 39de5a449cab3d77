# SPDX-License-Identifier: Apache-2.0
"""Find chains of elementwise nodes, and clone them for other elements."""

from __future__ import annotations

from graph_tools.graph import PASS_THROUGH, Graph, Node, Output, constant, skip, source
from graph_tools.rewriting.outcome import Found, Outcome, Refused

# Ops that compute each element from the elements at the same place only, and that never fail on any element.
_ELEMENTWISE = {
    "Abs", "Add", "AddV2", "AsString", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Bucketize", "Cast", "Equal",
    "Greater", "GreaterEqual", "Identity", "Less", "LessEqual", "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum",
    "Minimum", "Mul", "Neg", "NotEqual", "OnesLike", "Select", "SelectV2", "StaticRegexReplace", "StringLower",
    "StringStrip", "StringToHashBucket", "StringToHashBucketFast", "StringToHashBucketStrong", "StringUpper", "Sub",
    "ZerosLike",
}  # fmt: skip

_DIVISIONS = {"FloorMod", "FloorDiv", "Mod", "TruncateMod", "TruncateDiv"}

FINDS = {"LookupTableFindV2"}


def chain_between(graph: Graph, begin: Output, end: Output) -> Outcome[list[Node]]:
    """Return the nodes that compute `end` from `begin`, inputs first; refuse if one of them is not elementwise.

    Every node must compute each element from the elements at the same place (and from scalars), and must not fail on
    any value, so that it may be applied to other elements, or to more of them.
    """
    begin, end = skip(graph, begin), skip(graph, end)
    order: list[Node] = []
    depends: dict[str, bool] = {begin.node: True}
    reason: str | None = None

    def visit(name: str) -> bool:
        nonlocal reason
        if name not in depends:
            depends[name] = False
            node = graph[name]
            inputs = [visit(source.node) for source in node.inputs]
            if any(inputs):
                depends[name] = True
                reason = reason or _not_elementwise(graph, node, inputs)
                order.append(node)
        return depends[name]

    if not visit(end.node):
        return Refused(f"'{end.node}' is not made from '{begin.node}'")
    return Found(order) if reason is None else Refused(reason)


def _not_elementwise(graph: Graph, node: Node, dependent: list[bool]) -> str | None:
    """Return why a node is not elementwise in its dependent inputs, or None if it is."""
    refusal = f"'{node.name}' ({node.op}) is not known to look at each id alone"
    if node.controls:
        return f"'{node.name}' ({node.op}) runs after '{node.controls[0]}', which may check the ids"
    if node.op == "Fill":
        return None if dependent == [True, False] and source(graph, node.inputs[0], "Shape") else refusal
    if node.op == "Shape":
        return None if all(user.op == "Fill" for user in graph.users(node.name)) else refusal
    if node.op in FINDS:
        scalar = constant(graph, node.inputs[2])
        return None if dependent == [False, True, False] and scalar is not None and scalar.ndim == 0 else refusal
    if node.op in _DIVISIONS:
        divisor = constant(graph, node.inputs[1])
        return None if divisor is not None and divisor.ndim == 0 and divisor != 0 else refusal
    if node.op not in _ELEMENTWISE:
        return refusal
    for output, changes in zip(node.inputs, dependent, strict=True):
        if not changes and _rank(graph, output) != 0:
            return f"'{node.name}' ({node.op}) combines ids with '{output}', which is not a scalar"
    return None


def _rank(graph: Graph, output: Output) -> int | None:
    """Return the rank of an output that is a constant or a count."""
    array = constant(graph, output)
    if array is not None:
        return array.ndim
    return 0 if source(graph, output, "LookupTableSizeV2", "Size") else None


def clone_chain(graph: Graph, chain: list[Node], begin: Output, end: Output, new: Output) -> Output:
    """Clone a chain so that it computes `end` from `new` instead of `begin`."""
    clones = {skip(graph, begin): new}
    for node in chain:
        if node.op in PASS_THROUGH:
            clones[node.output()] = _clone_of(graph, clones, node.inputs[0])
            continue
        inputs = [_clone_of(graph, clones, source) for source in node.inputs]
        clone = graph.add(node.op, inputs, name=f"{node.name}/collapsed", attrs=dict(node.attrs), device=node.device)
        clones[node.output()] = clone.output()
    return _clone_of(graph, clones, end)


def _clone_of(graph: Graph, clones: dict[Output, Output], output: Output) -> Output:
    return clones.get(output) or clones.get(skip(graph, output), output)
