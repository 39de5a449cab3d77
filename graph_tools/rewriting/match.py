# SPDX-License-Identifier: Apache-2.0
"""What the passes that recognise idioms share: looking through nodes, cloning chains, replacing and sweeping."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from graph_tools.graph import Graph, Node, Output, attr_value, attribute, has_effect
from graph_tools.graph.attributes import const_array
from graph_tools.model import Model
from graph_tools.tensors import Array

_PASS_THROUGH = {"Identity", "Snapshot", "StopGradient", "PreventGradient"}

# Give each element from the elements at the same place, whatever these are, and never fail on any of them.
_ELEMENTWISE = {
    "Abs", "Add", "AddV2", "AsString", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Bucketize", "Cast", "Equal",
    "Greater", "GreaterEqual", "Identity", "Less", "LessEqual", "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum",
    "Minimum", "Mul", "Neg", "NotEqual", "OnesLike", "Select", "SelectV2", "StaticRegexReplace", "StringLower",
    "StringStrip", "StringToHashBucket", "StringToHashBucketFast", "StringToHashBucketStrong", "StringUpper", "Sub",
    "ZerosLike",
}  # fmt: skip
_DIVISIONS = {"FloorMod", "FloorDiv", "Mod", "TruncateMod", "TruncateDiv"}
FINDS = {"LookupTableFindV2"}
_SCALAR_ARITHMETIC: dict[str, Any] = {
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.remainder,
}


def skip(graph: Graph, output: Output) -> Output:
    """Follow an output back through nodes that only pass it on."""
    node = graph[output.node]
    while node.op in _PASS_THROUGH and not node.controls:
        output = node.inputs[0]
        node = graph[output.node]
    return output


def source(graph: Graph, output: Output, *ops: str) -> Node | None:
    """Return the node that gives an output, seen through identities, if it is of one of `ops`."""
    node = graph[skip(graph, output).node]
    return node if node.op in ops else None


def operand(graph: Graph, node: Node, index: int) -> Output:
    """Return input `index` of a node, seen through identities."""
    return skip(graph, node.inputs[index])


def constant(graph: Graph, output: Output) -> Array | None:
    """Return the elements of a constant, seen through identities, casts and arithmetic on integers."""
    node = graph[skip(graph, output).node]
    if node.op == "Cast":
        before = constant(graph, node.inputs[0])
        after = attribute(node, "DstT")
        return before.astype(after.as_numpy_dtype) if before is not None and after.is_integer else None
    if node.op in _SCALAR_ARITHMETIC and not node.controls:
        parts = [constant(graph, one) for one in node.inputs]
        if any(one is None or one.ndim or one.dtype.kind != "i" for one in parts):
            return None
        result: Array = np.asarray(_SCALAR_ARITHMETIC[node.op](*parts))
        return result
    return const_array(node) if node.op == "Const" else None


def constant_list(graph: Graph, output: Output) -> list[int] | None:
    """Return a constant vector or scalar of integers as a list."""
    array = constant(graph, output)
    return None if array is None or array.dtype.kind not in "iu" else [int(one) for one in array.ravel()]


def is_constant(graph: Graph, output: Output, *values: int | float | bytes) -> bool:
    """Say whether an output is a constant of one element that is among `values`."""
    array = constant(graph, output)
    return array is not None and array.size == 1 and array.ravel()[0] in values


def shared_const(graph: Graph, value: Array, name: str) -> Output:
    """Return a constant that every site of the passes may share; `name` says what it holds."""
    wish = f"shared/{name}"
    node = graph.nodes.get(wish)
    if node is not None and node.op == "Const":
        held = const_array(node)
        if held.dtype == value.dtype and held.shape == value.shape and bool(np.all(held == value)):
            return node.output()
    return graph.add_const(value, wish)


def int32_const(graph: Graph, *values: int) -> Output:
    """Return a shared int32 vector."""
    return shared_const(
        graph, np.array(values, np.int32), "int32_" + "_".join(str(one).replace("-", "m") for one in values)
    )


def int32_scalar(graph: Graph, value: int) -> Output:
    """Return a shared int32 scalar."""
    return shared_const(graph, np.array(value, np.int32), f"int32_scalar_{value}".replace("-", "m"))


def first_column(graph: Graph, output: Output) -> Output | None:
    """Return the matrix whose column 0 an output is, a cast of it to another integer type included."""
    node = graph[skip(graph, output).node]
    if node.op == "Cast":
        node = graph[operand(graph, node, 0).node]
    if node.op != "StridedSlice":
        return None
    begin, end, strides = (constant_list(graph, node.inputs[i]) for i in (1, 2, 3))
    masks = {key: attribute(node, f"{key}_mask", 0) for key in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    if begin is None or end is None or strides != [1, 1] or len(begin) != 2:
        return None
    rows = (masks["begin"] & 1 or begin[0] == 0) and masks["end"] & 1
    column = masks["shrink_axis"] == 2 and begin[1] == 0
    return node.inputs[0] if rows and column and not masks["ellipsis"] and not masks["new_axis"] else None


def add_first_column(graph: Graph, matrix: Output, dtype: object, name: str) -> Output:
    """Add the slice `matrix[:, 0]`."""
    bounds = [int32_const(graph, *one) for one in ((0, 0), (0, 1), (1, 1))]
    attrs = {"T": dtype, "Index": np.int32, "begin_mask": 1, "end_mask": 1, "shrink_axis_mask": 2}
    attrs |= {"ellipsis_mask": 0, "new_axis_mask": 0}
    return graph.add("StridedSlice", [matrix, *bounds], name=name, attrs=attrs).output()


def add_element(graph: Graph, vector: Output, index: int, dtype: object, name: str) -> Output:
    """Add the slice `vector[index]`."""
    bounds = [int32_const(graph, one) for one in (index, index + 1, 1)]
    attrs = {"T": dtype, "Index": np.int32, "begin_mask": 0, "end_mask": 0, "shrink_axis_mask": 1}
    attrs |= {"ellipsis_mask": 0, "new_axis_mask": 0}
    return graph.add("StridedSlice", [vector, *bounds], name=name, attrs=attrs).output()


def add_reshape(graph: Graph, tensor: Output, dtype: object, shape: Iterable[int], name: str) -> Output:
    """Add a reshape to a constant shape."""
    attrs = {"T": dtype, "Tshape": np.int32}
    return graph.add("Reshape", [tensor, int32_const(graph, *shape)], name=name, attrs=attrs).output()


def read_variable(graph: Graph, handle: Output, dtype: object, name: str) -> Output:
    """Return the value of a variable that nothing writes while it serves, from a read that is there if there is one."""
    for user in graph.users(handle.node):
        if user.op == "ReadVariableOp" and not user.controls:
            return user.output()
    return graph.add("ReadVariableOp", [handle], name=name, attrs={"dtype": dtype}).output()


def chain_between(graph: Graph, begin: Output, end: Output) -> list[Node] | str:
    """List the nodes that make `end` from `begin`, inputs first, or say which of them does more than that.

    Every node must give each element from the elements of the same place (and from scalars), and must not fail on any
    value, so that it may be given other elements, or more of them.
    """
    begin, end = skip(graph, begin), skip(graph, end)
    order: list[Node] = []
    depends: dict[str, bool] = {begin.node: True}
    reason = ""

    def visit(name: str) -> bool:
        nonlocal reason
        if name not in depends:
            depends[name] = False
            node = graph[name]
            inputs = [visit(one.node) for one in node.inputs]
            if any(inputs):
                depends[name] = True
                reason = reason or _not_elementwise(graph, node, inputs)
                order.append(node)
        return depends[name]

    if not visit(end.node):
        return f"'{end.node}' is not made from '{begin.node}'"
    return reason or order


def _not_elementwise(graph: Graph, node: Node, dependent: list[bool]) -> str:
    """Say why a node is not elementwise in its dependent inputs, or ""."""
    refusal = f"'{node.name}' ({node.op}) is not known to look at each id alone"
    if node.controls:
        return f"'{node.name}' ({node.op}) runs after '{node.controls[0]}', which may check the ids"
    if node.op == "Fill":
        return "" if dependent == [True, False] and source(graph, node.inputs[0], "Shape") else refusal
    if node.op == "Shape":
        return "" if all(user.op == "Fill" for user in graph.users(node.name)) else refusal
    if node.op in FINDS:
        scalar = constant(graph, node.inputs[2])
        return "" if dependent == [False, True, False] and scalar is not None and scalar.ndim == 0 else refusal
    if node.op in _DIVISIONS:
        divisor = constant(graph, node.inputs[1])
        return "" if divisor is not None and divisor.ndim == 0 and divisor != 0 else refusal
    if node.op not in _ELEMENTWISE:
        return refusal
    for output, changes in zip(node.inputs, dependent, strict=True):
        if not changes and _rank(graph, output) != 0:
            return f"'{node.name}' ({node.op}) combines ids with '{output}', which is not a scalar"
    return ""


def _rank(graph: Graph, output: Output) -> int | None:
    """Return the rank of what is a constant or a count."""
    array = constant(graph, output)
    if array is not None:
        return array.ndim
    return 0 if source(graph, output, "LookupTableSizeV2", "Size") else None


def clone_chain(graph: Graph, chain: list[Node], begin: Output, end: Output, new: Output) -> Output:
    """Make what a chain makes of `begin` from `new` instead."""
    made = {skip(graph, begin): new}
    for node in chain:
        if node.op in _PASS_THROUGH:
            made[node.output()] = _made(graph, made, node.inputs[0])
            continue
        inputs = [_made(graph, made, one) for one in node.inputs]
        clone = graph.add(node.op, inputs, name=f"{node.name}/collapsed", attrs=dict(node.attrs), device=node.device)
        made[node.output()] = clone.output()
    return _made(graph, made, end)


def _made(graph: Graph, made: dict[Output, Output], output: Output) -> Output:
    return made.get(output) or made.get(skip(graph, output), output)


def replace_output(model: Model, old: Output, new: Output, dtype: object, why: str) -> None:
    """Let users have `new` for `old`, and remove what only `old` needed.

    A node that a signature names becomes an Identity of `new`.
    """
    graph = model.graph
    graph.replace(old, new)
    if old.node in model.outputs():
        node = graph[old.node]
        before = [*(one.node for one in node.inputs), *node.controls]
        node.op, node.attrs = "Identity", {"T": attr_value(dtype)}
        graph.set_inputs(node, [new], [])
        sweep(model, before, why)
    else:
        sweep(model, [old.node], why)


def sweep(model: Model, names: Iterable[str], why: str) -> None:
    """Remove these nodes and what only they need, where nothing uses them any more.

    A node that only orders others gives way to what it waited for itself.
    """
    graph, roots = model.graph, model.roots()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in graph or name in roots or has_effect(graph, graph[name]):
            continue
        node = graph[name]
        if any(one.node == name for user in graph.users(name) for one in user.inputs):
            continue
        if graph.users(name):
            graph.replace_control(
                name, [*node.controls, *(i.node for i in node.inputs if has_effect(graph, graph[i.node]))]
            )
        waiting += [*(one.node for one in node.inputs), *node.controls]
        graph.remove(name, why)
