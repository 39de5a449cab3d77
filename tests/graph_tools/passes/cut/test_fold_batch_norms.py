# SPDX-License-Identifier: Apache-2.0
"""Batch normalization is folded into adjacent weights if scores stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.model import Model
from graph_tools.passes.cut.eliminate_identities import EliminateIdentities
from graph_tools.passes.cut.fold_batch_norms import FoldBatchNorms
from graph_tools.passes.cut.fold_constants import FoldConstants
from graph_tools.passes.cut.merge_duplicates import MergeDuplicates
from graph_tools.rewriting.protocol import Pass
from helpers.graph_tools.pass_checks import checked, floats, from_graph, ops_of, rewritten, x_of

LEFT = {"Placeholder", "MatMul", "BiasAdd", "Relu", "Identity", "Const", "VarHandleOp", "ReadVariableOp"}


def passes() -> list[Pass]:
    return [EliminateIdentities(), FoldConstants(), FoldBatchNorms()]


def variable(v1: Any, name: str, *shape: int, low: float = -1.0, high: float = 1.0) -> Any:
    random = np.random.default_rng(len(name) + sum(shape))
    return v1.get_variable(name, initializer=random.uniform(low, high, shape).astype(np.float32))


def norm(v1: Any, x: Any, channels: int, name: str = "bn") -> Any:
    """Normalize as tf.nn.batch_normalization writes it."""
    with v1.variable_scope(name):
        gamma, beta = variable(v1, "gamma", channels, low=0.5), variable(v1, "beta", channels)
        mean, variance = variable(v1, "mean", channels), variable(v1, "variance", channels, low=0.1, high=3.0)
    return v1.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-3)


def fused_norm(v1: Any, x: Any, channels: int, data_format: str = "NHWC") -> Any:
    gamma, beta = variable(v1, "gamma", channels, low=0.5), variable(v1, "beta", channels)
    mean, variance = variable(v1, "mean", channels), variable(v1, "variance", channels, low=0.1, high=3.0)
    return v1.nn.fused_batch_norm(x, gamma, beta, mean, variance, is_training=False, data_format=data_format)[0]


def dense(v1: Any, x: Any, inputs: int, outputs: int, name: str, bias: bool = True) -> Any:
    y = v1.matmul(x, variable(v1, f"{name}/kernel", inputs, outputs), name=f"{name}/MatMul")
    return v1.nn.bias_add(y, variable(v1, f"{name}/bias", outputs)) if bias else y


def count(model: Model, op: str) -> int:
    return len(model.graph.of(op))


@pytest.mark.parametrize("bias", [True, False])
def test_norm_after_a_layer_is_folded_into_it(tmp_path: Path, bias: bool) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(norm(v1, dense(v1, x, 8, 16, "one", bias), 16))

    model, result = checked(from_graph(tmp_path, build, 8), x_of(8), *passes(), exact=False)
    assert result.applied == 1
    assert ops_of(model) <= LEFT
    assert (count(model, "MatMul"), count(model, "BiasAdd")) == (1, 1)
    assert set(model.variables) == {"one/kernel"}
    gone = [why for _, why in model.graph.removed.values()]
    assert "scaling and shifting by known vectors, folded into 'one/MatMul'" in gone


def test_norm_is_folded_into_weights_that_are_not_trained(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        kernel = v1.stop_gradient(variable(v1, "kernel", 8, 16))
        return v1.nn.relu(norm(v1, v1.matmul(x, kernel), 16))

    model, result = checked(from_graph(tmp_path, build, 8), x_of(8), FoldConstants(), FoldBatchNorms(), exact=False)
    assert result.applied == 1
    assert "Mul" not in ops_of(model)


def test_norm_before_a_layer_is_folded_into_it(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(dense(v1, norm(v1, v1.nn.relu(x), 8), 8, 16, "one"))

    model, result = checked(from_graph(tmp_path, build, 8), x_of(8), *passes(), exact=False)
    assert result.applied == 1
    assert ops_of(model) <= LEFT
    assert (count(model, "MatMul"), count(model, "BiasAdd")) == (1, 1)


def test_norm_before_a_layer_without_bias_adds_one(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(dense(v1, norm(v1, v1.nn.relu(x), 8), 8, 16, "one", bias=False))

    model, result = checked(from_graph(tmp_path, build, 8), x_of(8), *passes(), exact=False)
    assert result.applied == 1
    assert ops_of(model) <= LEFT
    assert (count(model, "MatMul"), count(model, "BiasAdd")) == (1, 1)


def test_tower_of_norms_is_left_with_layers_only(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        x = norm(v1, x, 8, "bn0")
        for i, (inputs, outputs) in enumerate(((8, 32), (32, 16), (16, 4))):
            x = v1.nn.relu(norm(v1, dense(v1, x, inputs, outputs, f"layer{i}"), outputs, f"bn{i + 1}"))
            x = norm(v1, x, outputs, f"after{i}")
        return v1.nn.sigmoid(dense(v1, x, 4, 1, "last"))

    model, _ = checked(from_graph(tmp_path, build, 8), x_of(8), *passes(), exact=False)
    assert ops_of(model) <= LEFT | {"Sigmoid"}
    assert (count(model, "MatMul"), count(model, "BiasAdd")) == (4, 4)


@pytest.mark.parametrize("before", [True, False])
def test_transposed_weights_are_scaled_along_the_other_axis(tmp_path: Path, before: bool) -> None:
    def build(v1: Any, x: Any) -> Any:
        kernel = variable(v1, "kernel", 200, 100)
        if before:
            return v1.nn.relu(v1.matmul(norm(v1, v1.nn.relu(x), 100), kernel, transpose_b=True))
        return v1.nn.relu(norm(v1, v1.matmul(x, kernel, transpose_b=True), 200))

    model, result = checked(from_graph(tmp_path, build, 100), x_of(100), *passes(), exact=False)
    assert result.applied == 1
    assert ops_of(model) <= LEFT


@pytest.mark.parametrize("depthwise", [True, False])
def test_norm_after_a_convolution_is_folded_into_it(tmp_path: Path, depthwise: bool) -> None:
    def build(v1: Any, x: Any) -> Any:
        if depthwise:
            x = v1.nn.depthwise_conv2d(x, variable(v1, "filter", 3, 3, 2, 3), [1, 1, 1, 1], "SAME")
        else:
            x = v1.nn.conv2d(x, variable(v1, "filter", 3, 3, 2, 6), [1, 1, 1, 1], "SAME")
        return v1.nn.relu(fused_norm(v1, v1.nn.bias_add(x, variable(v1, "bias", 6)), 6))

    model, result = checked(from_graph(tmp_path, build, 5, 5, 2), x_of(5, 5, 2), *passes(), exact=False)
    assert result.applied == 1
    assert not [op for op in ops_of(model) if "Norm" in op]
    assert count(model, "BiasAdd") == 1


def test_norm_without_weights_beside_it_becomes_two_ops(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(fused_norm(v1, v1.nn.relu(x), 2))

    model, result = checked(from_graph(tmp_path, build, 4, 4, 2), x_of(4, 4, 2), *passes(), exact=False)
    assert result.applied == 1
    assert ops_of(model) == {"Placeholder", "Relu", "Mul", "AddV2", "Const", "Identity"}


def test_longer_chain_becomes_two_ops(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu((x - v1.constant([1.0, 2.0, 3.0])) / v1.constant([2.0, 3.0, 4.0]) * 0.5 + 1.0)

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), *passes(), exact=False)
    assert result.applied == 1
    assert (count(model, "Mul"), count(model, "AddV2"), count(model, "Sub")) == (1, 1, 0)


def test_scale_and_bias_of_a_layer_stay_as_they_are(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(dense(v1, v1.nn.relu(dense(v1, x, 3, 4, "one")), 4, 2, "two")) * 2.0 + 1.0

    model, result = checked(from_graph(tmp_path, build, 3), x_of(3), *passes())
    assert result.applied == 0
    assert count(model, "Mul") == 1


def test_output_before_the_norm_is_kept(tmp_path: Path) -> None:
    from helpers.models.idiom_models import export_graph

    def build(v1: Any) -> Any:
        x = v1.placeholder(v1.float32, [None, 3], name="x")
        layer = v1.nn.bias_add(v1.matmul(x, variable(v1, "kernel", 3, 4)), variable(v1, "b", 4), name="layer")
        return {"x": x}, {"layer": layer, "y": v1.identity(norm(v1, layer, 4), name="y")}

    model, result = checked(export_graph(tmp_path / "source", build), x_of(3), *passes())
    assert result.applied == 0
    assert model.graph["layer"].op == "BiasAdd"


def test_signatures_that_share_weights_share_the_fold(tmp_path: Path) -> None:
    from helpers.models.idiom_models import export_graph

    def build(v1: Any) -> Any:
        a, b = (v1.placeholder(v1.float32, [None, 3], name=name) for name in "ab")
        with v1.variable_scope("model", reuse=v1.AUTO_REUSE):
            y, z = (v1.nn.relu(norm(v1, dense(v1, norm(v1, x, 3, "in"), 3, 4, "layer"), 4)) for x in (a, b))
        return {"a": a, "b": b}, {"y": y, "z": z}

    feeds = [{"a": floats(3, 3), "b": floats(3, 3, seed=5)}]
    model, result = checked(
        export_graph(tmp_path / "source", build),
        feeds,
        *passes()[:-1],
        MergeDuplicates(),
        FoldBatchNorms(),
        exact=False,
    )
    assert result.applied == 2
    assert not {"Mul", "AddV2"} & ops_of(model)
    assert len(model.variables) == 1


def test_norm_that_is_an_output_keeps_its_name(tmp_path: Path) -> None:
    from helpers.models.idiom_models import export_graph

    def build(v1: Any) -> Any:
        x = v1.placeholder(v1.float32, [None, 3], name="x")
        y = v1.add(v1.matmul(x, variable(v1, "kernel", 3, 2)) * v1.constant([2.0, 3.0]), [1.0, -1.0], name="y")
        return {"x": x}, {"y": y}

    model, result = checked(export_graph(tmp_path / "source", build), x_of(3), *passes(), exact=False)
    assert result.applied == 1
    assert model.graph["y"].op == "BiasAdd"


REFUSALS = {
    "shared_weights": "another node uses its weights too, expected the same scaling of all",
    "shared_result": "",
    "computed_weights": "its weights are not known before serving, expected a variable that is only read or a constant",
    "half": "",
    "far": "it shifts by 2e+05 after scaling, expected at most 64 for enough exact digits",
}


@pytest.mark.parametrize("case", REFUSALS)
def test_norm_that_must_stay(tmp_path: Path, case: str) -> None:
    def build(v1: Any, x: Any) -> Any:
        if case == "far":
            return v1.nn.relu(dense(v1, (v1.nn.relu(x) + 1e5) * v1.constant([0.5, 2.0, 1.0]) * 1.0, 3, 4, "one"))
        if case == "half":
            kernel = variable(v1, "kernel", 3, 4)
            half = v1.matmul(v1.cast(x, v1.float16), v1.cast(kernel, v1.float16))
            return v1.nn.relu(half * v1.constant([1.0, 2.0, 3.0, 4.0], v1.float16) + v1.constant(1.0, v1.float16))
        kernel = variable(v1, "kernel", 3, 4)
        if case == "computed_weights":
            kernel = kernel * v1.reduce_sum(x)
        layer = v1.matmul(x, kernel)
        others = {"shared_weights": v1.matmul(x * x, kernel), "shared_result": layer}.get(case, 0.0)
        return v1.nn.relu(norm(v1, layer, 4)) + others

    model, results = rewritten(from_graph(tmp_path, build, 3), *passes())
    result = results[-1]
    assert result.applied == 0
    assert {reason.rpartition("': ")[2] for _, reason in result.refused} == (
        {REFUSALS[case]} if REFUSALS[case] else set()
    )
    assert "Mul" in ops_of(model)


def test_vectors_that_broadcast_stay(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        column = v1.matmul(x, variable(v1, "kernel", 3, 1))
        return v1.nn.relu(column * v1.constant([1.0, 2.0, 3.0]) + v1.constant([1.0, 1.0, 1.0]))

    _, result = checked(from_graph(tmp_path, build, 3), x_of(3), *passes())
    assert result.applied == 0


def test_norm_in_training_mode_stays(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        gamma, beta = variable(v1, "gamma", 2), variable(v1, "beta", 2)
        return v1.nn.relu(v1.nn.fused_batch_norm(x, gamma, beta, is_training=True)[0])

    model, result = checked(from_graph(tmp_path, build, 4, 4, 2), x_of(4, 4, 2), *passes())
    assert result.applied == 0
    assert [op for op in ops_of(model) if op.startswith("FusedBatchNorm")]
