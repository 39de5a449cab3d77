# SPDX-License-Identifier: Apache-2.0
"""Run a model whose sparse lookups TensorFlow cannot run, or whose tables are larger than memory.

The graph is cut at every such lookup: TensorFlow computes the keys, this module finds the rows by reading the table as
a stream, and TensorFlow continues with them. All requests pass a stage together, so that each table is read once per
stage.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.graph import Graph, Node, Output, attribute, constant, op_def
from graph_tools.graph.op_defs import output_types, tf_type
from graph_tools.graph.sparse_lookup import OP as SPARSE_LOOKUP
from graph_tools.graph.sparse_lookup import table_of
from graph_tools.model import Endpoint, Model, Signature
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers.restore import handle_of
from graph_tools.tensors import Array, byte_size
from graph_tools.verification.fetch import find_in_hash_table, find_in_table, loaded_bytes, take_rows
from graph_tools.verification.request import Request
from graph_tools.verification.runner import Answer, Answered, Refusal, Runner, SessionRunner
from graph_tools.writer import write_saved_model


@dataclass
class Cut:
    """A lookup that runs outside TensorFlow.

    Attributes
    ----------
    node : Node
        The node of the original graph.
    handle : str
        The table that it reads: a variable, a native hash table, or the name of a sparse table.
    places : tuple of int
        The inputs that TensorFlow computes: keys and, if there is one, the value of absent keys.
    fed : Endpoint
        The placeholder that receives its rows.
    level : int
        Number of other lookups that must be done before it.
    """

    node: Node
    handle: str
    places: tuple[int, ...]
    fed: Endpoint
    level: int = 0

    @property
    def wanted(self) -> tuple[Output, ...]:
        return tuple(self.node.inputs[place] for place in self.places)


class StagedRunner:
    """Runs requests stage by stage.

    Parameters
    ----------
    model : Model
        It is not changed.
    large : int, optional
        Size in bytes from which native variables and hash tables are read as streams as well; None: never.
    session : callable
        Loads the parts that TensorFlow runs.
    """

    def __init__(
        self, model: Model, large: int | None = None, session: Callable[[Model], Runner] = SessionRunner
    ) -> None:
        self.how = "TensorFlow, lookups in NumPy"
        # By sparse table: the keys that were found in it.
        self._seen: dict[str, list[Array]] = {}
        self._source = model
        graph = Graph.from_graph_def(model.graph.to_graph_def())
        graph.op_defs = model.graph.op_defs
        self._model = replace(
            model,
            graph=graph,
            signatures=dict(model.signatures),
            variables=dict(model.variables),
            hash_tables=dict(model.hash_tables),
            embedding_tables=dict(model.embedding_tables),
            sparse_tables={},
            assets=dict(model.assets),
            init=list(model.init),
            extra=None,
            removed_functions={},
            removed_assets={},
        )
        self._cuts = self._cut_lookups(large)
        # By signature and level: the lookups of that level.
        self._stages = {name: self._stages_of(name) for name in model.signatures}
        for name, stages in self._stages.items():
            self._add_stages(name, stages)
        PruneUnreachable().apply(self._model)
        self._folder = Path(tempfile.mkdtemp(prefix="graph-tools-verify-"))
        try:
            write_saved_model(self._model, self._folder / "model")
            self._session = session(replace(self._model, path=self._folder / "model"))
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def run(self, requests: Iterable[Request], answered: Answered) -> list[Answer]:
        asked = list(requests)
        refused: dict[int, Refusal] = {}
        feeds: list[dict[str, Array]] = [dict(request.inputs) for request in asked]
        depth = max((len(stages) for stages in self._stages.values()), default=0)
        for level in range(depth):
            wanted: dict[str, list[tuple[int, tuple[Array, ...]]]] = {}
            for number, request in enumerate(asked):
                stages = self._stages[request.signature]
                if number in refused or level >= len(stages):
                    continue
                answer = self._ask(_stage_name(request.signature, level), feeds[number])
                if isinstance(answer, Refusal):
                    refused[number] = answer
                    continue
                for cut in stages[level]:
                    found = tuple(answer[f"{cut.node.name}:{place}"] for place in range(len(cut.wanted)))
                    wanted.setdefault(cut.node.name, []).append((number, found))
            self._look_up(wanted, feeds, refused)
        answers: list[Answer] = []
        for number, request in enumerate(asked):
            name = _final_name(request.signature)
            answers.append(refused[number] if number in refused else self._ask(name, feeds[number]))
            answered()
        return answers

    @property
    def found(self) -> dict[str, int]:
        """Number of different keys that were found in each sparse table."""
        return {name: len(np.unique(np.concatenate(blocks))) for name, blocks in self._seen.items() if blocks}

    def close(self) -> None:
        self._session.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # Cutting the graph

    def _cut_lookups(self, large: int | None) -> dict[str, Cut]:
        model, graph = self._model, self._model.graph
        cuts: dict[str, Cut] = {}
        for node in graph:
            found = self._lookup(node, large)
            if found is None:
                continue
            handle, places = found
            dtype = _dtype(graph, node)
            fed = graph.add("Placeholder", name=f"fed/{node.name}", attrs={"dtype": dtype})
            cuts[node.name] = Cut(node, handle, places, Endpoint(fed.output(), dtype, None))
        for name, cut in cuts.items():
            graph.replace(Output(name), cut.fed.tensor)
            graph.replace_control(name, [cut.fed.tensor.node])
            for signature, item in list(model.signatures.items()):
                outputs = {
                    key: replace(end, tensor=cut.fed.tensor) if end.tensor == Output(name) else end
                    for key, end in item.outputs.items()
                }
                model.signatures[signature] = Signature(
                    dict(item.inputs), outputs, item.method_name, dict(item.defaults)
                )
        self._set_levels(cuts)
        for name in cuts:
            graph.remove(name, "looked up outside TensorFlow")
        return cuts

    def _lookup(self, node: Node, large: int | None) -> tuple[str, tuple[int, ...]] | None:
        """Return the table and the key inputs of a node, if it is a lookup to run outside TensorFlow, else None."""
        model, graph = self._model, self._model.graph
        if node.op == SPARSE_LOOKUP:
            return table_of(node), tuple(range(len(node.inputs)))
        if large is None:
            return None
        if node.op in {"ResourceGather", "GatherV2", "Gather"}:
            handle = graph.input(node, 0)
            while handle.op in {"Identity", "ReadVariableOp", "RefIdentity"}:
                handle = graph.input(handle, 0)
            tensor = model.variables.get(handle.name)
            if tensor is None or byte_size(tensor) < large or attribute(node, "batch_dims", 0):
                return None
            axis = constant(graph, node.inputs[2]) if node.op == "GatherV2" else np.zeros((), np.int32)
            return (handle.name, (1,)) if axis is not None and axis.item() == 0 else None
        if node.op == "LookupTableFindV2":
            name = handle_of(graph, node.inputs[0])
            content = model.hash_tables.get(name)
            if content is None or loaded_bytes(content) < large:
                return None
            return name, (1, 2)
        return None

    def _set_levels(self, cuts: dict[str, Cut]) -> None:
        """Set the level of each lookup: the number of lookups before it on the longest path."""
        by_placeholder = {cut.fed.tensor.node: cut for cut in cuts.values()}
        before = {
            name: [
                by_placeholder[ancestor]
                for ancestor in self._model.graph.ancestors(output.node for output in cut.wanted)
                if ancestor in by_placeholder
            ]
            for name, cut in cuts.items()
        }
        # A graph has no cycles, so the number of rounds is at most the number of levels plus one.
        changed = True
        while changed:
            changed = False
            for name, cut in cuts.items():
                level = max((cut.level + 1 for cut in before[name]), default=0)
                changed |= level != cut.level
                cut.level = level

    def _stages_of(self, name: str) -> list[list[Cut]]:
        """Return the lookups that a signature needs, by level."""
        graph = self._model.graph
        by_placeholder = {cut.fed.tensor.node: cut for cut in self._cuts.values()}
        waiting = [output.tensor.node for output in self._model.signatures[name].outputs.values()]
        needed: dict[str, Cut] = {}
        while waiting:
            found = [by_placeholder[ancestor] for ancestor in graph.ancestors(waiting) if ancestor in by_placeholder]
            new = [cut for cut in found if cut.node.name not in needed]
            needed |= {cut.node.name: cut for cut in new}
            waiting = [output.node for cut in new for output in cut.wanted]
        depth = max((cut.level + 1 for cut in needed.values()), default=0)
        return [[cut for cut in needed.values() if cut.level == level] for level in range(depth)]

    def _add_stages(self, name: str, stages: list[list[Cut]]) -> None:
        """Add a signature for each level, and one for the outputs, which receives all rows."""
        graph, signature = self._model.graph, self._model.signatures.pop(name)
        inputs = dict(signature.inputs)
        for level, cuts in enumerate(stages):
            outputs = {
                f"{cut.node.name}:{place}": Endpoint(output, _dtype(graph, graph.source(output), output.port), None)
                for cut in cuts
                for place, output in enumerate(cut.wanted)
            }
            self._model.signatures[_stage_name(name, level)] = Signature(dict(inputs), outputs)
            inputs |= {cut.node.name: cut.fed for cut in cuts}
        self._model.signatures[_final_name(name)] = Signature(inputs, signature.outputs)

    # Running

    def _ask(self, signature: str, feeds: dict[str, Array]) -> Answer:
        return self._session.run([Request(signature, feeds, "stage")], lambda: None)[0]

    def _look_up(
        self,
        wanted: dict[str, list[tuple[int, tuple[Array, ...]]]],
        feeds: list[dict[str, Array]],
        refused: dict[int, Refusal],
    ) -> None:
        """Find the rows that all requests need from lookups, and add them to their feeds."""
        # Lookups of one table share one pass through it.
        by_table: dict[str, list[tuple[Cut, int, tuple[Array, ...]]]] = {}
        for name, several in wanted.items():
            cut = self._cuts[name]
            by_table.setdefault(cut.handle, []).extend((cut, number, found) for number, found in several)
        for handle, asked in by_table.items():
            keys = [found[0] for _, _, found in asked]
            defaults = [found[1] if len(found) > 1 else None for _, _, found in asked]
            rows = self._rows(handle, keys, defaults)
            for (cut, number, _), found_rows in zip(asked, rows, strict=True):
                if isinstance(found_rows, Refusal):
                    refused.setdefault(number, found_rows)
                else:
                    feeds[number][cut.node.name] = found_rows

    def _rows(self, handle: str, keys: list[Array], defaults: list[Array | None]) -> list[Array | Refusal]:
        if handle in self._source.sparse_tables:
            seen = self._seen.setdefault(handle, [])
            return list(find_in_table(self._source.sparse_tables[handle], keys, defaults, seen))
        if handle in self._source.hash_tables:
            return list(find_in_hash_table(self._source.hash_tables[handle], keys, defaults))
        found = take_rows(self._source.variables[handle], keys)
        return [
            Refusal("INVALID_ARGUMENT", f"row number out of range in '{handle}'") if r is None else r for r in found
        ]


def _stage_name(signature: str, level: int) -> str:
    return f"{signature}/stage_{level}"


def _final_name(signature: str) -> str:
    return f"{signature}/outputs"


def _dtype(graph: Graph, node: Node, port: int = 0) -> Any:
    """Return the TensorFlow dtype of an output."""
    if node.op == SPARSE_LOOKUP:
        return attribute(node, "dtype")
    described = op_def(node.op, graph.op_defs)
    return tf_type(output_types(described, node.attrs)[port])
