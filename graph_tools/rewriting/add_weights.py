# SPDX-License-Identifier: Apache-2.0
"""Add known values to a model: as constants, or as variables if they are large."""

from __future__ import annotations

from graph_tools.graph import Node, Output
from graph_tools.graph.attributes import const_attributes
from graph_tools.live import LiveTensor, Traced
from graph_tools.model import Model
from graph_tools.tensors import Array, ArrayTensor, TensorSource

#: Up to this size, a computed weight is a constant in the graph; a larger weight is a variable outside of it.
CONST_BYTES = 1 << 10


def become_weight(model: Model, node: Node, value: Array) -> None:
    """Replace a node with one output by a known value: a constant, or a variable if it is large or may change."""
    import tensorflow as tf

    dtype = tf.as_dtype(tf.string if value.dtype == object else value.dtype)
    if not isinstance(value, Traced) and (value.nbytes <= CONST_BYTES or dtype == tf.string):
        model.graph.become(node, "Const", [], const_attributes(value), controls=[])
        return
    handle = add_variable(model, f"{node.name}/value", value)
    model.graph.become(node, "ReadVariableOp", [handle.output()], {"dtype": dtype}, controls=[])


def add_weight(model: Model, name: str, value: Array) -> Output:
    """Add a known value: as a constant, or as a variable if it is large or may change."""
    node = model.graph.add("NoOp", name=name)
    become_weight(model, node, value)
    return node.output()


def add_variable(model: Model, name: str, value: Array) -> Node:
    """Add a variable that is restored to a value."""
    handle = model.graph.add("VarHandleOp", name=name)
    attrs = {"dtype": value.dtype, "shape": value.shape, "container": "", "shared_name": handle.name}
    model.graph.become(handle, "VarHandleOp", [], attrs)
    model.variables[handle.name] = weight_tensor(value)
    return handle


def weight_tensor(value: Array) -> TensorSource:
    """Return the tensor of a variable that is restored to a value."""
    return LiveTensor.of_value(value) if isinstance(value, Traced) else ArrayTensor(value)
