# SPDX-License-Identifier: Apache-2.0
"""Look up, pool and concatenate all features in one node."""

from __future__ import annotations

import numpy as np

from graph_tools.fused.lookups.emit import TableMaker, emit
from graph_tools.fused.lookups.finder import PieceFinder
from graph_tools.fused.lookups.groups import find_groups, partial_joins
from graph_tools.graph import Node, Output
from graph_tools.model import Model
from graph_tools.passes._match import replace_output
from graph_tools.passes.base import Pass, PassResult
from graph_tools.passes.prune_unreachable import PruneUnreachable

_WHY = "a RecEmbeddingGroup looks up, pools and concatenates"


class FuseEmbeddingGroups(Pass):
    """Replace the lookups of a model, and what is done with their rows before a layer takes them, by one node.

    Before: `C1 → StringToHashBucketFast → ResourceGather(variable) → SelectV2(C1 ≠ '', …, 0)`, once for each of many
    features, `→ ConcatV2 with I1, I2, …`; and the wide part: lookups of rows of one element and MatMuls of numbers,
    `→ AddN → BiasAdd`.
    After: `RecEmbeddingGroup(C1, …, I1, …, tables)`, with an output for the concatenation and one for the sum.

    Variables and hash tables behind the lookups become tables in files of their own, which keep what an absent key is
    given. Lookups whose batch may differ, or that different signatures need, are in nodes of their own; so are those
    that need the result of another lookup. Rows are read bit by bit; sums may be in another order than before.
    """

    name = "fuse_embedding_groups"

    def apply(self, model: Model) -> PassResult:
        result = PassResult(self.name, nodes_before=len(model.graph))
        finder = PieceFinder(model)
        joins = partial_joins(finder)
        if joins:
            for node, runs in joins:
                _join_runs(model, node, runs)
            finder = PieceFinder(model)
        tables = TableMaker(model, finder.lookups.numbers.vocabularies)
        groups = find_groups(finder)
        made = [(group, emit(model, group, tables, "embedding_group")) for group in groups]
        for group, outputs in made:
            for old, new in outputs.items():
                replace_output(model, old, new, np.float32, _WHY)
            result.applied += len(group.roots)
        result.refused = [(name, why) for name, why in finder.refused.items() if name in model.graph]
        # Hash tables and variables that only lookups read go, with what fills them.
        PruneUnreachable().apply(model)
        result.nodes_after = len(model.graph)
        return result


def _join_runs(model: Model, node: Node, runs: list[list[int]]) -> None:
    """Let a ConcatV2 or AddN take some of its inputs joined already."""
    graph = model.graph
    parts = node.inputs[:-1] if node.op == "ConcatV2" else list(node.inputs)
    axis = node.inputs[-1:] if node.op == "ConcatV2" else []
    joined: dict[int, Output] = {}
    for run in runs:
        attrs = dict(node.attrs) | {"N": len(run)}
        one = graph.add(node.op, [*(parts[i] for i in run), *axis], name=f"{node.name}/lookups", attrs=attrs)
        joined |= {run[0]: one.output()} | dict.fromkeys(run[1:])  # type: ignore[arg-type]
    left = [joined.get(i, one) for i, one in enumerate(parts)]
    inputs = [one for one in left if one is not None]
    graph.set_inputs(node, [*inputs, *axis])
    graph.set_attr(node, "N", len(inputs))

