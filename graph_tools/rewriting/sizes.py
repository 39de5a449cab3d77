# SPDX-License-Identifier: Apache-2.0
"""Add nodes that compute the sizes of tensors, and remove reshapes that keep the shape."""

from __future__ import annotations

import numpy as np

from graph_tools.analysis.sizes import Size, SizeFinder, Symbol
from graph_tools.graph import Output, attribute, dtype_of
from graph_tools.model import Model
from graph_tools.rewriting.add_nodes import add_element, shared_const
from graph_tools.rewriting.replace import replace_output


def drop_same_shape_reshapes(model: Model, output: Output, why: str) -> None:
    """Remove the reshapes after an output, one after another, that keep its shape."""
    graph = model.graph
    again = True
    while again:
        again = False
        sizes = SizeFinder(model)
        for user, index in graph.uses(output):
            if user.op == "Reshape" and index == 0 and not user.controls and sizes.is_same_shape(user):
                replace_output(model, user.output(), output, attribute(user, "T"), why)
                again = user.name not in model.graph or again


def add_size(model: Model, size: Size) -> Output:
    """Return a size along an axis as an int64 scalar, from nodes that all sites share."""
    graph = model.graph
    if not isinstance(size, Symbol):
        return shared_const(graph, np.array(size, np.int64), f"int64_{size}")
    port = f"_{size.of.port}" if size.of.port else ""
    wish, shape = f"shared/size/{size.of.node}{port}/{size.at}", f"shared/shape/{size.of.node}{port}"
    if wish in graph:
        return Output(wish)
    if shape not in graph:
        attrs = {"T": dtype_of(graph, size.of), "out_type": np.int64}
        shape = graph.add("Shape", [size.of], name=shape, attrs=attrs).name
    return add_element(graph, Output(shape), size.at, np.int64, wish)
