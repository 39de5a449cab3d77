# SPDX-License-Identifier: Apache-2.0
"""Keep large weights outside the graph."""

from __future__ import annotations

import math
from collections.abc import Iterable

from graph_tools.graph import Node, attribute, const_array
from graph_tools.model import Model
from graph_tools.rewriting.add_weights import add_variable
from graph_tools.rewriting.outcome import Found, Outcome, Refused
from graph_tools.rewriting.protocol import SitePass


class MoveConstants(SitePass[None]):
    """Turn large constants into variables, since a protocol buffer cannot exceed 2 GiB.

    Before: `Const w (40 MB, in the graph) → MatMul`.
    After: `VarHandleOp w/value → ReadVariableOp w → MatMul`, with its elements in the checkpoint.

    Parameters
    ----------
    limit : int [bytes]
        Constants above this size become variables.
    total : int [bytes]
        If all constants together exceed this size, those above a sixteenth of `limit` become variables as well.
    """

    name = "move_constants"

    def __init__(self, limit: int = 1 << 20, total: int = 1 << 30) -> None:
        self.limit, self.total = limit, total

    def candidates(self, model: Model) -> Iterable[str]:
        sizes = {node.name: _bytes(node) for node in model.graph.of("Const")}
        limit = self.limit if sum(sizes.values()) <= self.total else self.limit // 16
        # The name of an asset is found by its constant.
        return [name for name, size in sizes.items() if size > limit and name not in model.assets]

    def match(self, model: Model, site: str) -> Outcome[None]:
        node = model.graph[site]
        if node.controls:
            return Refused("it waits for other nodes, expected none")
        if site in model.graph.ancestors(model.init):
            return Refused("an initializer uses it, which may run before variables are restored")
        return Found(None)

    def rewrite(self, model: Model, site: str, found: None) -> None:
        node = model.graph[site]
        dtype = attribute(node, "dtype")
        handle = add_variable(model, f"{site}/value", const_array(node))
        model.graph.become(node, "ReadVariableOp", [handle.output()], {"dtype": dtype})


def _bytes(node: Node) -> int:
    """Return the size of a constant's elements [bytes]; for strings, the size in which they are written."""
    tensor = node.attrs["value"].tensor
    dtype = attribute(node, "dtype")
    if dtype.name == "string":
        return int(tensor.ByteSize())
    return math.prod(int(axis.size) for axis in tensor.tensor_shape.dim) * int(dtype.size)
