# SPDX-License-Identifier: Apache-2.0
"""Weights of a rewritten model are formulas of the source's variables, for any later values of these."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.graph import attribute
from graph_tools.live import UntracedError, read_weight
from graph_tools.model import Model
from graph_tools.readers import read_model
from graph_tools.rewriting.protocol import Pass, PassResult, run_passes
from helpers.graph_tools.live_checks import check_follows, followed, fused
from helpers.graph_tools.pass_checks import from_function, from_graph, x_of
from helpers.graph_tools.stock_answers import requests_for
from helpers.models.idiom_models import KEY, export_function

WIDTH = 8


def variable(v1: Any, name: str, *shape: int, low: float = -1.0) -> Any:
    random = np.random.default_rng(len(name) + sum(shape))
    return v1.get_variable(name, initializer=random.uniform(low, 1.5, shape).astype(np.float32))


def zeros(v1: Any, name: str, *shape: int) -> Any:
    return v1.get_variable(name, initializer=np.zeros(shape, np.float32))


def ones(v1: Any, name: str, *shape: int) -> Any:
    return v1.get_variable(name, initializer=np.ones(shape, np.float32))


def dense(v1: Any, x: Any, name: str) -> Any:
    kernel = variable(v1, f"{name}/kernel", int(x.shape[-1]), WIDTH)
    return v1.nn.bias_add(v1.matmul(x, kernel), zeros(v1, f"{name}/bias", WIDTH))


def untrained_norm(v1: Any, x: Any, name: str = "bn") -> Any:
    moments = zeros(v1, f"{name}/mean", WIDTH), ones(v1, f"{name}/variance", WIDTH)
    return v1.nn.batch_normalization(
        x, *moments, zeros(v1, f"{name}/beta", WIDTH), ones(v1, f"{name}/gamma", WIDTH), 1e-3
    )


def dice(v1: Any, x: Any) -> Any:
    """Apply Dice as DeepCTR initializes it: alpha is zero."""
    moments = zeros(v1, "dice/mean", WIDTH), ones(v1, "dice/variance", WIDTH)
    p = v1.sigmoid(v1.nn.batch_normalization(x, *moments, None, None, 1e-9))
    return zeros(v1, "dice/alpha", WIDTH) * (1.0 - p) * x + p * x


def prelu(v1: Any, x: Any) -> Any:
    return v1.nn.relu(x) - zeros(v1, "alpha", WIDTH) * v1.nn.relu(-x)


def leaky_by_variable(v1: Any, x: Any) -> Any:
    """Apply a slope that is one number of a variable."""
    return v1.nn.relu(x) - variable(v1, "slope", 1, low=0.1) * v1.nn.relu(-x)


def layer_norm(v1: Any, x: Any) -> Any:
    mean, variance = v1.nn.moments(x, [-1], keepdims=True)
    inverse = v1.rsqrt(variance + 1e-3) * ones(v1, "gamma", WIDTH)
    return x * inverse + (zeros(v1, "beta", WIDTH) - mean * inverse)


def cross(v1: Any, x: Any) -> Any:
    return x * v1.nn.bias_add(v1.matmul(x, variable(v1, "cross/kernel", WIDTH, WIDTH)), zeros(v1, "cross/b", WIDTH)) + x


def scaled(v1: Any, x: Any) -> Any:
    """Divide by a variable and subtract one, before layers that share no weights."""
    return dense(v1, x / variable(v1, "divisor", WIDTH, low=0.5) - zeros(v1, "shift", WIDTH), "after")


IDIOMS: dict[str, tuple[Callable[[Any, Any], Any], set[str]]] = {
    "norm": (untrained_norm, {"dense_"}),
    "norm before a layer": (
        lambda v1, x: dense(v1, v1.nn.relu(untrained_norm(v1, v1.nn.relu(x))), "two"),
        {"dense relu"},
    ),
    "dice": (dice, {"dense dice"}),
    "prelu": (prelu, {"dense prelu"}),
    "slope": (leaky_by_variable, {"dense prelu"}),
    "layer norm": (layer_norm, {"layer_norm"}),
    "cross": (cross, {"RecCrossNetwork"}),
    "scale": (scaled, set()),
}


@pytest.mark.parametrize("idiom", IDIOMS)
def test_weights_of_idioms_follow_variables(idiom: str, tmp_path: Path) -> None:
    build, expected = IDIOMS[idiom]
    source = from_graph(tmp_path, lambda v1, x: dense(v1, build(v1, dense(v1, x, "one")), "last"), 5)
    model, _ = check_follows(source, x_of(5))
    ops = {node.op for node in model.graph}
    assert ops <= {"Placeholder", "VarHandleOp", "ReadVariableOp", "Identity", "RecDenseTower", "RecCrossNetwork"}
    plans = b"".join(attribute(node, "plan") for node in model.graph.of("RecDenseTower")).decode()
    for name in expected - {"dense_", "RecCrossNetwork"}:
        assert f'"{name.split()[-1]}"' in plans
    assert ("RecCrossNetwork" in expected) == ("RecCrossNetwork" in ops)


def test_deepctr_models_follow_all_variables(deepctr_model: Path, tmp_path: Path) -> None:
    feeds = requests_for(deepctr_model)["serving_default"]
    model, formulas = check_follows(deepctr_model, feeds, signature="serving_default", out=tmp_path / "out")
    assert model.live is not None
    tables = {spec.origin.source.name for spec in model.embedding_tables.values() if spec.origin is not None}
    assert len(tables) == len(model.embedding_tables)
    assert not tables & set(model.live.sources_of(formulas.values()))
    plain = read_model(deepctr_model)
    fused(plain)
    assert [node.op for node in model.graph if node.op.startswith("Rec")] == [
        node.op for node in plain.graph if node.op.startswith("Rec")
    ]
    assert any(formula is not None for formulas in model.live.of_plans.values() for formula in formulas)


def test_equal_variables_do_not_merge(tmp_path: Path) -> None:
    import tensorflow as tf

    held = {name: tf.Variable(np.full((5, 4), 0.5, np.float32)) for name in ("first", "second")}
    source = from_function(
        tmp_path, lambda x: tf.matmul(x, held["first"]) * tf.sigmoid(tf.matmul(x, held["second"])), 5, **held
    )
    model, formulas = check_follows(source, x_of(5))
    assert model.live is not None
    assert len(model.live.sources_of(formulas.values())) == 2


def test_weights_of_the_user_and_of_items_follow_one_variable(tmp_path: Path) -> None:
    import tensorflow as tf

    kernel = tf.Variable(np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32))
    specs = [tf.TensorSpec([None, 3], tf.float32, name="u"), tf.TensorSpec([None, 4], tf.float32, name="i")]
    source = export_function(
        tmp_path / "source",
        lambda u, i: {"y": tf.nn.relu(tf.matmul(tf.concat([u, i], 1), kernel))},
        specs,
        kernel=kernel,
    )

    rewrite = partial(fused, user_inputs=("u",))
    model, formulas = check_follows(source, requests_for(source)[KEY], rewrite)
    assert model.graph.of("RecDenseTower")
    assert len(formulas) == 2
    assert model.live is not None
    assert len(model.live.sources_of(formulas.values())) == 1


class _Peek(Pass):
    """Read a weight in a way that no formula has."""

    name = "peek"

    def process(self, model: Model, result: PassResult) -> None:
        for tensor in model.variables.values():
            np.cumsum(read_weight(tensor))

    def ensures(self, model: Model) -> Any:
        return iter(())


def test_pass_without_formulas_is_refused_with_its_name(tmp_path: Path) -> None:
    source = from_graph(tmp_path, lambda v1, x: dense(v1, x, "one"), 5)
    with pytest.raises(UntracedError, match=r"pass peek: .*variable 'one/.*numpy\.cumsum"):
        followed(read_model(source), lambda model: run_passes(model, [_Peek()]))
