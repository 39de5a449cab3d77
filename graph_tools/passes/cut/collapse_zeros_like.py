# SPDX-License-Identifier: Apache-2.0
"""Compare with one zero instead of a tensor of zeros."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graph_tools.analysis.sizes import SizeFinder
from graph_tools.graph import Node, attribute
from graph_tools.model import Model
from graph_tools.rewriting.add_nodes import shared_const
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.protocol import SitePass
from graph_tools.rewriting.sweep import sweep

_BROADCASTING = {
    "Add", "AddV2", "Equal", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr", "Maximum",
    "Minimum", "Mul", "NotEqual", "SelectV2", "Sub",
}  # fmt: skip


class CollapseZerosLike(SitePass[None]):
    """Replace ZerosLike and OnesLike by a scalar if another operand already has the shape.

    Before: `NotEqual(x, ZerosLike(x))`, as `tf.sparse.from_dense` finds the present values.
    After: `NotEqual(x, 0)`, or `NotEqual(x, '')`.
    """

    name = "collapse_zeros_like"

    def candidates(self, model: Model) -> Iterable[str]:
        return [node.name for node in model.graph.of("ZerosLike", "OnesLike")]

    def match(self, model: Model, site: str) -> Outcome[None]:
        node = model.graph[site]
        if site in model.outputs() or not _scalar_users(model, node):
            return NoMatch()
        if node.controls:
            return Refused(f"runs after '{node.controls[0]}', expected no control input")
        return Found(None)

    def rewrite(self, model: Model, site: str, found: None) -> None:
        graph = model.graph
        node = graph[site]
        dtype = attribute(node, "T")
        if dtype.name == "string":
            value = np.array(b"", object)
        else:
            value = np.full((), node.op == "OnesLike", dtype.as_numpy_dtype)
        scalar = shared_const(graph, value, f"{node.op.removesuffix('sLike').lower()}_{dtype.name}")
        for user, index in _scalar_users(model, node):
            graph.set_input(user, index, scalar)
        sweep(model, [site], "a scalar suffices, since the other operand has the shape", give_way=True)


def _scalar_users(model: Model, node: Node) -> list[tuple[Node, int]]:
    """Return the inputs for which a scalar would do as well."""
    sizes = SizeFinder(model)
    found = []
    for user, index in model.graph.uses(node.output()):
        # A condition also contributes its shape, so at least one other operand must have the whole shape.
        others = [source for i, source in enumerate(user.inputs) if i != index]
        if user.op in _BROADCASTING and any(
            sizes.same(operand, node.inputs[0]) or operand == node.inputs[0] for operand in others
        ):
            found.append((user, index))
    return found
