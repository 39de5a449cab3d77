# SPDX-License-Identifier: Apache-2.0
"""Ops that neither TensorFlow nor a reader of this package knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graph_tools.errors import ConversionError
from graph_tools.graph import Output, is_native
from graph_tools.model import Model
from graph_tools.op_library import require_for
from graph_tools.tables.lookup import OP


def check_unknown_ops(model: Model) -> None:
    """Check that all that an output needs can be kept or converted; to be called once the graph is pruned.

    Raises
    ------
    ConversionError
        Names every such op, a node of each, and an output that needs it.
    UnreadableError
        Ops of libprocessor need the library, and it is not there or older.
    """
    require_for(model.graph, model.path)
    unknown: dict[str, tuple[str, str]] = {}
    for signature, key, output in _outputs(model):
        for name in sorted(model.graph.ancestors([output.node])):
            for op, place in _ops(model, name):
                if op != OP and not is_native(op):
                    unknown.setdefault(op, (place, f"output '{key}' of signature '{signature}'"))
    if not unknown:
        return
    from graph_tools.readers.families import FAMILIES

    listed = "; ".join(f"{op} ({place}, needed by {output})" for op, (place, output) in sorted(unknown.items()))
    systems = ", ".join(family.name for family in FAMILIES)
    raise ConversionError(
        f"{model.path}: {len(unknown)} unknown op{'s' if len(unknown) > 1 else ''}: {listed}, expected ops of "
        f"TensorFlow or sparse lookups of: {systems}"
    )


def _outputs(model: Model) -> Iterator[tuple[str, str, Output]]:
    for name, signature in model.signatures.items():
        for key, endpoint in signature.outputs.items():
            yield name, key, endpoint.tensor


def _ops(model: Model, name: str) -> Iterator[tuple[str, str]]:
    """Yield the op of a node and those of the functions that it calls, with their places."""
    node = model.graph[name]
    library = model.graph.library
    waiting = [one for one in _called(node.attrs, node.op) if one in library]
    if node.op not in library:
        yield node.op, f"node '{name}'"
    seen: set[str] = set()
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        for inner in library[function].node_def:
            waiting.extend(one for one in _called(inner.attr, inner.op) if one in library)
            if inner.op not in library:
                yield inner.op, f"node '{inner.name}' of the function '{function}' in '{name}'"


def _called(attrs: Any, op: str) -> list[str]:
    called = [op]
    for value in attrs.values():
        if value.HasField("func"):
            called.append(value.func.name)
        elif value.HasField("list"):
            called.extend(one.name for one in value.list.func)
    return called
