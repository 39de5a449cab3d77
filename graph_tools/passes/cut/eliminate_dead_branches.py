# SPDX-License-Identifier: Apache-2.0
"""Decide branches and selections before serving if their condition is constant."""

from __future__ import annotations

from collections.abc import Iterator

from graph_tools.analysis.shapes import ShapeOf, shapes
from graph_tools.analysis.values import Values
from graph_tools.graph import Graph, Node, Output, attribute, inline_calls
from graph_tools.graph.attributes import attr_value
from graph_tools.model import Model
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.rewriting.sweep import sweep

_IFS = ("If", "StatelessIf", "Case", "StatelessCase")


class EliminateDeadBranches(Pass):
    """Keep only the branch that is taken, if this is known before any request.

    Before: `If(False, x, then = dropout, else = identity)`, `Switch(x, False) → … → Merge`, `SelectV2(True, a, b)`.
    After: the body of the branch instead of the If; the live input of the Merge instead of the Merge; `a`.
    """

    name = "eliminate_dead_branches"

    def process(self, model: Model, result: PassResult) -> None:
        while self._inline_branches(model, result):
            pass
        self._cut_switches(model, result)
        self._cut_selections(model, result)

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the calls whose branch is known before any request."""
        return (node.name for node, _ in self._decided(model))

    def _decided(self, model: Model) -> Iterator[tuple[Node, str]]:
        """Yield the calls whose condition is constant, and the functions that they always call."""
        values = Values(model)
        for node in model.graph.of(*_IFS):
            condition = values.constant(node.inputs[0])
            if condition is None or condition.size != 1 or condition.dtype == object:
                continue
            names = _branches(node)
            picked = condition.reshape(-1)[0]
            index = (0 if picked else 1) if "If" in node.op else int(picked)
            yield node, names[index if 0 <= index < len(names) else len(names) - 1]

    def _inline_branches(self, model: Model, result: PassResult) -> int:
        graph, roots = model.graph, model.roots()
        chosen = list(self._decided(model))
        for node, function in chosen:
            attrs = {"Tin": node.attrs["Tin"], "Tout": node.attrs["Tout"], "f": _function(function)}
            condition_node = node.inputs[0].node
            graph.become(node, "PartitionedCall", node.inputs[1:], attrs)
            sweep(model, [condition_node], f"condition of '{node.name}', which is constant")
        if chosen:
            inline_calls(graph, frozenset(roots))
        result.applied += len(chosen)
        return len(chosen)

    def _cut_switches(self, model: Model, result: PassResult) -> None:
        graph, values = model.graph, Values(model)
        switches = {}
        for node in graph.of("Switch"):
            taken = values.scalar(node.inputs[1])
            if taken is not None:
                switches[node.name] = int(bool(taken))
        if not switches:
            return
        dead = _dead_outputs(graph, {Output(name, 1 - port) for name, port in switches.items()})
        gone = {name for name, ports in dead.items() if ports is None}
        lost = gone & model.roots()
        if lost:
            result.refused += [(name, "a signature's output is never computed, expected a living branch")
                               for name in sorted(lost)]  # fmt: skip
            return
        joins = {user.name for name in dead for user in graph.users(name) if user.op == "Merge"} - gone
        for name in joins:
            living = [source for source in graph[name].inputs if not _is_dead(source, dead)]
            if len(living) > 1 and graph.uses(graph[name].output(1)):
                result.refused.append((name, "its value_index is used, expected only one input that may have a value"))
                return
        for name in sorted(joins):
            self._shrink_merge(model, graph[name], dead)
        for name, port in switches.items():
            graph.replace(Output(name, port), graph[name].inputs[0])
        result.applied += len(switches)
        for name in gone:
            # No live node uses these, but they use each other.
            graph.set_inputs(graph[name], [], [])
        sweep(model, gone, "in a branch that is never taken")
        for name in switches:
            graph.replace_control(name, [source.node for source in graph[name].inputs])
        sweep(model, switches, "decides by a constant")

    def _shrink_merge(self, model: Model, node: Node, dead: dict[str, set[int] | None]) -> None:
        graph = model.graph
        living = [i for i, source in enumerate(node.inputs) if not _is_dead(source, dead)]
        if len(living) > 1:
            graph.become(node, "Merge", [node.inputs[i] for i in living], {"T": node.attrs["T"], "N": len(living)})
            return
        source = node.inputs[living[0]]
        if graph.uses(node.output(1)):
            graph.replace(node.output(1), graph.add_const(living[0], f"{node.name}/value_index"))
        graph.become(node, "Identity", [source], {"T": node.attrs["T"]})

    def _cut_selections(self, model: Model, result: PassResult) -> None:
        graph, values = model.graph, Values(model)
        found = [(node, values.constant(node.inputs[0])) for node in graph.of("Select", "SelectV2")]
        shape_of: ShapeOf | None = shapes(model) if any(condition is not None for _, condition in found) else None
        for node, condition in found:
            if condition is None or shape_of is None or not (condition.all() or not condition.any()):
                continue
            if not condition.size or node.name not in graph:
                continue
            source = node.inputs[1 if condition.all() else 2]
            shape = shape_of(node.output())
            if shape_of(source) is None or shape is None or shape != shape_of(source) or shape.count(None) > 1:
                result.refused.append((node.name, "the side that is taken may be broadcast, expected a known shape"))
                continue
            before = [source.node for source in node.inputs]
            graph.become(node, "Identity", [source], {"T": attribute(node, "T")})
            sweep(model, before, f"not taken, or condition, of '{node.name}', whose condition is constant")
            result.applied += 1


def _branches(node: Node) -> list[str]:
    if "If" in node.op:
        return [node.attrs["then_branch"].func.name, node.attrs["else_branch"].func.name]
    return [function.name for function in node.attrs["branches"].list.func]


def _function(name: str) -> object:
    value = attr_value("")
    value.func.name = name
    return value


def _is_dead(output: Output, dead: dict[str, set[int] | None]) -> bool:
    ports = dead.get(output.node, set())
    return ports is None or output.port in ports


def _dead_outputs(graph: Graph, outputs: set[Output]) -> dict[str, set[int] | None]:
    """Return, for each node, the ports that never have a value; None if the node never runs."""
    dead: dict[str, set[int] | None] = {}
    for output in outputs:
        ports = dead.setdefault(output.node, set())
        assert ports is not None
        ports.add(output.port)
    waiting = [user for output in outputs for user in graph.users(output.node)]
    while waiting:
        node = waiting.pop()
        if dead.get(node.name, set()) is None:
            continue
        data = [_is_dead(source, dead) for source in node.inputs]
        waits = any(dead.get(name, set()) is None for name in node.controls)
        if waits or (all(data) and bool(data) if node.op in {"Merge", "RefMerge"} else any(data)):
            dead[node.name] = None
            waiting.extend(graph.users(node.name))
    return dead
