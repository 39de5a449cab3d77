# SPDX-License-Identifier: Apache-2.0
"""A small tower to fuse, and a pass that fuses its layers one by one, which can be made to do so wrongly."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.fused import TowerPlan
from graph_tools.fused.tower_plan import Activation, Dense
from graph_tools.graph import Node, Output
from graph_tools.model import Model
from graph_tools.op_library import load_library
from graph_tools.passes import fusing
from graph_tools.passes.base import Pass

FEATURES = 24


def build_tower(path: Path, *, spread: float = 1.0) -> Path:
    """x float32 [batch, 24], name string [batch] -> score [batch, 1], rank int64 [batch]: two layers, and an argmax.

    With a small `spread` scores lie so close that rounded weights change their order.
    """
    import tensorflow as tf

    random = np.random.default_rng(5)
    module = tf.Module()
    module.w = [tf.Variable(random.normal(size=size).astype(np.float32)) for size in ((FEATURES, 32), (32, 1))]
    module.b = [tf.Variable(random.normal(size=size).astype(np.float32)) for size in (32, 1)]

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, FEATURES], tf.float32, name="x"),
            tf.TensorSpec([None], tf.string, name="name"),
        ]
    )
    def serve(x: Any, name: Any) -> dict[str, Any]:
        hidden = tf.nn.relu(tf.nn.bias_add(tf.matmul(1.0 + spread * tf.sin(x), module.w[0]), module.b[0]))
        score = tf.nn.bias_add(tf.matmul(hidden, module.w[1]), module.b[1])
        return {"score": score, "bucket": tf.strings.to_hash_bucket_fast(name, 7)}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path


class FuseLayers(Pass):
    """Make a tower of each dense layer.

    Before: `MatMul → BiasAdd → Relu`.
    After: `RecDenseTower`.

    Parameters
    ----------
    wrong : bool
        Forget the activation.
    """

    name = "fuse_layers"

    def __init__(self, wrong: bool = False) -> None:
        self.wrong = wrong

    def candidates(self, model: Model) -> Iterable[str]:
        return [node.name for node in model.graph.of("BiasAdd")]

    def check(self, model: Model, site: str) -> str | None:
        product = model.graph.input(model.graph[site], 0)
        if product.op != "MatMul":
            return ""
        wide = model.graph.input(product, 1).op in {"Const", "ReadVariableOp"}
        return None if wide else f"its weights are of {model.graph.input(product, 1).op}, expected known ones"

    def rewrite(self, model: Model, site: str) -> None:
        graph = model.graph
        last = graph[site]
        product = graph.input(last, 0)
        inputs: list[Output] = [product.inputs[0], product.inputs[1], last.inputs[1]]
        users: list[Node] = graph.users(site)
        activation = None
        if len(users) == 1 and users[0].op == "Relu":
            last, activation = users[0], Activation("relu")
        plan = TowerPlan((Dense(("x0",), (0,), 1, activation=None if self.wrong else activation),), ("h0",))
        attrs = {"num_inputs": 1, "num_weights": 2, "num_outputs": 1, "plan": plan.to_json(), "precision": "auto"}
        graph.become(last, "RecDenseTower", inputs, attrs)


def use_passes(monkeypatch: pytest.MonkeyPatch, *passes: Pass) -> None:
    """Let `fuse` run these passes only."""
    monkeypatch.setattr(fusing, "PASSES", tuple((type(one), lambda _, one=one: one) for one in passes))


def library() -> Path:
    """The library that has the kernels; what it lacks fails the test."""
    return load_library()
