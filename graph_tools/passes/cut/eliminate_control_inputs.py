# SPDX-License-Identifier: Apache-2.0
"""Remove control inputs that order nothing, and side effects on which no output depends."""

from __future__ import annotations

from collections.abc import Iterator

from graph_tools.graph import CONTROL_FLOW, Node, has_effect
from graph_tools.model import Model
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.rewriting.sweep import sweep

_HANDLES = {"VarHandleOp", "VariableV2", "Variable"}
_JOINS = {"Merge", "RefMerge"}
_SPLITS = {"Switch", "RefSwitch", "_SwitchN"}


class EliminateControlInputs(Pass):
    """Remove control inputs from nodes without effect, and writes of variables on which no output depends.

    Before: `y → Identity` waits for a NoOp that waits for `ReadVariableOp`, and for `AssignAddVariableOp(counter, 1)`.
    After: `y → Identity`.

    A control input stays if the node that it names has an effect, uses a variable that is written, comes after such a
    node, or is in a branch that may not run. A write stays if an output reads the variable: it changes answers, which
    is reported.
    """

    name = "eliminate_control_inputs"

    def process(self, model: Model, result: PassResult) -> None:
        self._drop_writes(model, result)
        loose: list[str] = []
        for node, gone in list(self._needless(model)):
            model.graph.set_inputs(node, node.inputs, [name for name in node.controls if name not in gone])
            loose.extend(gone)
            result.applied += len(gone)
        sweep(model, loose, "only waited for, and without any effect")

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the nodes that wait for others without need, and the writes of variables that no output reads."""
        yield from (node.name for node, _ in self._needless(model))
        for _, nodes, reader in self._writes(model):
            yield from (node.name for node in nodes if reader is None and node.name not in model.roots())

    def _needless(self, model: Model) -> Iterator[tuple[Node, list[str]]]:
        """Yield the nodes with control inputs that order nothing, and the names of these inputs."""
        ordering, inside = self._ordering(model), _Branches(model)
        for node in model.graph:
            gone = [name for name in node.controls if name not in ordering and not inside(name)]
            if gone:
                yield node, gone

    def _drop_writes(self, model: Model, result: PassResult) -> None:
        graph, dropped = model.graph, set[str]()
        # An output may have waited for the write of one variable that read another variable.
        while unread := [(h, nodes) for h, nodes, reader in self._writes(model) if reader is None and h not in dropped]:
            for handle, nodes in unread:
                dropped.add(handle)
                for node in nodes:
                    graph.replace_control(node.name, [name for name in node.controls if name != node.name])
                    why = f"{node.op} of '{handle}', which no output reads"
                    sweep(model, [node.name], why, f"only what changes '{handle}' needed it, which no output reads")
                    result.applied += 1
        for handle, nodes, reader in self._writes(model):
            if reader is not None:
                why = (
                    f"'{nodes[0].name}' ({nodes[0].op}) changes it at every request, and '{reader}' reads it for an "
                    f"output, expected one that is only read"
                )
                result.refused.append((handle, why))

    def _writes(self, model: Model) -> Iterator[tuple[str, list[Node], str | None]]:
        """Yield variables that the graph writes, the nodes that write them, and a node that reads it for an output."""
        graph = model.graph
        init = graph.ancestors(model.init)
        writers: dict[str, list[Node]] = {}
        for node in graph:
            if node.name in init or not node.inputs or not has_effect(graph, node):
                continue
            handle = node.inputs[0].node
            if graph[handle].op in _HANDLES and not any(
                source.node == node.name for user in graph.users(node.name) for source in user.inputs
            ):
                writers.setdefault(handle, []).append(node)
        for handle, nodes in writers.items():
            needed = self._needed_without(model, {node.name for node in nodes})
            yield handle, nodes, next((user.name for user in graph.users(handle) if user.name in needed), None)

    def _needed_without(self, model: Model, without: set[str]) -> set[str]:
        """Return the names of the nodes that outputs and initializers need if some nodes are not run."""
        graph = model.graph
        seen: set[str] = set(without)
        waiting = [*model.outputs(), *model.init]
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting.extend(source.node for source in graph[name].inputs)
                waiting.extend(graph[name].controls)
        return seen - without

    def _ordering(self, model: Model) -> set[str]:
        """Return the names of the nodes for which others must wait: they have effects or see effects of others."""
        graph = model.graph
        # Initializers have run before the first request.
        init = graph.ancestors(model.init) - graph.ancestors(model.outputs())
        written = {
            source.node
            for node in graph
            if has_effect(graph, node) and node.name not in init
            for source in node.inputs
            if graph[source.node].op in _HANDLES or "Table" in graph[source.node].op
        }
        waiting = [node.name for node in graph if has_effect(graph, node)]
        waiting += [user.name for handle in written for user in graph.users(handle)]
        seen: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting.extend(user.name for user in graph.users(name))
        return seen


class _Branches:
    """Tells whether TF 1's control flow decides if, or how often, a node runs."""

    def __init__(self, model: Model) -> None:
        self.graph = model.graph
        self.loops = any(node.op in {"Enter", "RefEnter"} for node in self.graph)
        self.any = any(node.op in CONTROL_FLOW for node in self.graph)

    def __call__(self, name: str) -> bool:
        if not self.any:
            return False
        seen: set[tuple[str, int]] = set()
        waiting = [(name, 0)]
        while waiting:
            current, depth = waiting.pop()
            if (current, depth) in seen:
                continue
            seen.add((current, depth))
            node = self.graph[current]
            if self.loops and node.op in CONTROL_FLOW:
                return True
            if node.op in _SPLITS:
                if depth == 0:
                    return True
                depth -= 1
            elif node.op in _JOINS:
                depth += 1
            waiting.extend((before.node, depth) for before in node.inputs)
            waiting.extend((before, depth) for before in node.controls)
        return False
