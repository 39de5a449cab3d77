# SPDX-License-Identifier: Apache-2.0
"""Copy the parts of parameter servers' graphs that a Monolith entry calls into the entry's own graph."""

from __future__ import annotations

import re
from pathlib import Path

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.graph import Graph, Node, Output, attribute, constant
from graph_tools.model import Model
from graph_tools.readers.families.build import Build
from graph_tools.readers.families.lookups import replace_output, served_nodes
from graph_tools.readers.families.monolith_tables import CREATE, ONE, READ, Export, Tables
from graph_tools.readers.saved_model import read_saved_model

REMOTE = "TfServingRemotePredict"

_NUMBER = re.compile(r"ps_(\d+)$")
_NATIVE_TABLES = {"HashTableV2", "MutableHashTableV2", "MutableHashTableOfTensorsV2"}


def inline_servers(model: Model, tables: Tables) -> None:
    """Replace every remote call by the part of the server's graph that computes its result.

    Raises
    ------
    UnreadableError
        A server's SavedModel is missing, or has no such signature, input or output.
    ConversionError
        The names of inputs or outputs are not constant, or the server's part contains nodes that cannot be moved.
    """
    exports: dict[int, Export] = {}
    for node in served_nodes(model, {REMOTE}):
        number = _server(node)
        if number not in exports:
            exports[number] = Export(read_saved_model(_path(model, tables, number, node)), number)
        _inline(model, tables, node, exports[number])


def _server(node: Node) -> int:
    for name in ("old_model_name", "model_name"):
        match = _NUMBER.search(attribute(node, name, b"").decode())
        if match:
            return int(match[1])
    return int(attribute(node, "task", 0))


def _path(model: Model, tables: Tables, number: int, node: Node) -> Path:
    if number not in tables.servers:
        have = ", ".join(f"ps_{server}" for server in sorted(tables.servers)) or "no parameter server"
        raise UnreadableError(
            f"{model.path}: {have} beside it, expected ps_{number} that node '{node.name}' calls; give the folder that "
            f"contains entry and the servers"
        )
    return tables.servers[number]


def _inline(model: Model, tables: Tables, node: Node, export: Export) -> None:
    source = export.model
    name = attribute(node, "signature_name", b"serving_default").decode()
    if name not in source.signatures:
        have = ", ".join(sorted(source.signatures))
        raise UnreadableError(f"{source.path}: signatures {have}, expected '{name}' that node '{node.name}' requests")
    signature = source.signatures[name]
    fed = {}
    for alias, given in zip(_aliases(model.graph, node, 0), node.inputs[1:-1], strict=True):
        if alias not in signature.inputs:
            raise UnreadableError(f"{source.path}: signature '{name}' has no input '{alias}', expected it")
        fed[signature.inputs[alias].tensor.node] = given
    answers = []
    for alias in _aliases(model.graph, node, len(node.inputs) - 1):
        if alias not in signature.outputs:
            raise UnreadableError(f"{source.path}: signature '{name}' has no output '{alias}', expected it")
        answers.append(signature.outputs[alias].tensor)
    copied = _copy(model, tables, export, [answer.node for answer in answers], fed, node.name)
    for index, answer in enumerate(answers):
        found = fed.get(answer.node) or Output(copied[answer.node], answer.port)
        replace_output(model, node.output(2 + index), found)
    build = Build(model.graph, node.name)
    replace_output(model, node.output(0), build.const(0))
    replace_output(model, node.output(1), build.const(b"", object))
    model.graph.replace_control(node.name, [copied[answer.node] for answer in answers if answer.node in copied])


def _aliases(graph: Graph, node: Node, index: int) -> list[str]:
    value = constant(graph, node.inputs[index])
    if value is None:
        raise ConversionError(f"node '{node.name}' ({node.op}): names that are computed, expected constant ones")
    return [text.decode() for text in value.reshape(-1).tolist()]


def _copy(
    model: Model, tables: Tables, export: Export, ends: list[str], fed: dict[str, Output], scope: str
) -> dict[str, str]:
    """Copy the nodes that some nodes need, up to the fed ones, and return the new names."""
    source, graph = export.model.graph, model.graph
    wanted = _until(source, ends, set(fed))
    names: dict[str, str] = {}
    for node in source.ordered():
        if node.name not in wanted:
            continue
        if node.op in _NATIVE_TABLES or (node.op == "Placeholder" and node.name not in fed):
            raise ConversionError(
                f"{export.model.path}: node '{node.name}' ({node.op}) answers '{scope}', expected only what a request "
                f"gives and Monolith's tables"
            )
        inputs = [
            fed[tensor.node] if tensor.node in fed else Output(names[tensor.node], tensor.port)
            for tensor in node.inputs
        ]
        controls = [names[control] for control in node.controls if control in names]
        made = graph.add(node.op, inputs, name=f"{scope}/{node.name}", controls=controls, attrs=node.attrs)
        names[node.name] = made.name
        if node.op in {ONE, READ, CREATE}:
            tables.exports[made.name] = export
        if node.name in export.model.variables:
            model.variables[made.name] = export.model.variables[node.name]
    for name, definition in source.op_defs.items():
        graph.op_defs.setdefault(name, definition)
    for name, function in source.library.items():
        if graph.library.setdefault(name, function) != function:
            raise ConversionError(f"function '{name}': a second one in {export.model.path}, expected different names")
    return names


def _until(graph: Graph, ends: list[str], fed: set[str]) -> set[str]:
    """Return the nodes that some nodes need, without the fed ones and nodes that only those need."""
    seen: set[str] = set()
    waiting = [name for name in ends if name not in fed]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            node = graph[name]
            waiting.extend(source.node for source in node.inputs if source.node not in fed)
            waiting.extend(control for control in node.controls if control not in fed)
    return seen
