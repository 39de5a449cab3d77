# SPDX-License-Identifier: Apache-2.0
"""Read a frozen GraphDef, whose weights are constants and which has no signature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graph_tools.errors import UnreadableError, UsageError
from graph_tools.graph import Graph, Output, attribute, inline_calls, op_def, output_types
from graph_tools.graph.op_defs import tf_type
from graph_tools.graph.op_library import load_for
from graph_tools.model import Endpoint, Model, Signature
from graph_tools.readers.large_constants import split_graph_def
from graph_tools.tensors import TensorSource

SIGNATURE = "serving_default"


def is_graph_def(path: Path) -> bool:
    """Return whether a file has a suffix of GraphDefs."""
    return path.is_file() and path.suffix in {".pb", ".pbtxt"}


def read_graph_def(path: Path, outputs: tuple[str, ...] = ()) -> Model:
    """Read a frozen graph; its placeholders become the inputs of the signature `serving_default`.

    Parameters
    ----------
    path : Path
        `.pb` or `.pbtxt`.
    outputs : tuple of str
        Tensor names to keep; if empty: all outputs that no node uses and that are not constants.

    Raises
    ------
    UnreadableError, UsageError
    """
    graph_def, large = _parse(path)
    graph = Graph.from_graph_def(graph_def, str(path))
    load_for(graph)
    chosen = [Output.parse(name) for name in outputs] or loose_ends(graph)
    for output in chosen:
        if output.node not in graph:
            raise UsageError(f"{path}: output '{output}' is not in the graph, expected the name of a tensor of it")
    if not chosen:
        raise UsageError(f"{path}: no output found, expected --outputs to name one")
    inline_calls(graph, frozenset(output.node for output in chosen))
    inputs = {
        node.name: Endpoint(node.output(), attribute(node, "dtype"), attribute(node, "shape"))
        for node in graph.of("Placeholder", "PlaceholderWithDefault")
    }
    named = {_key(output): Endpoint(output, _dtype(graph, output, path), None) for output in chosen}
    signature = Signature(inputs, named)
    return Model(path=path, kind="GraphDef", graph=graph, signatures={SIGNATURE: signature}, variables=large)


def _key(output: Output) -> str:
    return output.node if output.port == 0 else str(output)


def parse_graph_def(path: Path) -> Any:
    """Parse a GraphDef message, including its large constants."""
    return _parse(path, whole=True)[0]


def _parse(path: Path, whole: bool = False) -> tuple[Any, dict[str, TensorSource]]:
    """Parse a GraphDef message; unless `whole` is set, variables replace large constants."""
    from google.protobuf import message, text_format
    from tensorflow.core.framework import graph_pb2

    graph_def = graph_pb2.GraphDef()
    large: dict[str, TensorSource] = {}
    try:
        if path.suffix == ".pbtxt":
            text_format.Parse(path.read_text(encoding="utf-8"), graph_def)
        else:
            content, large = (path.read_bytes(), {}) if whole else split_graph_def(path)
            graph_def.ParseFromString(content)
    except (message.DecodeError, text_format.ParseError, ValueError) as error:
        raise UnreadableError(f"{path}: {error}, expected a GraphDef message") from error
    if not graph_def.node:
        raise UnreadableError(f"{path}: no node, expected a GraphDef message with some")
    return graph_def, large


def loose_ends(graph: Graph) -> list[Output]:
    """Return the outputs that no node uses."""
    ends: list[Output] = []
    for node in graph:
        if graph.users(node.name) or node.op in {"Const", "NoOp", "Assert", "Placeholder", "ReadVariableOp"}:
            continue
        described = op_def(node.op, graph.op_defs)
        ports = len(output_types(described, node.attrs)) if described is not None else 1
        ends.extend(node.output(port) for port in range(ports))
    return ends


def _dtype(graph: Graph, output: Output, path: Path) -> Any:
    node = graph[output.node]
    described = op_def(node.op, graph.op_defs)
    if described is None:
        raise UnreadableError(f"{path}: output '{output}' is of the unknown op '{node.op}', expected one of TensorFlow")
    types = output_types(described, node.attrs)
    if output.port >= len(types):
        raise UsageError(f"{path}: output '{output}', expected at most port {len(types) - 1} of the node")
    return tf_type(types[output.port])
