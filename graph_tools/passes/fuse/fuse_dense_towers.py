# SPDX-License-Identifier: Apache-2.0
"""Fuse dense layers and the nodes between them into one op."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graph_tools.graph import Output, attr_value
from graph_tools.model import Model
from graph_tools.recognition.towers.dense import PRODUCTS
from graph_tools.recognition.towers.edges import (
    add_matrix,
    fits,
    leading,
    outside_inputs,
    shape_of_result,
    takes_as_is,
    wanted_outputs,
)
from graph_tools.recognition.towers.layers import Tower, make_tower
from graph_tools.recognition.towers.pieces import Piece, Site
from graph_tools.recognition.towers.regions import Regions
from graph_tools.recognition.towers.search import find_pieces, useful
from graph_tools.rewriting.add_nodes import add_reshape
from graph_tools.rewriting.add_weights import add_weight
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.rewriting.sweep import sweep

_OP = "RecDenseTower"

#: The pieces of a tower, and those of their outputs that something else uses.
_Region = tuple[list[Piece], list[Output]]


class FuseDenseTowers(Pass):
    """Compute dense layers and the nodes between them with one op.

    Before: `x → MatMul(W) → BiasAdd(b) → Relu → MatMul(V) → BiasAdd(c) → Add(wide) → Sigmoid`.
    After: `RecDenseTower(x, wide; W, b, V, c)`, with a plan of two layers.

    A tower is as large as can be: it grows from products with constant weights over biases, activations in any
    spelling, batch and layer normalization, sums and products of rows, concatenation, gates over experts, and reshapes
    that keep rows together. No path leaves it and returns to it. Towers that use the same rows are one op with several
    outputs. Weights stay as they are; if one needs another shape, a new one is made.

    Parameters
    ----------
    precision : str
        The attribute of the ops.
    """

    name = "fuse_dense_towers"

    def __init__(self, precision: str = "auto") -> None:
        self.precision = precision

    def process(self, model: Model, result: PassResult) -> None:
        if not model.graph.of(*PRODUCTS):
            return
        site = Site(model)
        regions: list[_Region] = []
        for region, outputs in _find_regions(site):
            name = outputs[0].node
            if name in self.left_alone:
                site.refused[name] = self.left_alone[name]
            else:
                regions.append((region, outputs))
                result.at.append(name)
        # All plans are made before the graph changes, since `site` is a snapshot of it.
        towers = [(make_tower(site, *region), _Edges(site, *region)) for region in regions]
        renamed: dict[Output, Output] = {}
        for tower, edges in towers:
            self._rewrite(model, tower, edges, renamed)
            result.applied += 1
        for region, outputs in regions:
            _replace(model, region, outputs, renamed)
        result.refused = [(name, why) for name, why in site.refused.items() if name in model.graph]

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the first outputs of towers that are not fused."""
        if model.graph.of(*PRODUCTS):
            names = (outputs[0].node for _, outputs in _find_regions(Site(model)))
            yield from (name for name in names if name not in self.left_alone)

    def _rewrite(self, model: Model, tower: Tower, edges: _Edges, renamed: dict[Output, Output]) -> None:
        """Add the op, and record in `renamed` which of its outputs replaces each output of the graph."""
        graph = model.graph
        inputs = [
            add_matrix(edges.site, source, edges.widths[source]) if source in edges.turned else source
            for source in tower.inputs
        ]
        weights = [
            weight if isinstance(weight, Output) else add_weight(model, f"dense_tower/weight_{i}", weight)
            for i, weight in enumerate(tower.weights)
        ]
        attrs: dict[str, Any] = {
            "num_inputs": len(inputs),
            "num_weights": len(weights),
            "num_outputs": len(tower.plan.outputs),
            "plan": tower.plan.to_json(),
            "precision": self.precision,
        }
        node = graph.add(_OP, [*inputs, *weights], name="dense_tower", attrs=attrs)
        for port, (output, target) in enumerate(zip(edges.wanted, edges.targets, strict=True)):
            given = node.output(port)
            if target is not None:
                given = add_reshape(graph, given, np.float32, target, f"{output.node}/shape")
            renamed[output] = given


class _Edges:
    """The inputs and outputs of a tower, with their shapes.

    Attributes
    ----------
    widths : dict of Output to int
        Elements of a row of each input.
    turned : set of Output
        Inputs that must be reshaped to a matrix, since their rows have several dimensions or none.
    targets : list
        For each wanted output, the shape to which the op's result is reshaped, or None if it has that shape already.
    """

    def __init__(self, site: Site, region: list[Piece], wanted: list[Output]) -> None:
        self.site, self.wanted = site, wanted
        self.widths = outside_inputs(region)
        self.turned = {source for source, width in self.widths.items() if not takes_as_is(site, source, width)}
        lead = leading(site, self.widths)
        widths = {piece.output: piece.width for piece in region}
        self.targets: list[list[int] | None] = []
        self.misfits: list[Output] = []
        for output in wanted:
            sizes = site.shapes.of(output)
            target = None if fits(sizes, lead, widths[output]) else shape_of_result(sizes)
            self.targets.append(target)
            if target is None and not fits(sizes, lead, widths[output]):
                self.misfits.append(output)

    @property
    def reshapes(self) -> int:
        return len(self.turned) + sum(target is not None for target in self.targets)


def _find_regions(site: Site) -> list[_Region]:
    """Find regions that need few reshapes and whose outputs can all keep their shapes."""
    pieces = find_pieces(site)
    while True:
        regions = Regions(site, pieces)
        regions.join_neighbors()
        regions.join_siblings()
        found = regions.found()
        used = [(region, wanted) for region, wanted in zip(found, wanted_outputs(site, found), strict=True) if wanted]
        misfits = [misfit for region, wanted in used for misfit in _Edges(site, region, wanted).misfits]
        for output in misfits:
            if site.pieces.pop(output).kind == "dense":
                site.refused[output.node] = (
                    f"shape of '{output.node}' is {site.text(output)}, expected one size that is not known"
                )
        views = [] if misfits else [view for region, wanted in used for view in _costly_views(site, region, wanted)]
        for view in views:
            del site.pieces[view]
        if not misfits and not views:
            return used
        pieces = useful(site)


def _costly_views(site: Site, region: list[Piece], wanted: list[Output]) -> list[Output]:
    """Return the reshapes at the beginning of a region, if the region needs fewer reshapes without them."""
    inside = {piece.output for piece in region}
    views = [piece for piece in region if piece.kind == "view" and piece.inputs[0] not in inside]
    rest = [piece for piece in region if piece not in views]
    gone = {piece.output for piece in views}
    if not views or gone & set(wanted):
        return []
    with_views, without = (_Edges(site, pieces, wanted) for pieces in (region, rest))
    fewer = without.reshapes + len(views) < with_views.reshapes and not without.misfits
    return list(gone) if fewer else []


def _replace(model: Model, region: list[Piece], wanted: list[Output], renamed: dict[Output, Output]) -> None:
    """Connect users to the outputs of the op, and remove the nodes that only the old nodes needed."""
    graph, roots = model.graph, model.outputs()
    for output in wanted:
        graph.replace(output, renamed[output])
    for output in wanted:
        if output.node in roots:
            node = graph[output.node]
            before = [*(source.node for source in node.inputs), *node.controls]
            node.op, node.attrs = "Identity", {"T": attr_value(np.float32)}
            graph.set_inputs(node, [renamed[output]], [])
            sweep(model, before, _why(renamed[output]), give_way=True)
    for piece in reversed(region):
        sweep(model, [piece.output.node], _why(renamed[wanted[0]]), give_way=True)


def _why(tower: Output) -> str:
    return f"computed by '{tower.node}'"
