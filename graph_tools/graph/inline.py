# SPDX-License-Identifier: Apache-2.0
"""Replace calls by the bodies of the called functions."""

from __future__ import annotations

from typing import Any

from graph_tools.errors import UnreadableError
from graph_tools.graph.attributes import attr_value
from graph_tools.graph.graph import Graph, serving_attributes
from graph_tools.graph.node import Node, Output
from graph_tools.graph.op_defs import op_def, output_lengths, output_types, tf_type

CALLS = {"PartitionedCall", "StatefulPartitionedCall"}


def inline_calls(graph: Graph, keep: frozenset[str] = frozenset()) -> int:
    """Inline every call, including calls in bodies, and return their number.

    Calls named in `keep` are replaced by an IdentityN of the same name, so that their outputs keep theirs.

    The stateful nodes of a body keep their order: nodes that ran after the call run after the control outputs of its
    function. Bodies of If, While and Case stay functions.

    Raises
    ------
    UnreadableError
        A function is missing, calls itself, or has a node with an op that is not described.
    """
    count = 0
    waiting: list[tuple[str, tuple[str, ...]]] = [(node.name, ()) for node in graph if _function(graph, node)]
    while waiting:
        name, chain = waiting.pop()
        node = graph[name]
        function = _function(graph, node)
        assert function is not None
        if function in chain:
            raise UnreadableError(f"function '{function}': calls itself through {' → '.join(chain)}, expected no cycle")
        for inner in _inline(graph, node, function, name in keep):
            if _function(graph, graph[inner]):
                waiting.append((inner, (*chain, function)))
        count += 1
    return count


def _function(graph: Graph, node: Node) -> str | None:
    if node.op in CALLS:
        return str(node.attrs["f"].func.name)
    return node.op if node.op in graph.library else None


def _inline(graph: Graph, call: Node, function_name: str, keep: bool) -> list[str]:
    function = graph.library.get(function_name)
    if function is None:
        raise UnreadableError(f"node '{call.name}': calls '{function_name}', expected a function of the library")
    if len(function.signature.input_arg) != len(call.inputs):
        raise UnreadableError(
            f"node '{call.name}': {len(call.inputs)} inputs, expected {len(function.signature.input_arg)} for the "
            f"function '{function_name}'"
        )
    parameters: list[str] = [argument.name for argument in function.signature.input_arg]
    arguments = dict(zip(parameters, call.inputs, strict=True))
    names = {inner.name: graph.fresh_name(f"{call.name}/{inner.name}") for inner in function.node_def}
    outputs = {inner.name: _first_ports(graph, inner, function_name) for inner in function.node_def}

    def resolve(text: str) -> Output:
        """Return the output that `argument`, `node:output:index` or `node:output` refers to."""
        parts = text.split(":")
        if parts[0] in arguments and len(parts) == 1:
            return arguments[parts[0]]
        if parts[0] not in names or len(parts) < 2 or parts[1] not in outputs[parts[0]]:
            raise UnreadableError(f"function '{function_name}': '{text}' found, expected an argument or an output")
        index = int(parts[2]) if len(parts) > 2 else 0
        return Output(names[parts[0]], outputs[parts[0]][parts[1]] + index)

    for inner in function.node_def:
        inputs = [resolve(text) for text in inner.input if not text.startswith("^")]
        controls = [names[text[1:]] for text in inner.input if text.startswith("^") and text[1:] in names]
        # Control inputs that name arguments are dropped, since arguments are computed already. The call's own control
        # inputs are added to nodes without inputs and to stateful nodes.
        if (not inputs and not controls) or _stateful(graph, inner.op):
            controls += call.controls
        attrs = {key: _with_attribute_of_call(value, call) for key, value in serving_attributes(inner.attr).items()}
        graph._insert(Node(names[inner.name], inner.op, inputs, list(dict.fromkeys(controls)), attrs))
    sources = [resolve(function.ret[argument.name]) for argument in function.signature.output_arg]
    after = [names[node] for node in function.control_ret.values() if node in names]
    if keep and sources:
        types = output_types(function.signature, call.attrs)
        call.op, call.attrs, call.device = "IdentityN", {"T": attr_value([tf_type(dtype_) for dtype_ in types])}, ""
        graph.set_inputs(call, sources, after)
        return list(names.values())
    for port, source in enumerate(sources):
        graph.replace(call.output(port), source)
    graph.replace_control(call.name, after or call.controls)
    graph.remove(call.name, f"call of '{function_name}', whose body is in its place")
    return list(names.values())


def _stateful(graph: Graph, op: str) -> bool:
    described = op_def(op, graph.op_defs)
    return described is None or described.is_stateful


def _with_attribute_of_call(value: Any, call: Node) -> Any:
    """Replace a function's attribute placeholder by the attribute of the call."""
    if value.WhichOneof("value") == "placeholder":
        return call.attrs.get(value.placeholder, value)
    return value


def _first_ports(graph: Graph, node: Any, function: str) -> dict[str, int]:
    """Return the first port of each named output of a node in a function."""
    if node.op in graph.library:
        signature = graph.library[node.op].signature
        return {argument.name: port for port, argument in enumerate(signature.output_arg)}
    described = op_def(node.op, graph.op_defs)
    if described is None:
        raise UnreadableError(
            f"function '{function}': node '{node.name}' is of the op '{node.op}', expected an op of TensorFlow or one "
            f"that the model's stripped_op_list describes"
        )
    ports, port = {}, 0
    for name, length in output_lengths(described, node.attr):
        ports[name] = port
        port += length
    return ports
