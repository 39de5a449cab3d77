# SPDX-License-Identifier: Apache-2.0
"""Remove assertions, prints and summaries."""

from __future__ import annotations

from collections.abc import Iterable

from graph_tools.graph import Node, functions_of, has_effect, writes
from graph_tools.model import Model
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.protocol import SitePass
from graph_tools.rewriting.sweep import before_of, bypass_controls, sweep

_PASS_ON = {"Print", "CheckNumerics", "CheckNumericsV2"}
_BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")


def is_assertion(node: Node) -> bool:
    """Return whether a node only serves to monitor training, and contributes to no output."""
    return node.op in {"Assert", "PrintV2", *_PASS_ON} or node.op.endswith(("Summary", "SummaryV2"))


class EliminateAssertions(SitePass[None]):
    """Remove assertions, prints, checks of numbers and summaries, with the nodes that only these need.

    Before: `x → CheckNumerics → MatMul`, and `ids → Less → Assert`, which `Gather` waits for.
    After: `x → MatMul`, and `Gather`, which waits for what `Assert` waited for.

    Branches that only assert (tf.debugging's guards) are removed completely. A request that would have failed an
    assertion then succeeds, or fails in the kernel that cannot handle it.
    """

    name = "eliminate_assertions"

    def candidates(self, model: Model) -> Iterable[str]:
        return [node.name for node in model.graph if is_assertion(node) or node.op in _BRANCHES]

    def match(self, model: Model, site: str) -> Outcome[None]:
        graph = model.graph
        node = graph[site]
        if node.op in _BRANCHES:
            return Found(None) if self._only_asserts(model, node) else NoMatch()
        if site in model.roots():
            return Refused("a signature names it, expected a node inside the graph")
        if node.op in _PASS_ON:
            return Found(None)
        used = [user for user in graph.users(site) if any(source.node == site for source in user.inputs)]
        kept = [user for user in used if not is_assertion(user)]
        return Refused(f"'{kept[0].name}' uses its output, expected other summaries at most") if kept else Found(None)

    def _only_asserts(self, model: Model, node: Node) -> bool:
        graph = model.graph
        if not has_effect(graph, node):
            return False
        if has_effect(graph, node, lambda inner: writes(inner) and not is_assertion(inner)):
            return False
        return bool(functions_of(node.attrs)) and self._only_waited_for(model, node)

    def _only_waited_for(self, model: Model, node: Node) -> bool:
        """Return whether nothing uses a node's outputs except identities for which other nodes only wait."""
        if node.name in model.roots():
            return False
        users = [
            user for user in model.graph.users(node.name) if any(source.node == node.name for source in user.inputs)
        ]
        return all(user.op == "Identity" and self._only_waited_for(model, user) for user in users)

    def rewrite(self, model: Model, site: str, found: None) -> None:
        graph = model.graph
        node = graph[site]
        if node.op in _PASS_ON:
            graph.replace(node.output(), node.inputs[0])
        self._remove(model, node)

    def _remove(self, model: Model, node: Node) -> None:
        """Remove a node, after those that use its outputs."""
        graph = model.graph
        for user in graph.users(node.name):
            if any(source.node == node.name for source in user.inputs):
                self._remove(model, user)
        if node.name not in graph:  # Removed already, since only the nodes just removed needed it.
            return
        if node.op in _PASS_ON or node.op == "Identity":
            bypass_controls(model, node.name)
        else:
            graph.replace_control(node.name, node.controls)
        before = before_of(node)
        graph.remove(node.name, f"{node.op}: only reports about a training, no output needs it")
        sweep(model, before, f"only an assertion, print or summary needed it ('{node.name}')")
