# SPDX-License-Identifier: Apache-2.0
"""Pass rows to interactions in the shape in which lookups return them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, attribute, skip
from graph_tools.model import Model
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.rewriting.sweep import sweep

#: Ops that also accept [rows, fields, dim] as rows of fields * dim elements, if their attribute gives dim.
_FIELDS = ("RecFmInteraction", "RecDotInteraction", "RecProduct")
_OPS = (*_FIELDS, "RecTargetAttention")
_WHY = "an op takes the rows in another shape"


class DropFieldReshapes(Pass):
    """Remove reshapes before ops that accept rows of any shape.

    Before: `RecEmbeddingGroup → Reshape [rows, fields, dim] → RecFmInteraction`.
    After: `RecEmbeddingGroup → RecFmInteraction` with the attribute `dim`.

    It runs after `fuse_embedding_groups`, which produces columns.
    """

    name = "drop_field_reshapes"

    def process(self, model: Model, result: PassResult) -> None:
        graph, flat = model.graph, Flat(model)
        for node in graph.of(*_OPS):
            x, source = skip(graph, node.inputs[0]), _before_reshapes(flat, node)
            if source is None:
                continue
            if node.op in _FIELDS and not attribute(node, "dim", 0):
                graph.set_attr(node, "dim", flat.known(x)[2])
            graph.set_input(node, 0, source)
            sweep(model, [x.node], _WHY, give_way=True)
            result.applied += 1

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the interactions before which a reshape is left."""
        flat = Flat(model)
        return (node.name for node in model.graph.of(*_OPS) if _before_reshapes(flat, node) is not None)


def _before_reshapes(flat: Flat, node: Node) -> Output | None:
    """Return the output whose rows a node could read instead of its first input, or None if there is none."""
    x = skip(flat.graph, node.inputs[0])
    sizes = flat.known(x)
    views = [view for view in flat.views(x) if view != x and _keeps_rows(flat, view, sizes)]
    return views[-1] if views else None


def _keeps_rows(flat: Flat, output: Output, sizes: list[int | None]) -> bool:
    """Return whether the rows of an output have as many elements as rows of the given sizes."""
    before = flat.known(output)
    if len(before) < 2 or None in before[1:] or None in sizes[1:]:
        return False
    return math.prod(size or 0 for size in before[1:]) == math.prod(size or 0 for size in sizes[1:])
