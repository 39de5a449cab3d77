# SPDX-License-Identifier: Apache-2.0
"""Compute parts of a graph that do not depend on a request: default rows, initial values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graph_tools.graph import Node, Output, dtype_of, is_native
from graph_tools.graph.extract import extract
from graph_tools.graph.op_defs import op_def
from graph_tools.model import Model
from graph_tools.tensors import Array

_SHAPES = {"Shape", "Size"}
_VALUES = {"Placeholder", "PlaceholderWithDefault", "VarHandleOp", "VariableV2", "Variable", "ReadVariableOp"}


class NotConstantError(Exception):
    """A value depends on a request, on random numbers or on data that the export lacks; the message has the reason."""

    def __init__(self, reason: str, random: bool = False) -> None:
        super().__init__(reason)
        self.random = random


def is_random(op: str) -> bool:
    """Return whether an op draws random numbers, with or without a fixed seed."""
    return "Random" in op or "TruncatedNormal" in op or "Multinomial" in op


def computed_value(model: Model, output: Output) -> Array:
    """Return the constant value of an output, which TensorFlow computes from constants and saved variables.

    Raises
    ------
    NotConstantError
    """
    return _run(model, output, {name: _saved(model, model.graph[name]) for name in _leaves(model, output, set())})


def same_row(model: Model, output: Output, dim: int) -> Array | None:
    """Return the row [dim] that an output has for every key, if it depends at most on the number of keys.

    Returns
    -------
    ndarray [dim], or None if the rows depend on the keys.

    Raises
    ------
    NotConstantError
        The rows are drawn at random.

    Notes
    -----
    Computed for one and for three keys: all four rows must be equal.
    """
    shapes = {name for name in model.graph.ancestors([output.node]) if model.graph[name].op in _SHAPES}
    found = []
    try:
        leaves = _leaves(model, output, shapes)
        for count in (1, 3):
            fed = {name: _saved(model, model.graph[name]) for name in leaves}
            for name in shapes:
                size: Any = [count] if model.graph[name].op == "Shape" else count
                fed[name] = np.array(size, _dtype(model, Output(name)).as_numpy_dtype)
            found.append(_run(model, output, fed))
    except NotConstantError as error:
        if error.random:
            raise
        return None
    rows = np.concatenate(
        [np.resize(array, dim).reshape(1, dim) if array.size == 1 else _rows(array, dim) for array in found]
    )
    return rows[0] if len(rows) and (rows == rows[0]).all() else None


def _rows(value: Array, dim: int) -> Array:
    return value.reshape(-1, dim) if value.size % dim == 0 else np.full((1, dim), np.nan, value.dtype)


def _leaves(model: Model, output: Output, cut: set[str]) -> list[str]:
    """Return the nodes whose values must be given; the search ends at nodes of `cut`."""
    leaves = []
    for node in _needed_nodes(model, output, cut):
        if is_random(node.op):
            raise NotConstantError(f"node '{node.name}' draws it at random ({node.op})", random=True)
        if node.op in _VALUES:
            leaves.append(node.name)
        elif not is_native(node.op):
            raise NotConstantError(f"node '{node.name}' is of the op '{node.op}'")
        elif op_def(node.op).is_stateful:  # type: ignore[union-attr]
            raise NotConstantError(f"node '{node.name}' gives what it holds ({node.op})")
    return leaves


def _needed_nodes(model: Model, output: Output, cut: set[str]) -> Iterator[Node]:
    seen: set[str] = set()
    waiting = [output.node]
    while waiting:
        name = waiting.pop()
        if name in seen or name in cut:
            continue
        seen.add(name)
        node = model.graph[name]
        yield node
        if node.op not in _VALUES:
            waiting.extend(source.node for source in node.inputs)


def _saved(model: Model, node: Node) -> Array:
    """Return the value of a variable in the checkpoint."""
    handle = node
    while handle.op in {"ReadVariableOp", "Identity"}:
        handle = model.graph.input(handle, 0)
    if handle.name not in model.variables:
        fed = node.op.startswith("Placeholder")
        raise NotConstantError(f"node '{node.name}' " + ("is fed by the request" if fed else "has no saved value"))
    return model.variables[handle.name].read()


def _dtype(model: Model, output: Output) -> Any:
    found = dtype_of(model.graph, output)
    assert found is not None
    return found.base_dtype


def _run(model: Model, output: Output, fed: dict[str, Array]) -> Array:
    import tensorflow as tf

    v1 = tf.compat.v1
    if output.node in fed:
        return fed[output.node]
    # Control inputs do not change the result of a stateless op.
    types = {name: _dtype(model, Output(name)) for name in fed}
    graph_def = extract(model.graph, [output.node], types, controls=False)
    with v1.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
        with v1.Session(graph=graph) as session:
            value: Array = session.run(str(output), {f"{name}:0": value for name, value in fed.items()})
    return value
