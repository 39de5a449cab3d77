# SPDX-License-Identifier: Apache-2.0
"""Test that random graphs pass through all passes without a traceback, and keep their scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.graph.op_library import load_library
from graph_tools.model import Model
from graph_tools.options import CutOptions, FuseOptions
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.passes.fuse import fusing_passes
from graph_tools.readers import read_model
from graph_tools.verbs.cut import rewrite
from graph_tools.writer import write_saved_model
from helpers.graph_tools.pass_checks import all_answers
from helpers.models.idiom_models import KEY, export_graph
from helpers.system.programs import LIBRARY

DIM, LENGTH, ROWS, NODES = 4, 3, 11, 26


class Growing:
    """A graph of lookups, numbers and histories that grows by a random node at a time, scalars among them."""

    def __init__(self, v1: Any, seed: int) -> None:
        self.v1, self.random = v1, np.random.default_rng(seed)
        self.inputs = {
            "user": v1.placeholder(v1.int64, [None], name="user"),
            "item": v1.placeholder(v1.int64, [None], name="item"),
            "history": v1.placeholder(v1.int64, [None, LENGTH if seed % 2 else None], name="history"),
            "lengths": v1.placeholder(v1.int64, [None], name="lengths"),
            "x": v1.placeholder(v1.float32, [None, DIM], name="x"),
        }
        table = self.weight(ROWS, DIM)
        rows = {name: v1.gather(table, self.inputs[name]) for name in ("user", "item", "history")}
        self.history = rows["history"]
        self.tensors: list[Any] = [self.inputs["x"], *rows.values()]

    def weight(self, *shape: int) -> Any:
        """Make a variable, or a constant."""
        value = self.random.uniform(-0.5, 0.5, shape).astype(np.float32)
        if self.random.random() < 0.5:
            return self.v1.constant(value)
        return self.v1.get_variable(f"w{len(self.v1.global_variables())}", initializer=value)

    def pick(self) -> Any:
        """Choose a tensor, rather a late one."""
        return self.tensors[-1 - min(int(self.random.exponential(3.0)), len(self.tensors) - 1)]

    def grow(self) -> None:
        """Add a node, or a few; what TensorFlow refuses while the graph is made is left out."""
        makers = [self.elementwise, self.reduced, self.dense, self.joined, self.crossed, self.reshaped, self.pooled]
        try:
            made = makers[self.random.integers(len(makers))](self.pick(), self.pick())
        except ValueError:
            return
        if made.shape.rank is not None and made.shape.rank <= 4:
            self.tensors.append(self.v1.clip_by_value(made, -4.0, 4.0) if self.random.random() < 0.3 else made)

    def choose(self, *makers: Any) -> Any:
        return makers[self.random.integers(len(makers))]()

    def elementwise(self, x: Any, y: Any) -> Any:
        v1 = self.v1
        size = v1.cast(v1.shape(x)[self.random.integers(x.shape.rank)] if x.shape.rank else v1.size(x), v1.float32)
        return self.choose(
            lambda: x + y,
            lambda: x * y,
            lambda: x - y,
            lambda: v1.maximum(x, 0.25),
            lambda: 0.5 * x,
            lambda: x / (1.0 + size),
            lambda: size * 2.0 - 1.0,
            lambda: v1.where_v2(x > 0, x, 0.5 * x),
            lambda: v1.tanh(x),
            lambda: v1.nn.relu(x),
            lambda: v1.square(x),
            lambda: v1.sigmoid(x) * y,
            lambda: v1.nn.softmax(x),
            lambda: v1.add_n([x, x, v1.identity(x)]),
            lambda: x + self.weight(int(x.shape[-1] or 1) if x.shape.rank else 1),
            lambda: x * self.weight(),
        )

    def reduced(self, x: Any, y: Any) -> Any:
        v1 = self.v1
        reduce = (v1.reduce_sum, v1.reduce_mean, v1.reduce_max)[self.random.integers(3)]
        axis = None if not x.shape.rank or self.random.random() < 0.1 else int(self.random.integers(x.shape.rank))
        if axis == 0 and self.random.random() < 0.7:
            axis = x.shape.rank - 1
        return reduce(x, axis, keepdims=bool(self.random.integers(2)))

    def dense(self, x: Any, y: Any) -> Any:
        v1, width = self.v1, int(x.shape[-1] or 0) if x.shape.rank else 0
        units = int(self.random.choice([1, DIM, 2 * DIM]))
        if not width:
            raise ValueError("no width")
        product = v1.matmul(x, self.weight(width, units)) if x.shape.rank == 2 else v1.tensordot(
            x, self.weight(width, units), axes=(-1, 0)
        )  # fmt: skip
        return self.choose(
            lambda: product,
            lambda: v1.nn.bias_add(product, self.weight(units)),
            lambda: v1.nn.relu(product + self.weight(units)),
            lambda: v1.matmul(x, y, transpose_b=True),
            lambda: v1.matmul(x, y),
        )

    def joined(self, x: Any, y: Any) -> Any:
        v1 = self.v1
        return self.choose(
            lambda: v1.concat([x, y, x], -1),
            lambda: v1.concat([x, y], 1),
            lambda: v1.stack([x, y], 1),
            lambda: v1.split(x, 2, -1)[1],
            lambda: v1.unstack(x, axis=1)[0],
        )

    def crossed(self, x: Any, y: Any) -> Any:
        v1, width = self.v1, int(x.shape[-1] or 0) if x.shape.rank else 0
        if not width:
            raise ValueError("no width")
        fields = v1.reshape(x, [-1, 2, width // 2]) if x.shape.rank == 2 and not width % 2 else x
        squares = lambda: v1.square(v1.reduce_sum(fields, 1)) - v1.reduce_sum(v1.square(fields), 1)  # noqa: E731
        return self.choose(
            lambda: x * (v1.matmul(x, self.weight(width, width)) + self.weight(width)) + x,
            lambda: x * v1.matmul(y, self.weight(width, 1)) + self.weight(width) + y,
            lambda: 0.5 * squares(),
            lambda: 0.5 * v1.reduce_sum(squares(), -1, keepdims=True),
            lambda: v1.matmul(fields, fields, transpose_b=True),
            lambda: v1.reduce_sum(fields[:, :1] * fields[:, 1:], -1),
        )

    def reshaped(self, x: Any, y: Any) -> Any:
        v1 = self.v1
        return self.choose(
            lambda: v1.expand_dims(x, int(self.random.integers(-1, x.shape.rank + 1))),
            lambda: v1.squeeze(x, 1),
            lambda: v1.squeeze(x),
            lambda: v1.reshape(x, [-1, DIM]),
            lambda: v1.reshape(x, [v1.shape(x)[0], -1]),
            lambda: v1.transpose(x),
            lambda: v1.tile(x, [1, 2] if x.shape.rank == 2 else [1, v1.shape(y)[1], 1]),
            lambda: x[:, :1],
            lambda: x[:, -1],
            lambda: x[..., None],
        )

    def pooled(self, x: Any, y: Any) -> Any:
        v1, keys = self.v1, x if x.shape.rank == 3 else self.history
        mask = self.choose(
            lambda: v1.cast(v1.not_equal(self.inputs["history"], 0), v1.float32)[..., None],
            lambda: v1.sequence_mask(self.inputs["lengths"], LENGTH, v1.float32)[..., None],
            lambda: v1.sequence_mask(self.inputs["lengths"], v1.shape(keys)[1], v1.float32)[..., None],
        )
        total, count = v1.reduce_sum(keys * mask, 1), v1.reduce_sum(mask, 1)
        query = x[:, None, :DIM] if x.shape.rank == 2 else x[:, :1]
        return self.choose(
            lambda: total,
            lambda: total / (count + 1e-8),
            lambda: total / v1.maximum(count, 1.0),
            lambda: v1.reduce_max(keys - (1 - mask) * 1e9, 1),
            lambda: v1.reduce_sum(v1.nn.softmax(v1.reduce_sum(query * keys, 2, keepdims=True), 1) * keys, 1),
            lambda: v1.matmul(
                v1.nn.softmax(v1.matmul(query, keys, transpose_b=True) - (1 - mask[:, None, :, 0])), keys
            ),
        )


def exported(path: Path, seed: int) -> Path:
    """Export a random graph."""

    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        graph = Growing(v1, seed)
        for _ in range(NODES):
            graph.grow()
        return graph.inputs, {f"y{i}": v1.identity(tensor, name=f"y{i}") for i, tensor in enumerate(graph.tensors[-4:])}

    return export_graph(path, build)


def fused(source: Path, options: FuseOptions) -> Model:
    """Cut and fuse a model, and check that all passes may run again."""
    model = read_model(source)
    rewrite(model, CutOptions(keep_graph_names=True))
    for _ in range(2):
        for pass_ in fusing_passes(options):
            pass_.apply(model)
    PruneUnreachable().apply(model)
    return model


def feeds(rows: int) -> dict[str, np.ndarray]:
    """Make a request whose rows have the same user."""
    random = np.random.default_rng(rows)
    return {
        "user": np.full(rows, 3),
        "item": random.integers(0, ROWS, rows),
        "history": np.tile(random.integers(0, ROWS, (1, LENGTH)), (rows, 1)),
        "lengths": random.integers(0, LENGTH + 1, rows),
        "x": random.normal(size=(rows, DIM)).astype(np.float32),
    }


@pytest.mark.parametrize("user", [(), ("user", "history")], ids=["whole", "split"])
@pytest.mark.parametrize("seed", range(8))
def test_random_graphs(tmp_path: Path, seed: int, user: tuple[str, ...]) -> None:
    load_library(LIBRARY)
    source = exported(tmp_path / "source", seed)
    write_saved_model(fused(source, FuseOptions("fp32", (), user, None)), tmp_path / "fused")
    for feed in (feeds(1), feeds(5)):
        try:
            (wanted,) = all_answers(source, [feed], KEY)
        except tf.errors.InvalidArgumentError:  # sizes that TensorFlow sees with the request only
            continue
        (found,) = all_answers(tmp_path / "fused", [feed], KEY)
        for key, value in wanted.items():
            assert found[key].shape == value.shape
            np.testing.assert_allclose(found[key], value, rtol=2e-4, atol=2e-4, err_msg=key)
