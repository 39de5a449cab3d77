# SPDX-License-Identifier: Apache-2.0
"""Multiply the rows that lookups return by a matrix, as late as that is the same: after they were pooled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, constant, dtype_of
from graph_tools.model import Model
from graph_tools.rewriting.add_weights import add_variable
from graph_tools.rewriting.fold_into_layers import fold_into_layers
from graph_tools.tensors import Array

# Ops that add and scale vectors, given by input 0, without looking into them.
_POOLING = {
    f"SparseSegment{name}{end}" for name in ("Sum", "Mean", "SqrtN") for end in ("", "WithNumSegments")
} | {"SegmentSum", "SegmentMean", "UnsortedSegmentSum"}  # fmt: skip
_REDUCTIONS = {"Sum", "Mean"}


def multiply_rows(model: Model, rows: Output, matrix: Array) -> int:
    """Multiply vectors by a matrix wherever something other than a sum of them is computed.

    If only layers whose weights are known read the sums, their weights are multiplied instead.

    Parameters
    ----------
    rows : Output [..., dim] float32
    matrix : ndarray [dim, dim] float32

    Returns
    -------
    int
        Number of products that were added.
    """
    flat, graph = Flat(model), model.graph
    places = list(dict.fromkeys(_ends(flat, rows, len(matrix))))
    left = [place for place in places if not fold_into_layers(flat, place, matrix)]
    for place in left:
        users = graph.uses(place)
        product = _multiply(model, flat, place, matrix)
        for user, index in users:
            graph.set_input(user, index, product)
        _follow_outputs(model, place, product)
    return len(left)


def _multiply(model: Model, flat: Flat, place: Output, matrix: Array) -> Output:
    import tensorflow as tf

    graph = model.graph
    handle = add_variable(model, f"{place.node}/basis", matrix).output()
    name = handle.node
    basis = graph.add("ReadVariableOp", [handle], name=f"{name}/Read", attrs={"dtype": tf.float32}).output()
    if len(flat.known(place)) == 2:
        attrs = {"T": tf.float32, "transpose_a": False, "transpose_b": False}
        return graph.add("MatMul", [place, basis], name=f"{name}/MatMul", attrs=attrs).output()
    attrs = {"T": tf.float32, "adj_x": False, "adj_y": False}
    return graph.add("BatchMatMulV2", [place, basis], name=f"{name}/MatMul", attrs=attrs).output()


def _follow_outputs(model: Model, before: Output, after: Output) -> None:
    """Let the outputs of signatures be the product."""
    for signature in model.signatures.values():
        for key, endpoint in signature.outputs.items():
            if endpoint.tensor == before:
                signature.outputs[key] = replace(endpoint, tensor=after)


def _ends(flat: Flat, rows: Output, dim: int) -> Iterator[Output]:
    """Yield the outputs up to which vectors are only added, scaled, chosen and passed on."""
    uses = flat.graph.uses(rows)
    fetched = any(
        endpoint.tensor == rows
        for signature in flat.model.signatures.values()
        for endpoint in signature.outputs.values()
    )
    if fetched or not uses or not all(_keeps_vectors(flat, user, index, dim) for user, index in uses):
        yield rows
        return
    for user, _ in uses:
        if user.op != "ZerosLike":
            yield from _ends(flat, user.output(), dim)


def _keeps_vectors(flat: Flat, user: Node, index: int, dim: int) -> bool:
    """Return whether the vectors of a node's output are sums of multiples of those of this input."""
    graph = flat.graph
    if user.controls or dtype_of(graph, user.output()) != "float32":
        return False
    if user.op in ("SelectV2", "Select"):
        other = graph.input(user, 3 - index) if index else None
        return other is not None and _is_zero(flat, user.inputs[3 - index]) and _chooses_vectors(flat, user)
    if index:
        return False
    if user.op in _POOLING or user.op in ("Identity", "ZerosLike"):
        return True
    sizes = flat.known(user.inputs[0])
    if user.op in _REDUCTIONS:
        axes = constant(graph, user.inputs[1])
        return bool(sizes) and axes is not None and all(axis % len(sizes) != len(sizes) - 1 for axis in np.ravel(axes))
    if user.op == "GatherV2":
        axis = constant(graph, user.inputs[2])
        return axis is not None and len(sizes) > 1 and int(axis) == 0
    return user.op in ("Reshape", "ExpandDims", "Squeeze") and flat.known(user.output())[-1:] == [dim]


def _is_zero(flat: Flat, output: Output) -> bool:
    if flat.graph[output.node].op == "ZerosLike":
        return True
    value = constant(flat.graph, output)
    return value is not None and not value.any()


def _chooses_vectors(flat: Flat, user: Node) -> bool:
    """Return whether the condition of a Select is the same for all elements of a vector."""
    if user.op == "Select" and len(flat.known(user.inputs[0])) == 1:
        return True
    return flat.known(user.inputs[0])[-1:] == [1]
