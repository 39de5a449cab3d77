# SPDX-License-Identifier: Apache-2.0
"""Use the sparse tensor of a split string directly, instead of converting it to ragged and back."""

from __future__ import annotations

from collections.abc import Iterable

from graph_tools.analysis.sizes import Size, SizeFinder
from graph_tools.graph import (
    Node,
    Output,
    attribute,
    constant,
    constant_list,
    dtype_of,
    first_column,
    operand,
    skip,
    source,
)
from graph_tools.model import Model
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.protocol import SitePass
from graph_tools.rewriting.replace import replace_output

_WHY = "the string was split into this sparse tensor already"


class CollapseRaggedStrings(SitePass[Node]):
    """Replace the ragged tensor of split strings by the sparse tensor that the split returns.

    Before: `StringSplitV2 → StridedSlice, DenseBincount, Cumsum, ConcatV2 → RaggedTensorToSparse(splits, f(words))`, as
    `tf.strings.split(x).to_sparse()` builds it.
    After: indices and shape of `StringSplitV2`, and `f(words)`.

    Both tensors have the same indices, values and shape, so the result is exact.
    """

    name = "collapse_ragged_strings"

    def candidates(self, model: Model) -> Iterable[str]:
        return [node.name for node in model.graph.of("RaggedTensorToSparse")]

    def match(self, model: Model, site: str) -> Outcome[Node]:
        graph, sizes = model.graph, SizeFinder(model)
        node = graph[site]
        if attribute(node, "RAGGED_RANK") != 1:
            return Refused(f"{attribute(node, 'RAGGED_RANK')} ragged axes, expected one")
        split = _split_of(model, node.inputs[0], sizes)
        if not isinstance(split, Found):
            return split
        if not sizes.same(node.inputs[1], split.value.output(1)):
            return Refused(f"'{node.inputs[1]}' is not known to hold one value for each word of '{split.value.name}'")
        return Refused("it is an output of the model") if site in model.outputs() else split

    def rewrite(self, model: Model, site: str, found: Node) -> None:
        graph = model.graph
        node = graph[site]
        instead = {0: found.output(0), 1: node.inputs[1], 2: found.output(2)}
        for port, output in instead.items():
            if site in graph:
                replace_output(model, node.output(port), output, dtype_of(graph, output), _WHY)


def _split_of(model: Model, splits: Output, sizes: SizeFinder) -> Outcome[Node]:
    """Return the StringSplitV2 whose words are divided into rows at `splits`, if these come from counts."""
    graph = model.graph
    joined = source(graph, splits, "ConcatV2")
    if joined is None or len(joined.inputs) != 3 or constant_list(graph, joined.inputs[0]) != [0]:
        return NoMatch()
    summed = source(graph, joined.inputs[1], "Cumsum")
    if summed is None or attribute(summed, "exclusive", False) or attribute(summed, "reverse", False):
        return NoMatch()
    counts = source(graph, summed.inputs[0], "DenseBincount")
    if counts is None or attribute(counts, "binary_output", False):
        return NoMatch()
    weights = constant(graph, counts.inputs[2])
    if weights is None or weights.size:
        return Refused(f"'{counts.name}' has weights, expected a count of words")
    counted = source(graph, counts.inputs[0], "Reshape")
    flat = counted is not None and sizes.is_same_shape(counted)
    matrix = first_column(graph, counted.inputs[0] if counted is not None and flat else counts.inputs[0])
    split = source(graph, matrix, "StringSplitV2") if matrix is not None else None
    if matrix is None or split is None or skip(graph, matrix) != split.output(0):
        return Refused(f"'{counts.name}' does not count the words of a split string")
    shape = sizes.vector(split.output(2))
    if shape is None or not _is_count(model, counts.inputs[1], shape[0], sizes):
        return Refused(f"'{counts.inputs[1]}' is not known to be the number of strings that '{split.name}' splits")
    return Found(split)


def _is_count(model: Model, output: Output, size: Size, sizes: SizeFinder) -> bool:
    """Return whether a number is `size`, directly or as `min(size, max(size, …))`."""
    if sizes.vector(output) == (size,):
        return True
    smaller = source(model.graph, output, "Minimum")
    if smaller is None:
        return False
    for output, bound in (smaller.inputs, reversed(smaller.inputs)):
        if sizes.vector(output) == (size,):
            larger = source(model.graph, bound, "Maximum")
            if larger is not None and any(sizes.vector(operand(model.graph, larger, i)) == (size,) for i in (0, 1)):
                return True
    return False
