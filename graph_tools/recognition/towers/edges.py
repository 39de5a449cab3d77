# SPDX-License-Identifier: Apache-2.0
"""The inputs and outputs of a tower, and their shapes."""

from __future__ import annotations

import numpy as np

from graph_tools.analysis.symbolic_shapes import Size, Sizes, product
from graph_tools.graph import Output
from graph_tools.recognition.towers.pieces import Piece, Site, columns
from graph_tools.rewriting.add_nodes import add_reshape


def outside_inputs(region: list[Piece]) -> dict[Output, int]:
    """Return the inputs of a region from outside, with the number of elements of a row."""
    inside = {piece.output for piece in region}
    return {
        source: width
        for piece in region
        for source, width in zip(piece.inputs, piece.widths, strict=True)
        if source not in inside
    }


def wanted_outputs(site: Site, regions: list[list[Piece]]) -> list[list[Output]]:
    """Return the outputs of each region that are used outside of it once all regions are ops."""
    graph, roots = site.graph, site.model.roots()
    owner = {piece.output.node: i for i, region in enumerate(regions) for piece in region}
    wanted: set[str] = set()
    seen: set[str] = set()
    entered: set[int] = set()
    waiting = [node.name for node in graph if node.name in roots or not graph.users(node.name)]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        i = owner.get(name)
        if i is None:
            node = graph[name]
            waiting += [*(source.node for source in node.inputs), *node.controls]
            continue
        wanted.add(name)
        if i not in entered:
            entered.add(i)
            waiting += [outside_source.node for outside_source in outside_inputs(regions[i])]
    return [[piece.output for piece in region if piece.output.node in wanted] for region in regions]


def leading(site: Site, inputs: dict[Output, int]) -> Sizes:
    """Return the leading dimensions of an op's result: those of the input with the most, if it has all rows."""
    found: Sizes = ()
    for output, width in inputs.items():
        sizes = input_sizes(site, output, width)[:-1]
        if product(sizes) != Size(1) and len(sizes) > len(found):
            found = sizes
    return found or (Size(1),)


def input_sizes(site: Site, output: Output, width: int) -> Sizes:
    """Return the sizes of an input of an op: as it is, or as a matrix of its rows."""
    sizes = site.shapes.of(output) or ()
    count = columns(sizes, width)
    if count == 1:
        return sizes
    rows = product(sizes[: len(sizes) - (count or 0)])
    return (rows, Size(width))


def takes_as_is(site: Site, output: Output, width: int) -> bool:
    """Return whether the last dimension of an input is a row."""
    return columns(site.shapes.of(output), width) == 1


def fits(sizes: Sizes | None, lead: Sizes, width: int) -> bool:
    """Return whether an output has the sizes of an op's result.

    The number of rows is the same, so all sizes are equal if all but one are equal.
    """
    if sizes is None or len(sizes) != len(lead) + 1 or sizes[-1] != Size(width):
        return False
    different = [(found, expected) for found, expected in zip(sizes[:-1], lead, strict=True) if found != expected]
    return not different or (len(different) == 1 and all(size.known is None for size in different[0]))


def shape_of_result(sizes: Sizes | None) -> list[int] | None:
    """Return the target of a reshape to some sizes, or None if more than one of them is not known."""
    if sizes is None:
        return None
    target = [-1 if size.known is None else size.known for size in sizes]
    return target if target.count(-1) <= 1 else None


def add_matrix(site: Site, output: Output, width: int) -> Output:
    """Add a reshape of an input to a matrix of its rows."""
    return add_reshape(site.graph, output, np.float32, [-1, width], f"{output.node}/rows")
