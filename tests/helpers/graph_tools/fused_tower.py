# SPDX-License-Identifier: Apache-2.0
"""Provide a small tower to fuse, and a pass that fuses it correctly or, on request, wrongly."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.graph import Node, Output
from graph_tools.model import Model
from graph_tools.passes import fuse as fusing
from graph_tools.plans import TowerPlan
from graph_tools.plans.tower_plan import Activation, Dense
from graph_tools.rewriting.outcome import Found, Outcome, Refused
from graph_tools.rewriting.protocol import Pass, SitePass

FEATURES = 24
HALF = 16


def build_tower(path: Path, *, cancelling: bool = False) -> Path:
    """x float32 [batch, 24], name string [batch] -> score [batch, 1] of two layers, bucket int64 [batch].

    With `cancelling`, a score is the small difference of numbers; rounded weights make it wrong.
    """
    import tensorflow as tf

    random = np.random.default_rng(5)
    hidden = random.normal(size=(FEATURES, 2 * HALF)).astype(np.float32)
    last = random.normal(size=(2 * HALF, 1)).astype(np.float32)
    if cancelling:
        hidden[:, HALF:] = hidden[:, :HALF] * (1 + 1e-3 * random.normal(size=HALF))
        last[HALF:] = -last[:HALF]
    module = tf.Module()
    module.w = [tf.Variable(hidden), tf.Variable(last)]
    module.b = [tf.Variable(np.full(size, 0.1, np.float32)) for size in (2 * HALF, 1)]

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, FEATURES], tf.float32, name="x"),
            tf.TensorSpec([None], tf.string, name="name"),
        ]
    )
    def serve(x: Any, name: Any) -> dict[str, Any]:
        hidden = tf.nn.relu(tf.nn.bias_add(tf.matmul(tf.sin(x), module.w[0]), module.b[0]))
        score = tf.nn.bias_add(tf.matmul(hidden, module.w[1]), module.b[1])
        return {"score": score, "bucket": tf.strings.to_hash_bucket_fast(name, 7)}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path


class FuseLayers(SitePass[None]):
    """Make a tower of two dense layers.

    Before: `MatMul → BiasAdd → Relu → MatMul → BiasAdd`.
    After: `RecDenseTower`.

    Parameters
    ----------
        Omit the activation.
        Forget the activation.
    """

    name = "fuse_layers"

    def __init__(self, wrong: bool = False) -> None:
        self.wrong = wrong

    def candidates(self, model: Model) -> Iterable[str]:
        return [node.name for node in model.graph.of("BiasAdd")]

    def match(self, model: Model, site: str) -> Outcome[None]:
        found = _chain(model, site, ("MatMul", "Relu", "BiasAdd", "MatMul"))
        if found is None:
            return Refused("no layer before it, expected two")
        return Found(None)

    def rewrite(self, model: Model, site: str, found: None) -> None:
        second, _, bias, first = _chain(model, site, ("MatMul", "Relu", "BiasAdd", "MatMul")) or []
        last = model.graph[site]
        weights: list[Output] = [first.inputs[1], bias.inputs[1], second.inputs[1], last.inputs[1]]
        activation = None if self.wrong else Activation("relu")
        plan = TowerPlan((Dense(("x0",), (0,), 1, activation=activation), Dense(("h0",), (2,), 3)), ("h1",))
        plan.check(1, 4)
        attrs = {"num_inputs": 1, "num_weights": 4, "num_outputs": 1, "plan": plan.to_json(), "precision": "auto"}
        model.graph.become(last, "RecDenseTower", [first.inputs[0], *weights], attrs)


def _chain(model: Model, site: str, ops: Iterable[str]) -> list[Node] | None:
    """Return the nodes before a site as long as they have these ops; each is the first input of the next one."""
    found = [model.graph[site]]
    for op in ops:
        found.append(model.graph.input(found[-1], 0))
        if found[-1].op != op:
            return None
    return found[1:]


def use_passes(monkeypatch: pytest.MonkeyPatch, *passes: Pass) -> None:
    """Let `fuse` run these passes only."""
    monkeypatch.setattr(fusing, "PASSES", tuple((type(pass_), lambda _, pass_=pass_: pass_) for pass_ in passes))
