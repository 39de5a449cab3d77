# SPDX-License-Identifier: Apache-2.0
"""Remove dropout with rate 0, which drops nothing."""

from __future__ import annotations

from collections.abc import Iterable

from graph_tools.analysis.same_value import broadcasts
from graph_tools.analysis.shapes import ShapeOf, shapes
from graph_tools.analysis.values import Values
from graph_tools.graph import Output
from graph_tools.model import Model
from graph_tools.rewriting.matcher import GraphFacts, Match, Pattern
from graph_tools.rewriting.outcome import Found, Outcome, Refused
from graph_tools.rewriting.pattern import const, op, repeated, value
from graph_tools.rewriting.protocol import SitePass
from graph_tools.rewriting.sweep import anchors_branch, sweep

_X, _RATE, _KEPT, _SIZE = value(), value(), value(), value()
_UNIFORM = op("RandomUniform|StatelessRandomUniform|StatelessRandomUniformV2", _SIZE, ..., waits=True)
# TF 1 scales the numbers to [0, 1).
_NUMBERS = repeated(lambda x: op("Mul", x, const(1), waits=True) | op("Add|AddV2", x, const(0), waits=True), _UNIFORM)
_FLOOR = op("Floor", op("Add|AddV2", _NUMBERS, _KEPT, waits=True), waits=True)
_COMPARED = op("GreaterEqual", _NUMBERS, _RATE, waits=True)
_MASK = repeated(lambda mask: op("Cast|Identity", mask, waits=True), _COMPARED | _FLOOR)
_PATTERN = Pattern(op("Mul", _X, _MASK, waits=True) | op("Select|SelectV2", _MASK, _X, ..., waits=True))

# A tensor times numbers, which has the shape of the tensor.
_TENSOR, _NUMBER = value(), const(accepts=lambda elements: elements.size == 1)
_SCALED = Pattern(
    repeated(lambda x: op("Mul|RealDiv|Div", x, _NUMBER, waits=True) | op("Identity", x, waits=True), _TENSOR)
)


class EliminateDropout(SitePass[Output]):
    """Remove the mask of a dropout whose rate is 0.

    Before: `Mul(x, Cast(GreaterEqual(RandomUniform(Shape(x)), 0)))`, `Mul(x, Floor(RandomUniform(Shape(x)) + 1))` or
    `SelectV2(GreaterEqual(RandomUniform(Shape(x)), 0), x, 0)`.
    After: `x`.

    A uniform number lies in [0, 1), so such a mask is all ones. If the rate is not 0, dropout was not turned off for
    the export and answers are random; the dropout stays and is reported.
    """

    name = "eliminate_dropout"

    def candidates(self, model: Model) -> Iterable[str]:
        self._values, self._facts = Values(model), GraphFacts(model.graph)
        self._shape_of: ShapeOf | None = None
        if not model.graph.of(*_UNIFORM.ops):
            return ()
        self._shape_of = shapes(model)
        return [node.name for node in _PATTERN.sites(model.graph)]

    def match(self, model: Model, site: str) -> Outcome[Output]:
        found = _PATTERN.match(self._facts, Output(site))
        if not isinstance(found, Found):
            return found
        match = found.value
        number = self._values.scalar(match[_KEPT if _FLOOR in match else _RATE])
        if number is None:
            return Refused("the rate of this dropout is computed at every request, expected 0: its answers are random")
        rate = 1.0 - float(number) if _FLOOR in match else float(number)
        if rate > 0:
            return Refused(f"the rate of this dropout is {rate:g}, expected 0: its answers are random")
        if model.graph[site].controls or site in model.roots() or anchors_branch(model, site):
            return Refused("a signature names it, or it waits for others, expected a node inside the graph")
        if not self._has_shape_of_x(match):
            return Refused("the mask may be larger than what it is applied to, expected its shape")
        return Found(match[_X])

    def _has_shape_of_x(self, match: Match) -> bool:
        assert self._shape_of is not None
        size = match.node(_SIZE)
        if size.op == "Shape":
            return self._tensor(size.inputs[0]) == self._tensor(match[_X])
        value = self._values.constant(match[_SIZE])
        return value is not None and not broadcasts(tuple(value.tolist()), self._shape_of(match[_X]))

    def _tensor(self, scaled: Output) -> Output:
        found = _SCALED.match(self._facts, scaled)
        return found.value[_TENSOR] if isinstance(found, Found) else scaled

    def rewrite(self, model: Model, site: str, found: Output) -> None:
        graph = model.graph
        node = graph[site]
        before = [source.node for source in node.inputs]
        graph.replace(node.output(), found)
        graph.replace_control(site, [found.node])
        sweep(model, [site], "dropout of rate 0", "only a dropout of rate 0 needed it")
        sweep(model, before, "only a dropout of rate 0 needed it")
