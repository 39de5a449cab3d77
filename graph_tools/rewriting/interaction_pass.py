# SPDX-License-Identifier: Apache-2.0
"""The base of the passes that fuse interactions and sequences."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from graph_tools.analysis.flat import Flat
from graph_tools.graph import Node, Output, skip
from graph_tools.model import Model
from graph_tools.rewriting.add_nodes import add_reshape
from graph_tools.rewriting.add_weights import add_weight
from graph_tools.rewriting.matcher import Match, Pattern
from graph_tools.rewriting.outcome import Found, Outcome
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.rewriting.replace import replace_output
from graph_tools.tensors import Array


@dataclass
class Fusion:
    """A node that replaces a subgraph.

    Attributes
    ----------
    root : Output
        The output that it replaces; the node's only output has the same elements.
    op : str
    inputs : list of Output or ndarray
        An array becomes a weight.
    attrs : dict of str to value
    shape : tuple of int or None
        The shape of the node's output, with None for the batch. The root may have another shape.
    keep_dims : tuple of int or None, optional
        The shape of the output with the attribute `keep_dims`, if the op has it.
    """

    root: Output
    op: str
    inputs: list[Output | Array]
    attrs: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int | None, ...] = ()
    keep_dims: tuple[int | None, ...] | None = None


class InteractionPass(Pass):
    """A pass that examines one node after the other; subclasses define `roots` and `match`."""

    @abstractmethod
    def roots(self, flat: Flat) -> Iterable[Node]:
        """Return the nodes at which a pattern may end."""

    @abstractmethod
    def match(self, flat: Flat, node: Node) -> Outcome[Fusion]:
        """Search for the pattern that ends at a node, and return the fusion that replaces the node's output."""

    def process(self, model: Model, result: PassResult) -> None:
        flat = Flat(model)
        for node in list(self.roots(flat)):
            if node.name in model.graph and not node.controls:
                self.handle(node.name, self.match(flat, node), partial(fuse, flat), result)

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the sites that the pass would still fuse."""
        flat = Flat(model)
        for node in list(self.roots(flat)):
            examined = not node.controls and node.name not in self.left_alone
            if examined and isinstance(self.match(flat, node), Found):
                yield node.name


class PatternPass(InteractionPass):
    """An interaction pass whose sites are those of one pattern; subclasses define `pattern` and `fusion`."""

    pattern: Pattern

    def roots(self, flat: Flat) -> Iterable[Node]:
        return self.pattern.sites(flat.graph)

    def match(self, flat: Flat, node: Node) -> Outcome[Fusion]:
        return self.pattern.match(flat, node.output()).then(lambda match: self.fusion(flat, node, match))

    @abstractmethod
    def fusion(self, flat: Flat, node: Node, match: Match) -> Outcome[Fusion]:
        """Return the fusion for a match at a node, or the reason why the node stays as it is."""


def fuse(flat: Flat, fusion: Fusion) -> None:
    """Replace the nodes that compute the root by one node, and also views of the root if the node has their shape."""
    model, graph = flat.model, flat.graph
    root = _last_view(flat, fusion)
    # For sizes of the root that TensorFlow does not know, use the sizes from the pattern.
    sizes = _with_known_sizes(flat.known(root), fusion) if root == fusion.root else flat.known(root)
    attrs = dict(fusion.attrs)
    given = fusion.shape
    if fusion.keep_dims is not None:
        attrs["keep_dims"] = not _fits(sizes, fusion.shape) and _fits(sizes, fusion.keep_dims)
        given = fusion.keep_dims if attrs["keep_dims"] else fusion.shape
    inputs = [
        source if isinstance(source, Output) else add_weight(model, f"{root.node}/weight_{i}", source)
        for i, source in enumerate(fusion.inputs)
    ]
    node = graph.add(fusion.op, inputs, name=f"{root.node}/{fusion.op}", attrs=attrs)
    new = node.output()
    if not _fits(sizes, given):
        target = [-1 if size is None else size for size in sizes]
        new = add_reshape(graph, new, np.float32, target, f"{root.node}/shape")
    replace_output(model, root, new, np.float32, f"computed by '{node.name}'")


def reshapable(flat: Flat, root: Output) -> bool:
    """Return whether a node's result can be reshaped to the shape of a root."""
    sizes = flat.known(root)
    return bool(sizes) and sizes.count(None) <= 1


def _last_view(flat: Flat, fusion: Fusion) -> Output:
    """Return the last view of the root that has a shape of the node's output, or the root."""
    shapes = [shape for shape in (fusion.shape, fusion.keep_dims) if shape is not None]
    output = best = fusion.root
    while True:
        user = flat.only_user(output)
        if user is None or not flat.is_view(user) or not reshapable(flat, user.output()):
            return best
        output = user.output()
        if any(_fits(flat.known(output), shape) for shape in shapes):
            best = output


def _with_known_sizes(sizes: list[int | None], fusion: Fusion) -> list[int | None]:
    """Fill in unknown sizes after the first, if the node's output has as many dimensions."""
    if len(sizes) != len(fusion.shape):
        return sizes
    return [sizes[0], *(b if a is None else a for a, b in zip(sizes[1:], fusion.shape[1:], strict=True))]


def _fits(sizes: list[int | None], shape: tuple[int | None, ...]) -> bool:
    return len(sizes) == len(shape) and all(b is None or a == b for a, b in zip(sizes, shape, strict=True))


def as_matrix(flat: Flat, output: Output, width: int) -> Output:
    """Return a view [rows, width] of an output, or a new reshape if there is none."""
    for view in flat.views(output):
        sizes = flat.known(view)
        if len(sizes) == 2 and sizes[1] == width:
            return view
    return add_reshape(flat.graph, skip(flat.graph, output), np.float32, (-1, width), f"{output.node}/rows")


def fields_input(flat: Flat, fields: Output) -> tuple[Output, int]:
    """Return vectors [rows, fields, dim] as [rows, ...], and the attribute `dim`; 0 if the shape already gives dim.

    A reshape of the rows of a group of lookups is skipped.
    """
    fields = skip(flat.graph, fields)
    sizes = flat.known(fields)
    node = flat.direct(fields, "Reshape")
    if node is not None and None not in sizes[1:]:
        before = flat.known(node.inputs[0])
        if len(before) == 2 and before[1] == (sizes[1] or 0) * (sizes[2] or 0):
            return skip(flat.graph, node.inputs[0]), sizes[2] or 0
    return fields, 0


def joined(flat: Flat, parts: list[Output]) -> Output:
    """Return the parts, [rows, 1, dim] each, side by side: from an existing join, or from a new node."""
    graph = flat.graph
    first = {user.name for user in graph.users(parts[0].node)}
    for name in sorted(first):
        node = graph[name]
        if node.op != "ConcatV2" or node.controls or [skip(graph, source) for source in node.inputs[:-1]] != parts:
            continue
        if flat.shapes.numbers(node.inputs[-1]) in ([1], [2], [-1]):
            return node.output()
    if len(parts) == 1:
        return parts[0]
    axis = graph.add_const(np.array(1, np.int32), f"{parts[0].node}/axis")
    attrs = {"N": len(parts), "T": np.float32, "Tidx": np.int32}
    return graph.add("ConcatV2", [*parts, axis], name=f"{parts[0].node}/fields", attrs=attrs).output()
