# SPDX-License-Identifier: Apache-2.0
"""Plans of dense towers are written to JSON and read back, and wrong ones are refused."""

import json

import pytest

from graph_tools.errors import UnreadableError
from graph_tools.plans.tower_plan import (
    Activation,
    Add,
    Affine,
    Concat,
    Dense,
    Layer,
    LayerNorm,
    Mix,
    Multiply,
    TowerPlan,
)

# The example of docs/fused_ops.md.
DOCUMENTED = {
    "version": 1,
    "layers": [
        {"op": "dense", "inputs": ["x0"], "weights": [0], "bias": 1, "activation": {"kind": "relu"}},
        {
            "op": "dense",
            "inputs": ["h0"],
            "weights": [2],
            "bias": 3,
            "add": ["x1"],
            "activation": {"kind": "sigmoid"},
        },
    ],
    "outputs": ["h1"],
}


def test_documented_plan_is_read_and_written_alike() -> None:
    plan = TowerPlan.from_json(json.dumps(DOCUMENTED))
    plan.check(inputs=2, weights=4)
    assert json.loads(plan.to_json()) == DOCUMENTED
    assert plan.layers[0] == Dense(("x0",), (0,), 1, activation=Activation("relu"))


def test_every_layer_is_read_back_from_json() -> None:
    plan = TowerPlan(
        (
            Dense(("x0", "x1"), (0, 1), transpose=True, activation=Activation("leaky_relu", alpha=0.2)),
            Affine(("h0",), 2, 3, Activation("dice", weight=4, scale=2, shift=3)),
            Add(("h0", "h1"), Activation("prelu", weight=4)),
            Multiply(("h0", "h2")),
            Concat(("h3", "x0")),
            LayerNorm(("h4",), 1e-6, gamma=5),
            Mix(("x2", "h0", "h1")),
        ),
        ("h5", "h6"),
    )
    plan.check(inputs=3, weights=6)
    assert TowerPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[]", "version"),
        ('{"version":1,"layers":[{"op":"conv","inputs":[]}],"outputs":[]}', "conv"),
        ('{"version":1,"layers":[{"op":"add","inputs":["x0"],"weights":[1]}],"outputs":[]}', "'weights'"),
        ('{"version":1,"layers":[{"op":"layer_norm","inputs":["x0"]}],"outputs":[]}', "epsilon"),
        ('{"version":1,"layers":[{"op":"add","inputs":[0]}],"outputs":[]}', "type str"),
    ],
)
def test_bad_text_is_refused_by_name(text: str, found: str) -> None:
    with pytest.raises(UnreadableError, match=found):
        TowerPlan.from_json(text)


@pytest.mark.parametrize(
    ("layer", "found"),
    [
        (Dense(("x2",), (0,)), "'x2'"),
        (Dense(("h0",), (0,)), "'h0'"),
        (Dense(("x01",), (0,)), "'x01'"),
        (Dense(("y0",), (0,)), "'y0'"),
        (Dense(("x0",), (0, 1)), "2 weights"),
        (Dense(("x0",), (9,)), "weight 9"),
        (Dense((), ()), "no inputs"),
        (Affine(("x0", "x1"), 0), "2 inputs"),
        (LayerNorm(("x0",), 0.0), "epsilon"),
        (Mix(("x0",)), "mix of 1"),
        (Add(("x0",), Activation("cosine")), "cosine"),
        (Add(("x0",), Activation("prelu")), "without 'weight'"),
        (Add(("x0",), Activation("relu", alpha=1.0)), "with 'alpha'"),
        (Add(("x0",), Activation("prelu", weight=9)), "weight 9"),
    ],
)
def test_wrong_layer_is_refused_by_name(layer: Layer, found: str) -> None:
    with pytest.raises(UnreadableError, match=found):
        TowerPlan((layer,), ("h0",)).check(inputs=2, weights=4)


def test_outputs_must_exist() -> None:
    for outputs in ((), ("h1",)):
        with pytest.raises(UnreadableError, match="outputs"):
            TowerPlan((Add(("x0",)),), outputs).check(inputs=1, weights=0)
