# SPDX-License-Identifier: Apache-2.0
"""Remove nodes that are proven to change neither shape nor elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graph_tools.analysis.same_value import OPS, RESHAPES, Rules
from graph_tools.analysis.shapes import shapes
from graph_tools.graph import Node, Output
from graph_tools.model import Model
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.protocol import PassResult, SitePass
from graph_tools.rewriting.sweep import anchors_branch, sweep


class EliminateNoopReshapes(SitePass[Output | None]):
    """Remove reshapes, transposes, casts, paddings, slices and arithmetic that return their input unchanged.

    Before: `x [?, 8] → ExpandDims → Squeeze → Reshape(-1, 8) → Mul(1) → AddN (of one) → MatMul`, and
    `Reshape(Reshape(y, a), b)`.
    After: `x → MatMul`, and `Reshape(y, b)`.

    Static shapes prove it: the number of elements stays, so two shapes of the same rank and with equal sizes, at most
    one of them unknown, are equal. Outputs of signatures keep their nodes.
    """

    name = "eliminate_noop_reshapes"

    def __init__(self) -> None:
        self._changed: set[str] = set()

    def process(self, model: Model, result: PassResult) -> None:
        self._changed = set()
        super().process(model, result)

    def candidates(self, model: Model) -> Iterable[str]:
        self._rules: Rules | None = None
        roots = model.roots()
        found = [node.name for node in model.graph.of(*OPS) if node.name not in roots]
        if found:
            self._rules = Rules(model, shapes(model))
        return found

    def match(self, model: Model, site: str) -> Outcome[Output | None]:
        """Search for the output that equals that of a node, or None if only a reshape before the node is useless."""
        node = model.graph[site]
        assert self._rules is not None
        equal = self._rules.equal_input(node)
        if equal is None and not self._merges(model, node):
            return NoMatch()
        if node.controls:
            return Refused("it waits for other nodes, expected none")
        if anchors_branch(model, site):
            return Refused("nodes of a branch wait for it, expected none")
        return Found(equal)

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the nodes that the pass would still remove, except reshapes whose input it replaced.

        Such a Reshape may have become useless, or may be merged again; a later run does this.
        """
        return (site for site in super().ensures(model) if site not in self._changed)

    def _merges(self, model: Model, node: Node) -> bool:
        before = model.graph.input(node, 0)
        return node.op == "Reshape" and before.op in RESHAPES and not before.controls

    def rewrite(self, model: Model, site: str, found: Output | None) -> None:
        graph = model.graph
        node = graph[site]
        before = [output.node for output in node.inputs]
        self._changed |= {user.name for user in graph.users(site) if user.op == "Reshape"}
        if found is None:
            self._changed.add(site)
            inner = graph.input(node, 0)
            graph.set_input(node, 0, inner.inputs[0])
            sweep(model, [inner.name], f"{inner.op}: reshaped again right after")
            return
        graph.replace(node.output(), found)
        graph.replace_control(site, [found.node])
        sweep(model, [site], f"{node.op}: changes neither shape nor elements", f"only a {node.op} that changes nothing "
              "needed it")  # fmt: skip
        sweep(model, before, f"only a {node.op} that changes nothing needed it")
