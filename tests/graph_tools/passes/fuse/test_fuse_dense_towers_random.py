# SPDX-License-Identifier: Apache-2.0
"""Graphs that nobody designed keep their scores when their dense layers become towers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.graph_tools.pass_checks import floats
from helpers.graph_tools.tower_checks import towers
from helpers.models.idiom_models import export_graph

WIDTHS = (1, 3, 8)


class Growing:
    """A graph that grows by a random node at a time; all tensors are [rows, width] or [rows, 2, width]."""

    def __init__(self, v1: Any, seed: int) -> None:
        self.v1, self.random = v1, np.random.default_rng(seed)
        self.inputs = {f"x{i}": v1.placeholder(v1.float32, [None, 8], name=f"x{i}") for i in range(2)}
        self.deep = v1.placeholder(v1.float32, [None, 2, 8], name="deep")
        self.tensors: list[Any] = [*self.inputs.values(), self.deep]
        #: Tensors of equal shape with two rows for each of a request.
        self.flattened: set[str] = set()

    def pick(self) -> Any:
        """Choose a tensor, rather a late one."""
        return self.tensors[-1 - min(int(self.random.exponential(3.0)), len(self.tensors) - 1)]

    def vector(self, *shape: int) -> Any:
        return self.v1.constant(self.random.uniform(-1, 1, shape).astype(np.float32))

    def grow(self) -> None:
        """Add a node that takes tensors that are there."""
        x = self.pick()
        width = int(x.shape[-1])
        twice = x.name in self.flattened
        alike = [
            tensor
            for tensor in self.tensors
            if tensor.shape.as_list() == x.shape.as_list() and (tensor.name in self.flattened) == twice
        ]
        other = alike[self.random.integers(len(alike))]
        v1 = self.v1
        makers = [
            lambda: self.dense(x, int(self.random.choice(WIDTHS))),
            lambda: self.dense(x, int(self.random.choice(WIDTHS))),
            lambda: v1.nn.relu(self.dense(x, 8) + self.vector(8)),
            lambda: x + self.vector(width),
            lambda: x * self.vector(1, width),
            lambda: self.vector() - x,
            lambda: x + other,
            lambda: x - other,
            lambda: v1.tanh(x) * other,
            lambda: v1.add_n([x, other, x]),
            lambda: v1.concat([x, other], -1),
            lambda: v1.sigmoid(x),
            lambda: v1.nn.softmax(x),
            lambda: v1.tanh(x) * v1.sigmoid(v1.tanh(x)),
            lambda: v1.nn.relu(x) - self.vector(width) * v1.nn.relu(-x),
            lambda: v1.sort(x, axis=-1),
            lambda: x - v1.reduce_mean(x, 0, keepdims=True),
            lambda: v1.reshape(x, [-1, width]) if x.shape.rank == 3 else v1.expand_dims(x, 1),
            lambda: v1.squeeze(x, 1) if x.shape.rank == 3 and x.shape[1] == 1 else v1.identity(x),
        ]
        made = makers[self.random.integers(len(makers))]()
        made = v1.clip_by_value(made, -3.0, 3.0) if made.op.type == "Mul" else made
        self.tensors.append(made)
        if twice or (x.shape.rank == 3 and x.shape[1] == 2 and made.shape.rank == 2):
            self.flattened.add(made.name)

    def dense(self, x: Any, units: int) -> Any:
        scale = 1.0 / np.sqrt(float(x.shape[-1]))
        kernel = self.v1.constant((self.random.normal(size=(int(x.shape[-1]), units)) * scale).astype(np.float32))
        if x.shape.rank == 2:
            return self.v1.matmul(x, kernel)
        return self.v1.tensordot(x, kernel, axes=(-1, 0))


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs_keep_their_scores(tmp_path: Path, seed: int) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        graph = Growing(v1, seed)
        for _ in range(24):
            graph.grow()
        wanted = {f"y{i}": v1.identity(tensor, name=f"y{i}") for i, tensor in enumerate(graph.tensors[-3:])}
        return {**graph.inputs, "deep": graph.deep}, wanted

    feeds = [
        {"x0": floats(rows, 8), "x1": floats(rows, 8, seed=1), "deep": floats(rows, 2, 8, seed=2)} for rows in (1, 5)
    ]
    towers(export_graph(tmp_path / "source", build), feeds)
