# SPDX-License-Identifier: Apache-2.0
"""Remove nodes that pass on their inputs unchanged."""

from __future__ import annotations

from collections.abc import Iterable

from graph_tools.analysis.shapes import ShapeOf, shapes
from graph_tools.graph import CONTROL_FLOW, Node, Output, attribute, op_def
from graph_tools.model import Model
from graph_tools.rewriting.outcome import Found, Outcome, Refused
from graph_tools.rewriting.protocol import SitePass
from graph_tools.rewriting.sweep import anchors_branch, sweep

_IDENTITIES = (
    "Identity", "IdentityN", "Snapshot", "StopGradient", "PreventGradient", "DebugIdentity", "DebugIdentityV2",
    "DebugIdentityV3", "EnsureShape", "PlaceholderWithDefault",
)  # fmt: skip
# More copied control edges than this cost more than the node.
_COPIES = 8


class EliminateIdentities(SitePass[None]):
    """Connect the users of identities to the inputs that the identities pass on.

    Before: `x → StopGradient → Identity → MatMul → Identity (an output)`.
    After: `x → MatMul → Identity (an output)`.

    Outputs of signatures keep their nodes, since clients know their names. A PlaceholderWithDefault that is no input of
    a signature is replaced by its default. EnsureShape is removed if the shape is known without it.
    """

    name = "eliminate_identities"

    def candidates(self, model: Model) -> Iterable[str]:
        self._shape_of: ShapeOf | None = None
        roots = model.roots()
        found = [node.name for node in model.graph.of(*_IDENTITIES) if node.name not in roots]
        if any(model.graph[name].op == "EnsureShape" for name in found):
            self._shape_of = shapes(model)
        return found

    def match(self, model: Model, site: str) -> Outcome[None]:
        graph = model.graph
        node = graph[site]
        users = graph.users(site)
        if any(_is_reference(model, source) for source in node.inputs):
            return Refused("it reads a reference variable, expected a resource")
        if node.op == "EnsureShape" and not self._proven(node):
            return Refused(
                f"the shape that comes in may not be {attribute(node, 'shape')}, expected one that is known to be"
            )
        if len(node.controls) * len(users) > _COPIES and len(node.controls) > 1:
            return Refused(f"{len(users)} users would wait for its {len(node.controls)} control inputs, expected fewer")
        if anchors_branch(model, site):
            return Refused("nodes of a branch wait for it, expected none")
        sources = {graph[source.node].op for source in node.inputs}
        joins = [user for user in users if user.op in CONTROL_FLOW]
        if joins and (node.controls or sources & CONTROL_FLOW):
            return Refused(f"it carries a branch into '{joins[0].name}', expected no control flow on both sides")
        return Found(None)

    def _proven(self, node: Node) -> bool:
        wanted = attribute(node, "shape")
        known = self._shape_of(node.inputs[0]) if self._shape_of else None
        if wanted is None:
            return True
        return known is not None and len(known) == len(wanted) and all(
            want is None or want == have for want, have in zip(wanted, known, strict=True)
        )  # fmt: skip

    def rewrite(self, model: Model, site: str, found: None) -> None:
        graph = model.graph
        node = graph[site]
        for user in graph.users(site):
            data = any(source.node == site for source in user.inputs)
            inputs = [node.inputs[source.port] if source.node == site else source for source in user.inputs]
            controls = [name for name in user.controls if name != site]
            if site in user.controls:
                controls += [source.node for source in node.inputs]
            if data or site in user.controls:
                controls += node.controls
            held = {source.node for source in inputs}
            graph.set_inputs(user, inputs, [name for name in controls if name not in held and name != user.name])
        sweep(model, [site], f"{node.op}: passes on what it is given")


def _is_reference(model: Model, output: Output) -> bool:
    """Return whether an output is a reference to a variable or table of TF 1."""
    node = model.graph[output.node]
    described = op_def(node.op, model.graph.op_defs)
    return described is not None and any(argument.is_ref for argument in described.output_arg)
