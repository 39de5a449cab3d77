# SPDX-License-Identifier: Apache-2.0
"""Remove everything that no chosen signature needs."""

from __future__ import annotations

from collections.abc import Iterator

from graph_tools.analysis.unused_tensors import mark_unused_tensors
from graph_tools.graph import Graph, Output, functions_of
from graph_tools.graph.sparse_lookup import lookups, table_of
from graph_tools.model import Model
from graph_tools.readers.restore import handle_of
from graph_tools.rewriting.protocol import Pass, PassResult


class PruneUnreachable(Pass):
    """Remove nodes, functions, variables, tables and assets that no output of a signature needs.

    Before: `x → MatMul → y`, and next to it savers, initializers, losses, optimizers, summaries, other signatures.
    After: `x → MatMul → y`.

    Inputs of a kept signature stay even if nothing uses them, since clients feed them.
    """

    name = "prune_unreachable"

    def process(self, model: Model, result: PassResult) -> None:
        self._drop_init(model)
        wanted = ", ".join(f"'{name}'" for name in model.signatures)
        signatures = "signature " + wanted if len(model.signatures) == 1 else "signatures " + wanted
        why = f"no output of {signatures} needs it"
        result.applied = model.graph.prune(model.roots(), why)
        if not model.marked_tensors:  # Only at the first run: tensors that a later pass merges or folds count as used.
            mark_unused_tensors(model)
        tables = {table_of(node) for node in lookups(model.graph)}
        for name in [name for name in model.sparse_tables if name not in tables]:
            del model.sparse_tables[name]
        for held in (model.variables, model.hash_tables, model.embedding_tables):
            for name in [name for name in held if name not in model.graph]:
                del held[name]
        for name in [name for name in model.assets if name not in model.graph]:
            model.removed_assets[model.assets.pop(name).name] = why
        for name in unused_functions(model):
            del model.graph.library[name]
            model.removed_functions.setdefault(name, "its calls are inlined, or nothing calls it")

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield nodes that no output needs, functions that nothing calls, and contents that no node uses."""
        graph, needed = model.graph, model.graph.ancestors(model.roots())
        yield from (node.name for node in graph if node.name not in needed)
        yield from unused_functions(model)
        for contents in (model.variables, model.hash_tables, model.embedding_tables, model.assets):
            yield from (name for name in contents if name not in graph)
        looked_up = {table_of(node) for node in lookups(graph)}
        yield from (name for name in model.sparse_tables if name not in looked_up)

    def _drop_init(self, model: Model) -> None:
        """Keep only those initializers that fill a table or variable that an output reads."""
        graph = model.graph
        needed = graph.ancestors(model.inputs() | model.outputs())
        fillers: list[str] = []
        for name in graph.ancestors(model.init):
            node = graph[name]
            if name not in needed and any(_fills(graph, source, needed) for source in node.inputs):
                fillers.append(name)
        model.init = sorted(fillers)
        used = graph.ancestors(set(fillers) | needed)
        for name in [name for name in model.assets if name not in used]:
            model.removed_assets[model.assets.pop(name).name] = "no table that an output needs is filled from it"


def _fills(graph: Graph, output: Output, needed: set[str]) -> bool:
    """Return whether an input is the handle of a variable or table that an output needs."""
    handle = handle_of(graph, output)
    op = graph[handle].op
    return handle in needed and (op in {"VarHandleOp", "VariableV2", "Variable"} or "HashTable" in op)


def unused_functions(model: Model) -> list[str]:
    """Return the names of functions to which nothing in the graph refers, directly or indirectly."""
    library = model.graph.library
    waiting = [name for node in model.graph for name in functions_of(node.attrs)]
    waiting += [node.op for node in model.graph if node.op in library]
    used: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in used or name not in library:
            continue
        used.add(name)
        for node in library[name].node_def:
            waiting.extend(functions_of(node.attr))
            waiting.append(node.op)
    return sorted(set(library) - used)
