# SPDX-License-Identifier: Apache-2.0
"""Find ops that neither TensorFlow nor a reader of this package knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from graph_tools.errors import ConversionError
from graph_tools.graph import Output, is_native
from graph_tools.graph.op_library import require_for
from graph_tools.graph.sparse_lookup import OP
from graph_tools.model import Model

_RESTORES = {"RestoreV2", "Restore", "RestoreSlice"}


@dataclass(frozen=True)
class UnknownOp:
    """An op that an output needs but TensorFlow does not have.

    Attributes
    ----------
    op : str
    place : str
        A node of this op, in words.
    output : str
        An output that needs it, in words.
    """

    op: str
    place: str
    output: str


def unknown_ops(model: Model) -> list[UnknownOp]:
    """Return the ops that outputs need but neither TensorFlow nor a loaded library has."""
    unknown: dict[str, UnknownOp] = {}
    for signature, key, output in _outputs(model):
        for name in sorted(model.graph.ancestors([output.node])):
            for op, place in _ops(model, name):
                if op != OP and not is_native(op):
                    unknown.setdefault(op, UnknownOp(op, place, f"output '{key}' of signature '{signature}'"))
    return [unknown[op] for op in sorted(unknown)]


def check_restored(model: Model) -> None:
    """Check that no unknown op that an output needs is filled from the checkpoint, in a model as it was read.

    The content of such an op would be lost, since its storage format is not known here.

    Raises
    ------
    ConversionError
    """
    graph = model.graph
    outputs = [output.node for _, _, output in _outputs(model)]
    for name in sorted(graph.ancestors(outputs)):
        if graph[name].op == OP or is_native(graph[name].op) or graph[name].op in graph.library:
            continue
        for user in graph.users(name):
            if any(graph[ancestor].op in _RESTORES for ancestor in graph.ancestors([user.name]) if ancestor != name):
                _refuse(model, [op for op in unknown_ops(model) if op.op == graph[name].op])


def _refuse(model: Model, unknown: list[UnknownOp]) -> None:
    from graph_tools.readers.families import FAMILIES

    listed = "; ".join(f"{op.op} ({op.place}, needed by {op.output})" for op in unknown)
    systems = ", ".join(family.name for family in FAMILIES)
    raise ConversionError(
        f"{model.path}: {len(unknown)} unknown op{'s' if len(unknown) > 1 else ''}: {listed}, expected ops of "
        f"TensorFlow or sparse lookups of: {systems}"
    )


def check_unknown_ops(model: Model) -> None:
    """Check that TensorFlow can run everything that an output needs, except lookups that are converted.

    Raises
    ------
    ConversionError
        Names every such op, a node of it, and an output that needs it.
    UnreadableError
        The graph has ops of libprocessor, but the library is missing or too old.
    """
    require_for(model.graph, model.path)
    unknown = unknown_ops(model)
    if unknown:
        _refuse(model, unknown)


def _outputs(model: Model) -> Iterator[tuple[str, str, Output]]:
    for name, signature in model.signatures.items():
        for key, endpoint in signature.outputs.items():
            yield name, key, endpoint.tensor


def _ops(model: Model, name: str) -> Iterator[tuple[str, str]]:
    """Yield the op of a node and those of the functions that it calls, with their places."""
    node = model.graph[name]
    library = model.graph.library
    waiting = [called for called in _called_functions(node.attrs, node.op) if called in library]
    if node.op not in library:
        yield node.op, f"node '{name}'"
    seen: set[str] = set()
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        for inner in library[function].node_def:
            waiting.extend(called for called in _called_functions(inner.attr, inner.op) if called in library)
            if inner.op not in library:
                yield inner.op, f"node '{inner.name}' of the function '{function}' in '{name}'"


def _called_functions(attrs: Any, op: str) -> list[str]:
    called = [op]
    for value in attrs.values():
        if value.HasField("func"):
            called.append(value.func.name)
        elif value.HasField("list"):
            called.extend(function.name for function in value.list.func)
    return called
