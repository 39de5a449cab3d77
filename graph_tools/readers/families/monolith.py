# SPDX-License-Identifier: Apache-2.0
"""Read Monolith: hash tables that a SavedModel restores from its assets, on one host or on parameter servers."""

from __future__ import annotations

from pathlib import Path

from graph_tools.errors import ConversionError
from graph_tools.graph import Node, attribute
from graph_tools.model import Model
from graph_tools.readers.families import monolith_lookups as native
from graph_tools.readers.families import monolith_shards as shards
from graph_tools.readers.families.lookups import served_nodes
from graph_tools.readers.families.monolith_servers import REMOTE, inline_servers
from graph_tools.readers.families.monolith_tables import Tables
from graph_tools.readers.monolith_layout import find_servers

FUSED, MULTI_FUSED = "MonolithHashTableFusedLookup", "MonolithMultiHashTableFusedLookup"
_WRITES = ("Assign", "AssignAdd", "Optimize", "FusedOptimize", "ApplyGradients", "Evict", "Clear")


class Monolith:
    """Reads MonolithHashTable and MonolithMultiHashTable.

    Before: `ids → MonolithHashTableLookup → rows`, or the same through `TfServingRemotePredict` at each server.

    After: `ids → SparseLookup → rows`.

    The rows of absent ids are zeros. Signatures that write tables (`hashtable_assign`) are left out, since the
    converted tables cannot be written.
    """

    name = "Monolith"

    def matches(self, model: Model) -> bool:
        return any(node.op == REMOTE or "Monolith" in node.op for node in model.graph)

    def normalize(self, model: Model, tables: Path | None, absent: dict[str, str]) -> None:
        _drop_writing_signatures(model)
        opened = Tables(model, tables, find_servers(model.path))
        inline_servers(model, opened)
        shards.strip_timestamps(model)
        for node in served_nodes(model, {shards.FINALIZE}):
            shards.collapse_buffer(model, opened, node)
        for node in served_nodes(model, {shards.MAP}):
            if not shards.collapse_map(model, opened, node):
                native.convert_map(model, node)
        for node in served_nodes(model, {shards.SPLIT}):
            native.convert_split(model, node)
        for node in served_nodes(model, {shards.LOOKUP, shards.MULTI_LOOKUP, FUSED, MULTI_FUSED}):
            _convert(model, opened, node)
        _forget_dumps(model)


def _convert(model: Model, tables: Tables, node: Node) -> None:
    if node.op == shards.LOOKUP:
        native.convert_lookup(model, tables, node)
    elif node.op == shards.MULTI_LOOKUP:
        native.convert_multi_lookup(model, tables, node)
    else:
        native.convert_fused_lookup(model, tables, node, int(attribute(node, "N")) if node.op == FUSED else 1)


def _drop_writing_signatures(model: Model) -> None:
    graph = model.graph
    writing = []
    for name, signature in list(model.signatures.items()):
        needed = graph.ancestors(output.tensor.node for output in signature.outputs.values())
        if any(_writes(graph[node].op) for node in needed):
            del model.signatures[name]
            writing.append(name)
    model.removed_signatures |= dict.fromkeys(writing, "it writes tables")
    if not model.signatures:
        raise ConversionError(
            f"{model.path}: signatures {', '.join(writing)} write tables, expected one that only reads"
        )


def _writes(op: str) -> bool:
    return op.startswith(("MonolithHashTable", "MonolithMultiHashTable")) and op.endswith(_WRITES)


def _forget_dumps(model: Model) -> None:
    """Remove the assets from which tables were restored."""
    needed = model.graph.ancestors(model.outputs())
    for name, file in list(model.assets.items()):
        if name not in needed and "-of-" in file.name:
            del model.assets[name]
            model.removed_assets[file.name] = "its rows are in the tables that were made of it"
