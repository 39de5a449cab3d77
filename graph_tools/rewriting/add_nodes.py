# SPDX-License-Identifier: Apache-2.0
"""Add constants, slices, reshapes and reads of variables to a graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from graph_tools.graph import Graph, Output, const_array
from graph_tools.tensors import Array


def shared_const(graph: Graph, value: Array, name: str) -> Output:
    """Return a constant that all sites of the passes may share; `name` describes its content."""
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
        graph, np.array(values, np.int32), "int32_" + "_".join(str(value).replace("-", "m") for value in values)
    )


def int32_scalar(graph: Graph, value: int) -> Output:
    """Return a shared int32 scalar."""
    return shared_const(graph, np.array(value, np.int32), f"int32_scalar_{value}".replace("-", "m"))


def add_first_column(graph: Graph, matrix: Output, dtype: object, name: str) -> Output:
    """Add the slice `matrix[:, 0]`."""
    bounds = [int32_const(graph, *bound) for bound in ((0, 0), (0, 1), (1, 1))]
    attrs = {"T": dtype, "Index": np.int32, "begin_mask": 1, "end_mask": 1, "shrink_axis_mask": 2}
    attrs |= {"ellipsis_mask": 0, "new_axis_mask": 0}
    return graph.add("StridedSlice", [matrix, *bounds], name=name, attrs=attrs).output()


def add_element(graph: Graph, vector: Output, index: int, dtype: object, name: str) -> Output:
    """Add the slice `vector[index]`."""
    bounds = [int32_const(graph, number) for number in (index, index + 1, 1)]
    attrs = {"T": dtype, "Index": np.int32, "begin_mask": 0, "end_mask": 0, "shrink_axis_mask": 1}
    attrs |= {"ellipsis_mask": 0, "new_axis_mask": 0}
    return graph.add("StridedSlice", [vector, *bounds], name=name, attrs=attrs).output()


def add_reshape(graph: Graph, tensor: Output, dtype: object, shape: Iterable[int], name: str) -> Output:
    """Add a reshape to a constant shape."""
    attrs = {"T": dtype, "Tshape": np.int32}
    return graph.add("Reshape", [tensor, int32_const(graph, *shape)], name=name, attrs=attrs).output()


def shared_zero(graph: Graph, dtype: Any) -> Output:
    """Return a shared zero of a dtype."""
    return shared_const(graph, np.zeros((), dtype.as_numpy_dtype), f"zero_{dtype.name}")


def add_column(graph: Graph, vector: Output, dtype: object, name: str) -> Output:
    """Add a vector [n] as a column [n, 1]."""
    inputs = [vector, int32_scalar(graph, 1)]
    return graph.add("ExpandDims", inputs, name=name, attrs={"T": dtype, "Tdim": np.int32}).output()


def add_zeroed(graph: Graph, rows: Output, empty: Output, dtype: Any, name: str) -> Output:
    """Add rows [n, dim] with zeros in those that a mask [n] marks as empty."""
    column = add_column(graph, empty, np.bool_, f"{name}/empty")
    inputs = [column, shared_zero(graph, dtype), rows]
    return graph.add("SelectV2", inputs, name=f"{name}/select", attrs={"T": dtype}).output()


def add_places(graph: Graph, mask: Output, name: str) -> Output:
    """Add the places [k, rank] at which a mask is true."""
    return graph.add("Where", [mask], name=name, attrs={"T": np.bool_}).output()


def add_picked(graph: Graph, tensor: Output, places: Output, dtype: object, name: str) -> Output:
    """Add the elements or rows of a tensor at some places."""
    attrs = {"Tparams": dtype, "Tindices": np.int64}
    return graph.add("GatherNd", [tensor, places], name=name, attrs=attrs).output()


def read_variable(graph: Graph, handle: Output, dtype: object, name: str) -> Output:
    """Return the value of a variable that nothing writes during serving, from an existing read if there is one."""
    for user in graph.users(handle.node):
        if user.op == "ReadVariableOp" and not user.controls:
            return user.output()
    return graph.add("ReadVariableOp", [handle], name=name, attrs={"dtype": dtype}).output()
