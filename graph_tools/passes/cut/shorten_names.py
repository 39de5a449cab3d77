# SPDX-License-Identifier: Apache-2.0
"""Give nodes inside the graph short names."""

from __future__ import annotations

from collections.abc import Iterator

from graph_tools.graph.op_library import is_ours
from graph_tools.model import Model
from graph_tools.rewriting.protocol import Pass, PassResult

_NOTES = ("_output_shapes", "_user_specified_name", "_has_manual_control_dependencies", "_grappler_do_not_remove")


class ShortenNames(Pass):
    """Rename nodes inside the graph after their op, and drop attributes that only a training program reads.

    Before: `input_layer/C14_embedding/C14_embedding_weights/embedding_lookup_sparse/Reshape_1 → …`.
    After: `Reshape_17 → …`.

    Inputs, outputs, variables, tables, assets, initializers and fused ops keep their names, since clients,
    checkpoints, reports and other tools use them.
    """

    name = "shorten_names"

    def process(self, model: Model, result: PassResult) -> None:
        graph = model.graph
        kept = _kept(model)
        numbers: dict[str, int] = {}
        for node in graph.ordered():
            for note in _NOTES:
                node.attrs.pop(note, None)
            if node.name in kept or _is_short(node.name, node.op):
                continue
            name = node.op
            while name in graph or name in graph.removed:
                numbers[node.op] = numbers.get(node.op, 0) + 1
                name = f"{node.op}_{numbers[node.op]}"
            if len(name) < len(node.name):
                graph.rename(node.name, name)
                result.applied += 1

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the nodes with attributes of a training program, or with a name that is longer than any new name.

        New names are numbered by op, and a number is skipped only if a node has or had that name. So no number exceeds
        that of all names.
        """
        kept, largest = _kept(model), len(model.graph) + len(model.graph.removed)
        for node in model.graph:
            longest = len(f"{node.op}_{largest}")
            if node.attrs.keys() & set(_NOTES) or (node.name not in kept and len(node.name) > longest):
                yield node.name


def _kept(model: Model) -> set[str]:
    """Return the names by which clients, checkpoints, reports and other tools find nodes."""
    kept = model.roots() | set(model.variables) | set(model.hash_tables) | set(model.sparse_tables)
    kept |= set(model.embedding_tables)
    named = (node for node in model.graph if node.op == "VarHandleOp" or "HashTable" in node.op or is_ours(node.op))
    return kept | {node.name for node in named}


def _is_short(name: str, op: str) -> bool:
    return name == op or (name.startswith(f"{op}_") and name[len(op) + 1 :].isdigit())
