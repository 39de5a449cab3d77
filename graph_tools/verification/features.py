# SPDX-License-Identifier: Apache-2.0
"""List the features that a node reads from `tf.Example` messages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from graph_tools.graph import Graph, Node, attribute, constant

PARSERS = {"ParseExample", "ParseExampleV2"}


@dataclass(frozen=True)
class Feature:
    """A feature of an example.

    Attributes
    ----------
    name : str
    dtype : TensorFlow dtype
    size : int or None
        Number of values; None: any number.
    """

    name: str
    dtype: Any
    size: int | None


def parsed_features(graph: Graph, node: Node) -> list[Feature]:
    """Return the features that a parser reads, without those whose names are computed."""
    dense_types, sparse_types = attribute(node, "Tdense", []), attribute(node, "sparse_types", [])
    if node.op == "ParseExample":
        keys = [constant(graph, source) for source in node.inputs[2 : 2 + len(sparse_types) + len(dense_types)]]
        names = [None if key is None else key.item() for key in keys]
        sparse, dense, ragged = names[: len(sparse_types)], names[len(sparse_types) :], []
    else:
        lists = [constant(graph, tensor) for tensor in node.inputs[2:5]]
        sparse, dense, ragged = ([] if values is None else values.ravel().tolist() for values in lists)
    found: list[tuple[Any, Any, int | None]] = [*zip(sparse, sparse_types, [None] * len(sparse), strict=False)]
    found += zip(ragged, attribute(node, "ragged_value_types", []), [None] * len(ragged), strict=False)
    shapes = [_size(shape) for shape in attribute(node, "dense_shapes", [])]
    found += zip(dense, dense_types, shapes, strict=False)
    return [Feature(name.decode(), dtype, size) for name, dtype, size in found if name is not None]


def _size(shape: Any) -> int | None:
    sizes = [size.size for size in shape.dim]
    return None if shape.unknown_rank or any(size < 0 for size in sizes) else math.prod(sizes)
