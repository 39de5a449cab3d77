# SPDX-License-Identifier: Apache-2.0
"""Look up, pool and concatenate all features in one node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from graph_tools.analysis.batches import joined_parts
from graph_tools.graph import Node, Output
from graph_tools.model import Model
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.recognition.lookups.emit import TableMaker, emit
from graph_tools.recognition.lookups.groups import Group, find_groups, partial_joins
from graph_tools.recognition.lookups.piece_finder import PieceFinder
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.rewriting.replace import replace_output

_WHY = "a RecEmbeddingGroup looks up, pools and concatenates"


class FuseEmbeddingGroups(Pass):
    """Replace the lookups of a model, with the nodes that pool and join their rows before a layer, by one node.

    Before: `C1 → StringToHashBucketFast → ResourceGather(variable) → SelectV2(C1 ≠ '', …, 0)`, once for each of many
    features, `→ ConcatV2 with I1, I2, …`; and the wide part: lookups of rows of one element and MatMuls of numbers,
    `→ AddN → BiasAdd`.
    After: `RecEmbeddingGroup(C1, …, I1, …, tables)`, with an output for the concatenation and one for the sum.

    The variables and hash tables of the lookups become tables in files of their own, which keep the rows of absent
    keys. Lookups get a separate node if their batch may differ, if different signatures need them, or if they need the
    result of another lookup. Rows are read bit by bit; sums may be in another order than before.
    """

    name = "fuse_embedding_groups"

    def process(self, model: Model, result: PassResult) -> None:
        finder = _find_pieces(model)
        tables = TableMaker(model, finder.lookups.vocabularies)
        groups = [group for group in find_groups(finder) if self._remove_left_alone(group, finder)]
        result.at = [root.output.node for group in groups for root in group.roots]
        made = [(group, emit(model, group, tables, "embedding_group")) for group in groups]
        for group, outputs in made:
            for old, new in outputs.items():
                replace_output(model, old, new, np.float32, _WHY)
            result.applied += len(group.roots)
        result.refused = [(name, why) for name, why in finder.refused.items() if name in model.graph]
        # Remove hash tables and variables that only lookups read, with the nodes that fill them.
        PruneUnreachable().apply(model)

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the results of lookups that a group could compute."""
        roots = [root.output.node for group in find_groups(PieceFinder(model)) for root in group.roots]
        return (name for name in roots if name not in self.left_alone)

    def _remove_left_alone(self, group: Group, finder: PieceFinder) -> bool:
        """Remove the roots that are to be left alone from a group, and return whether others remain."""
        left = {root.output.node for root in group.roots} & set(self.left_alone)
        finder.refused |= {name: self.left_alone[name] for name in left}
        group.roots = [root for root in group.roots if root.output.node not in left]
        return bool(group.roots)


def _find_pieces(model: Model) -> PieceFinder:
    """Find the tensors that groups may produce; lookups that a node joins with other tensors are joined before it."""
    finder = PieceFinder(model)
    joined = [_join_runs(model, node, runs) for node, runs in partial_joins(finder)]
    if not joined:
        return finder
    finder = PieceFinder(model)
    useless = [join for join in joined if any(Output(name) not in finder.pieces for name in join.added)]
    for join in useless:
        model.graph.set_inputs(join.node, join.inputs)
        model.graph.set_attr(join.node, "N", len(joined_parts(join.node)))
        for name in join.added:
            model.graph.remove(name, "lookups that cannot be joined")
    return PieceFinder(model) if useless else finder


@dataclass
class _Joined:
    """A node some of whose inputs were joined before it, its original inputs, and the names of the added nodes."""

    node: Node
    inputs: list[Output]
    added: list[str]


def _join_runs(model: Model, node: Node, runs: list[list[int]]) -> _Joined:
    """Join some inputs of a ConcatV2 or AddN by nodes before it."""
    graph, parts, before = model.graph, joined_parts(node), list(node.inputs)
    axis = before[len(parts) :]
    left: list[Output | None] = list(parts)
    added = []
    for run in runs:
        attrs = dict(node.attrs) | {"N": len(run)}
        join = graph.add(node.op, [*(parts[i] for i in run), *axis], name=f"{node.name}/lookups", attrs=attrs)
        added.append(join.name)
        for i in run:
            left[i] = None
        left[run[0]] = join.output()
    inputs = [part for part in left if part is not None]
    graph.set_inputs(node, [*inputs, *axis])
    graph.set_attr(node, "N", len(inputs))
    return _Joined(node, before, added)
