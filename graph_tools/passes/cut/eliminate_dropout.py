# SPDX-License-Identifier: Apache-2.0
"""Remove dropout that drops nothing."""

from __future__ import annotations

from collections.abc import Iterable

from graph_tools.analysis.same_value import broadcasts
from graph_tools.analysis.shapes import ShapeOf, shapes
from graph_tools.analysis.values import Values
from graph_tools.graph import Node, Output
from graph_tools.model import Model
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.rewriting.sweep import anchors_branch, sweep

_UNIFORM = ("RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2")
# Ops between x and the shape of its mask that keep the shape.
_KEEPS = {"Mul", "RealDiv", "Div", "Identity", "StopGradient"}


class EliminateDropout(Pass):
    """Remove the mask of a dropout whose rate is 0.

    Before: `Mul(x, Cast(GreaterEqual(RandomUniform(Shape(x)), 0)))`, `Mul(x, Floor(RandomUniform(Shape(x)) + 1))` or
    `SelectV2(GreaterEqual(RandomUniform(Shape(x)), 0), x, 0)`.
    After: `x`.

    A uniform number lies in [0, 1), so such a mask is all ones. Where the rate is not 0 the exporter forgot to turn the
    dropout off: answers are random, which stays and is reported.
    """

    name = "eliminate_dropout"

    def apply(self, model: Model) -> PassResult:
        self._values = Values(model)
        self._shape_of: ShapeOf | None = None
        return super().apply(model)

    def candidates(self, model: Model) -> Iterable[str]:
        if model.graph.of(*_UNIFORM):
            self._shape_of = shapes(model)
            return [node.name for node in model.graph.of("Mul", "Select", "SelectV2")]
        return ()

    def check(self, model: Model, site: str) -> str | None:
        node = model.graph[site]
        for x, mask in self._sides(node):
            uniform, rate = self._uniform_behind(model, mask)
            if uniform is None:
                continue
            if rate is None:
                return "the rate of this dropout is computed at every request, expected 0: its answers are random"
            if rate > 0:
                return f"the rate of this dropout is {rate:g}, expected 0: its answers are random"
            if node.controls or site in model.roots() or anchors_branch(model, site):
                return "a signature names it, or it waits for others, expected a node inside the graph"
            if not self._same_shape(model, node, x, uniform):
                return "the mask may be larger than what it is applied to, expected its shape"
            return None
        return ""

    def _sides(self, node: Node) -> list[tuple[Output, Output]]:
        """List (x, mask) as the node may mean them."""
        if node.op == "Mul":
            return [(node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])]
        return [(node.inputs[1], node.inputs[0])]

    def _uniform_behind(self, model: Model, mask: Output) -> tuple[Node | None, float | None]:
        """Return the random node that a mask is made from and the rate of the dropout."""
        graph = model.graph
        node = graph[mask.node]
        while node.op in {"Cast", "Identity"}:
            node = graph.input(node, 0)
        if node.op == "GreaterEqual":
            uniform = self._uniform(model, node.inputs[0])
            rate = self._values.scalar(node.inputs[1])
            return uniform, None if rate is None else float(rate)
        if node.op == "Floor":
            total = graph.input(node, 0)
            if total.op in {"Add", "AddV2"}:
                for random, keep in ((0, 1), (1, 0)):
                    uniform = self._uniform(model, total.inputs[random])
                    if uniform is not None:
                        kept = self._values.scalar(total.inputs[keep])
                        return uniform, None if kept is None else 1.0 - float(kept)
        return None, None

    def _uniform(self, model: Model, output: Output) -> Node | None:
        """Return the random node behind an output, through the scaling to [0, 1) that TF 1 writes."""
        graph = model.graph
        node = graph[output.node]
        while node.op not in _UNIFORM:
            neutral = {"Mul": 1, "Add": 0, "AddV2": 0}.get(node.op)
            if neutral is None or self._values.scalar(node.inputs[1]) != neutral:
                return None
            node = graph.input(node, 0)
        return node

    def _same_shape(self, model: Model, node: Node, x: Output, uniform: Node) -> bool:
        graph = model.graph
        assert self._shape_of is not None
        size = graph.input(uniform, 0)
        if size.op == "Shape":
            measured = size.inputs[0]
            return self._origin(model, measured) == self._origin(model, x)
        value = self._values.constant(uniform.inputs[0])
        return value is not None and not broadcasts(tuple(value.tolist()), self._shape_of(x))

    def _origin(self, model: Model, output: Output) -> Output:
        """Walk to the tensor of which a scaled one keeps the shape."""
        node = model.graph[output.node]
        while node.op in _KEEPS:
            if len(node.inputs) == 2 and self._values.scalar(node.inputs[1]) is None:
                break
            output = node.inputs[0]
            node = model.graph[output.node]
        return output

    def rewrite(self, model: Model, site: str) -> None:
        graph = model.graph
        node = graph[site]
        x = next(x for x, mask in self._sides(node) if self._uniform_behind(model, mask)[0] is not None)
        before = [one.node for one in node.inputs]
        graph.replace(node.output(), x)
        graph.replace_control(site, [x.node])
        sweep(model, [site], "dropout of rate 0", "only a dropout of rate 0 needed it")
        sweep(model, before, "only a dropout of rate 0 needed it")
