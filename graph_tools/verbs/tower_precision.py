# SPDX-License-Identifier: Apache-2.0
"""Set the precision of fused ops, and of single dense layers in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from graph_tools.graph import Node, attribute, op_def
from graph_tools.graph.op_library import is_ours
from graph_tools.model import Model
from graph_tools.plans import TowerPlan
from graph_tools.plans.tower_plan import Dense, averaged

_TOWER, _ATTRIBUTE = "RecDenseTower", "precision"
_READS = {"Identity", "ReadVariableOp"}


@dataclass(frozen=True)
class LayerPlace:
    """A dense layer of a fused op.

    Attributes
    ----------
    node : str
    layer : int
        Its number in the op's plan.
    weights : str
        Name of its first weight.
    """

    node: str
    layer: int
    weights: str

    def __str__(self) -> str:
        return f"layer {self.layer} of '{self.node}' (weights '{self.weights}')"


def nodes_with_precision(model: Model) -> list[Node]:
    """Return the ops that have a precision attribute."""
    return [node for node in model.graph if is_ours(node.op) and _has_precision(model, node)]


def set_precision(model: Model, value: str, kept: Mapping[LayerPlace, str] | None = None) -> None:
    """Set the precision of every such op: `fp32`, `bf16`, `int8`, or `auto`, for which the library decides.

    Only dense towers compute in int8; other ops then get bf16. The layers in `kept` get the precision that they have in
    a tower that computes in int8; all others lose theirs.
    """
    for node in nodes_with_precision(model):
        tower = node.op == _TOWER
        model.graph.set_attr(node, _ATTRIBUTE, value if tower or value != "int8" else "bf16")
        if tower:
            _keep(model, node, {place.layer: wider for place, wider in (kept or {}).items() if place.node == node.name})


def int8_layers(model: Model) -> list[list[LayerPlace]]:
    """Return the dense layers that can compute in int8, by tower."""
    towers = (list(_places(model, node)) for node in model.graph.of(_TOWER))
    return [places for places in towers if places]


def _places(model: Model, node: Node) -> Iterator[LayerPlace]:
    plan = TowerPlan.from_json(attribute(node, "plan"))
    for number in averaged(plan):
        layer = plan.layers[number]
        assert isinstance(layer, Dense)
        weight = model.graph[node.inputs[attribute(node, "num_inputs") + layer.weights[0]].node]
        while weight.op in _READS:
            weight = model.graph.input(weight, 0)
        yield LayerPlace(node.name, number, weight.name)


def _keep(model: Model, node: Node, kept: Mapping[int, str]) -> None:
    plan = TowerPlan.from_json(attribute(node, "plan"))
    layers = tuple(
        replace(layer, precision=kept.get(number)) if isinstance(layer, Dense) else layer
        for number, layer in enumerate(plan.layers)
    )
    if layers != plan.layers:
        model.graph.set_attr(node, "plan", replace(plan, layers=layers).to_json())


def _has_precision(model: Model, node: Node) -> bool:
    described = op_def(node.op, model.graph.op_defs)
    known = described is not None and any(attr.name == _ATTRIBUTE and attr.type == "string" for attr in described.attr)
    return known or isinstance(attribute(node, _ATTRIBUTE), bytes)
