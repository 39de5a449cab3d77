# SPDX-License-Identifier: Apache-2.0
"""Decide branches and selections before serving if their condition is constant."""

from __future__ import annotations

from collections.abc import Iterator

from graph_tools.analysis.shapes import shapes
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

    def __init__(self) -> None:
        self._refused: set[str] = set()

    def process(self, model: Model, result: PassResult) -> None:
        self._refused = set()
        while self._inline_branches(model, result):
            pass
        self._cut_switches(model, result)
        # The condition of a selection may be another selection.
        while self._cut_selections(model, result):
            pass

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield calls, switches and selections whose condition is constant, unless they were refused."""
        yield from (node.name for node, _ in self._decided(model))
        switches = self._decided_switches(model).keys() - model.roots()
        yield from sorted(switches - self._refused)
        yield from (node.name for node, _ in self._decided_selections(model))

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
        graph, switches = model.graph, self._decided_switches(model)
        if not switches:
            return
        dead = _dead_outputs(graph, {Output(name, 1 - port) for name, port in switches.items()})
        gone = {name for name, ports in dead.items() if ports is None}
        lost = gone & model.roots()
        if lost:
            result.refused += [(name, "a signature's output is never computed, expected a living branch")
                               for name in sorted(lost)]  # fmt: skip
            self._refused |= switches.keys()
            return
        joins = {user.name for name in dead for user in graph.users(name) if user.op == "Merge"} - gone
        for name in joins:
            living = [source for source in graph[name].inputs if not _is_dead(source, dead)]
            if len(living) > 1 and graph.uses(graph[name].output(1)):
                result.refused.append((name, "its value_index is used, expected only one input that may have a value"))
                self._refused |= switches.keys()
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

    def _decided_switches(self, model: Model) -> dict[str, int]:
        """Return the port that each switch with a constant condition takes."""
        values = Values(model)
        taken = {node.name: values.scalar(node.inputs[1]) for node in model.graph.of("Switch")}
        return {name: int(bool(port)) for name, port in taken.items() if port is not None}

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

    def _decided_selections(self, model: Model) -> Iterator[tuple[Node, bool]]:
        """Yield selections that take one side for all elements and were not refused, and whether it is the first."""
        values = Values(model)
        for node in model.graph.of("Select", "SelectV2"):
            condition = None if node.name in self._refused else values.constant(node.inputs[0])
            if condition is not None and condition.size and (condition.all() or not condition.any()):
                yield node, bool(condition.all())

    def _cut_selections(self, model: Model, result: PassResult) -> int:
        """Replace selections, and return how many."""
        graph, before_applied = model.graph, result.applied
        found = list(self._decided_selections(model))
        if not found:
            return 0
        shape_of = shapes(model)
        for node, first in found:
            if node.name not in graph:
                continue
            source = node.inputs[1 if first else 2]
            shape = shape_of(node.output())
            if shape_of(source) is None or shape is None or shape != shape_of(source) or shape.count(None) > 1:
                result.refused.append((node.name, "the side that is taken may be broadcast, expected a known shape"))
                self._refused.add(node.name)
                continue
            before = [source.node for source in node.inputs]
            graph.become(node, "Identity", [source], {"T": attribute(node, "T")})
            sweep(model, before, f"not taken, or condition, of '{node.name}', whose condition is constant")
            result.applied += 1
        return result.applied - before_applied


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
