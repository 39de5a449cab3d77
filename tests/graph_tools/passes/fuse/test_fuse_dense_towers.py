# SPDX-License-Identifier: Apache-2.0
"""Dense layers and what is between them become one op, where that keeps scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.graph import attribute
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.passes.fuse.fuse_dense_towers import FuseDenseTowers
from graph_tools.readers import read_model
from helpers.graph_tools.pass_checks import all_answers, floats, from_function, from_graph, x_of
from helpers.graph_tools.stock_answers import requests_for
from helpers.graph_tools.tower_checks import fused, layers, towers
from helpers.models.idiom_models import KEY, export_graph

TWO = ["dense relu", "dense sigmoid"]


def weight(v1: Any, name: str, *shape: int, low: float = -1.0) -> Any:
    """Make a variable with elements from `low` to 1."""
    random = np.random.default_rng(sum(name.encode()) + sum(shape))
    return v1.get_variable(name, initializer=random.uniform(low, 1.0, shape).astype(np.float32))


def dense(v1: Any, x: Any, units: int, name: str, bias: bool = True) -> Any:
    """Make `x @ W + b`."""
    y = v1.matmul(x, weight(v1, f"{name}/kernel", int(x.shape[-1]), units))
    return v1.nn.bias_add(y, weight(v1, f"{name}/bias", units)) if bias else y


def test_layers_become_one_op(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.sigmoid(dense(v1, v1.nn.relu(dense(v1, x, 16, "one")), 1, "two"))

    source = from_graph(tmp_path, build, 8)
    plans, left, result = towers(source, x_of(8))
    assert plans[0]["layers"] == [
        {"op": "dense", "inputs": ["x0"], "weights": [0], "bias": 1, "activation": {"kind": "relu"}},
        {"op": "dense", "inputs": ["h0"], "weights": [2], "bias": 3, "activation": {"kind": "sigmoid"}},
    ]
    assert not left
    assert not result.refused


def test_weights_stay_variables(tmp_path: Path) -> None:
    model, _ = fused(from_graph(tmp_path, lambda v1, x: v1.nn.relu(dense(v1, x, 16, "one")), 8))
    assert set(model.variables) == {"one/kernel", "one/bias"}
    (node,) = model.graph.of("RecDenseTower")
    assert [model.graph[source.node].op for source in node.inputs] == [
        "Placeholder",
        "ReadVariableOp",
        "ReadVariableOp",
    ]
    assert attribute(node, "precision") == b"auto"
    assert [attribute(node, f"num_{one}") for one in ("inputs", "weights", "outputs")] == [1, 2, 1]


def test_op_has_the_requested_precision(tmp_path: Path) -> None:
    model = read_model(from_graph(tmp_path, lambda v1, x: v1.nn.relu(dense(v1, x, 16, "one")), 8))
    PruneUnreachable().apply(model)
    FuseDenseTowers("bf16").apply(model)
    assert attribute(model.graph.of("RecDenseTower")[0], "precision") == b"bf16"


@pytest.mark.parametrize("first", [True, False])
def test_residuals_are_added_before_the_activation(tmp_path: Path, first: bool) -> None:
    def build(v1: Any, x: Any) -> Any:
        y = v1.nn.relu(dense(v1, x, 8, "one"))
        z = dense(v1, y, 8, "two")
        y = v1.nn.relu(y + z if first else z + y)
        return v1.add_n([dense(v1, y, 8, "three", bias=False), x, y])

    plans, left, _ = towers(from_graph(tmp_path, build, 8), x_of(8))
    assert layers(plans) == ["dense relu", "dense relu", "dense"]
    assert [plan.get("add") for plan in plans[0]["layers"]] == [None, ["h0"], ["x0", "h1"]]
    assert not left


def test_products_that_are_added_are_one_layer(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        x, wide = (v1.placeholder(v1.float32, [None, size], name=name) for name, size in (("x", 8), ("wide", 3)))
        deep = dense(v1, v1.nn.relu(dense(v1, x, 4, "one")), 1, "two")
        y = v1.sigmoid(deep + dense(v1, wide, 1, "wide_part") + weight(v1, "global", 1))
        return {"x": x, "wide": wide}, {"y": v1.identity(y, name="y")}

    feeds = [{"x": floats(rows, 8), "wide": floats(rows, 3, seed=9)} for rows in (1, 5)]
    plans, left, _ = towers(export_graph(tmp_path / "source", build), feeds)
    assert layers(plans) == ["dense relu", "dense sigmoid"]
    assert sorted(plans[0]["layers"][1]["inputs"]) == ["h0", "x1"]
    assert not left


def test_results_that_other_nodes_use_are_outputs(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        x = v1.placeholder(v1.float32, [None, 8], name="x")
        hidden = v1.nn.relu(dense(v1, x, 4, "one"), name="hidden")
        y = v1.sigmoid(dense(v1, hidden, 1, "two"), name="y")
        return {"x": x}, {"hidden": hidden, "y": y, "largest": v1.reduce_max(hidden, 1, name="largest")}

    plans, left, _ = towers(export_graph(tmp_path / "source", build), x_of(8))
    assert layers(plans) == TWO
    assert plans[0]["outputs"] == ["h0", "h1"]
    assert left == {"Max"}


def test_towers_over_the_same_rows_are_one_op(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        heads = [dense(v1, v1.nn.relu(dense(v1, x, 4, f"a{i}")), 3, f"b{i}") for i in range(3)]
        return v1.stack([v1.reduce_max(head, 1) for head in heads])

    plans, left, result = towers(from_graph(tmp_path, build, 8), x_of(8))
    assert result.applied == 1
    assert len(plans[0]["layers"]) == 6
    assert len(plans[0]["outputs"]) == 3
    assert left == {"Max", "Pack"}


def test_paths_that_leave_and_return_split_a_tower(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        y = v1.nn.relu(dense(v1, x, 8, "one"))
        sorted_rows = v1.sort(y, axis=1)
        return v1.sigmoid(dense(v1, y + sorted_rows, 1, "two"))

    plans, left, result = towers(from_graph(tmp_path, build, 8), x_of(8))
    assert result.applied == 2
    assert [len(plan["layers"]) for plan in plans] == [1, 2]
    assert left & {"TopKV2", "Neg"}


def test_concatenation_is_a_layer_only_after_the_first_dense_layer(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        both = v1.concat([x, v1.sort(x, axis=1)], -1)
        y = v1.nn.relu(dense(v1, both, 8, "one"))
        return v1.sigmoid(dense(v1, v1.concat([y, x, y * 2.0], -1), 1, "two"))

    plans, left, _ = towers(from_graph(tmp_path, build, 8), x_of(8))
    assert layers(plans) == ["dense relu", "affine", "concat", "dense sigmoid"]
    assert "ConcatV2" in left


def test_products_and_differences_of_rows_are_layers(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        y, z = (dense(v1, x, 4, name) for name in ("one", "two"))
        return v1.sigmoid(y * z - v1.square(z) + 0.5 / (1.0 + v1.square(y))[:, :1] * y)

    plans, _, _ = towers(from_graph(tmp_path, build, 8), x_of(8))
    names = [one["op"] for plan in plans for one in plan["layers"]]
    assert names.count("dense") == 2
    assert "multiply" in names
    assert "add" in names


def test_gate_with_one_number_per_row_is_a_layer(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        gate = v1.sigmoid(dense(v1, x, 1, "gate"))
        return v1.nn.relu(gate * dense(v1, x, 4, "one"))

    plans, left, _ = towers(from_graph(tmp_path, build, 8), x_of(8))
    assert layers(plans) == ["dense sigmoid", "dense", "mix relu"]
    assert not left


def test_scales_that_no_weights_take_are_layers(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        y = v1.nn.relu(dense(v1, x, 4, "one"))
        normed = y * weight(v1, "scale", 4) + weight(v1, "shift", 4)
        return v1.sigmoid(dense(v1, normed, 2, "two")) + v1.reduce_max(normed) + 1.0 / weight(v1, "by", 2, low=0.5)

    plans, _, _ = towers(from_graph(tmp_path, build, 8), x_of(8))
    assert layers(plans)[:2] == ["dense relu", "affine"]


def test_biases_that_are_subtracted_or_divided_by_are_layers(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        y = v1.nn.relu(v1.matmul(x, weight(v1, "kernel", 8, 4)) - weight(v1, "bias", 4))
        return (weight(v1, "from", 4) - y) / weight(v1, "by", 4, low=0.5)

    plans, left, _ = towers(from_graph(tmp_path, build, 8), x_of(8), cut=False)
    assert layers(plans) == ["dense relu", "affine", "affine"]
    assert not left


@pytest.mark.parametrize("spelling", ["transpose_b", "Transpose", "adj_y", "Einsum", "Einsum turned"])
def test_transposed_weights_are_used_as_stored(tmp_path: Path, spelling: str) -> None:
    def build(v1: Any, x: Any) -> Any:
        kernel = weight(v1, "kernel", 5, 8)
        if spelling == "Transpose":
            return v1.nn.relu(v1.matmul(x, v1.transpose(kernel)))
        if spelling == "adj_y":
            return v1.nn.relu(v1.raw_ops.BatchMatMulV2(x=x[:, None], y=kernel, adj_y=True))
        if spelling.startswith("Einsum"):
            turned = v1.transpose(kernel) if spelling == "Einsum" else kernel
            return v1.nn.relu(v1.einsum("ab,bc->ac" if spelling == "Einsum" else "ab,cb->ac", x, turned))
        return v1.nn.relu(v1.matmul(x, kernel, transpose_b=True))

    plans, left, _ = towers(from_graph(tmp_path, build, 8), x_of(8), cut=False)
    assert plans[0]["layers"][0]["transpose"] is True
    assert not left - {"StridedSlice"}


def test_einsum_with_several_outer_and_inner_dimensions_is_a_layer(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        heads = v1.einsum("abc,cde->abde", x, weight(v1, "one", 6, 2, 3)) + weight(v1, "bias", 2, 3)
        return v1.einsum("abde,def->abf", v1.nn.relu(heads), weight(v1, "two", 2, 3, 4)) + weight(v1, "last", 4)

    plans, left, _ = towers(from_graph(tmp_path, build, 5, 6), x_of(5, 6))
    assert layers(plans) == ["dense relu", "dense"]
    assert not left


@pytest.mark.parametrize("length", [5, None])
def test_layers_over_more_than_two_dimensions_are_fused(tmp_path: Path, length: int | None) -> None:
    def function(x: Any) -> Any:
        import tensorflow as tf

        y = tf.nn.relu(tf.nn.bias_add(tf.tensordot(x, kernels[0], axes=(-1, 0)), biases[0]))
        return tf.sigmoid(tf.tensordot(y, kernels[1], axes=[[2], [0]]) + biases[1])

    import tensorflow as tf

    random = np.random.default_rng(0)
    kernels = [tf.Variable(random.normal(size=size).astype(np.float32)) for size in ((6, 8), (8, 3))]
    biases = [tf.Variable(random.normal(size=size).astype(np.float32)) for size in (8, 3)]
    source = from_function(tmp_path, function, length, 6, kernels=kernels, biases=biases)
    plans, left, _ = towers(source, x_of(length or 4, 6))
    assert layers(plans) == TWO
    assert not left


def test_rows_without_their_last_dimension_are_fused(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        x = v1.placeholder(v1.float32, [None, 8], name="x")
        wide = v1.placeholder(v1.float32, [None], name="wide")
        logit = v1.squeeze(dense(v1, v1.nn.relu(dense(v1, x, 4, "one")), 1, "two"), -1) + wide
        return {"x": x, "wide": wide}, {"y": v1.sigmoid(logit, name="y")}

    feeds = [{"x": floats(rows, 8), "wide": floats(rows, seed=9)} for rows in (1, 5)]
    plans, left, _ = towers(export_graph(tmp_path / "source", build), feeds)
    assert layers(plans) == TWO
    assert left == {"Reshape"}


def test_row_that_is_added_to_all_rows_is_fused(tmp_path: Path) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        user, item = (v1.placeholder(v1.float32, [None, 8], name=name) for name in ("user", "item"))
        y = v1.sigmoid(dense(v1, user, 4, "one") + dense(v1, item, 4, "two"), name="y")
        return {"user": user, "item": item}, {"y": y}

    feeds = [{"user": floats(rows, 8), "item": floats(5, 8, seed=9)} for rows in (1, 5)]
    plans, _, _ = towers(export_graph(tmp_path / "source", build), feeds)
    assert layers(plans) == ["dense sigmoid"]


def test_tables_of_rows_are_not_biases(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        return v1.nn.relu(v1.matmul(x, weight(v1, "kernel", 6, 4)) + weight(v1, "position", 5, 4))

    plans, left, _ = towers(from_graph(tmp_path, build, 5, 6), x_of(5, 6))
    assert layers(plans) == ["dense"]
    assert left == {"AddV2", "Relu"}


def test_request_without_rows_gets_no_scores(tmp_path: Path) -> None:
    source = from_graph(tmp_path, lambda v1, x: v1.nn.relu(dense(v1, x, 16, "one")), 8)
    towers(source, [{"x": np.zeros((0, 8), np.float32)}])


REFUSALS = {
    "computed weights": "weights of '{}' are not constant",
    "double": "'{}' computes in float64, expected float32",
    "transposed": "'{}' transposes its first operand, expected rows as they are",
    "first": "the first operand of '{}' is constant, expected the second",
    "rank": "shape of 'x' is not known",
    "einsum": "'{}' computes ab,cb->ca, expected rows times weights",
    "written": "weights of '{}' are not constant",
}


def _refused(case: str, v1: Any, x: Any) -> Any:
    kernel = weight(v1, "kernel", 8, 4)
    makers: dict[str, Callable[[], Any]] = {
        "computed weights": lambda: v1.matmul(x, kernel * v1.reduce_sum(x)),
        "double": lambda: v1.matmul(v1.cast(x, v1.float64), v1.constant(np.ones((8, 4)))),
        "transposed": lambda: v1.matmul(x, kernel, transpose_a=True),
        "first": lambda: v1.matmul(weight(v1, "left", 4, 8), x),
        "rank": lambda: v1.matmul(x, kernel),
        "einsum": lambda: v1.einsum("ab,cb->ca", x, v1.transpose(kernel)),
        "written": lambda: v1.matmul(x, kernel) + v1.reduce_sum(v1.assign_add(kernel, v1.ones_like(kernel))) * 0.0,
    }
    return v1.nn.relu(makers[case]())


@pytest.mark.parametrize("case", REFUSALS)
def test_products_that_are_not_layers_are_refused_with_a_reason(tmp_path: Path, case: str) -> None:
    shapes: dict[str, Any] = {"rank": None, "transposed": [8, None], "first": [8, None]}

    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        x = v1.placeholder(v1.float32, shapes.get(case, [None, 8]), name="x")
        return {"x": x}, {"y": v1.identity(_refused(case, v1, x), name="y")}

    model, result = fused(export_graph(tmp_path / "source", build), cut=False)
    assert result.applied == 0
    ((name, reason),) = result.refused
    assert model.graph[name].op in {"MatMul", "BatchMatMulV2", "Einsum"}
    assert reason == REFUSALS[case].format(name)


@pytest.mark.parametrize("joined", [False, True])
def test_width_of_rows_follows_from_weights(tmp_path: Path, joined: bool) -> None:
    def build(v1: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        x = v1.placeholder(v1.float32, [None, None], name="x")
        fed = {"x": x}
        rows = v1.tanh(x)
        if joined:
            fed["known"] = v1.placeholder(v1.float32, [None, 3], name="known")
            rows = v1.concat([fed["known"], rows], 1)
        y = v1.nn.relu(v1.matmul(rows, weight(v1, "kernel", 8, 4)))
        return fed, {"y": v1.identity(v1.matmul(y, weight(v1, "last", 4, 1)), name="y")}

    feeds = [{"x": floats(rows, 8)} for rows in (0, 1, 5)]
    if joined:
        feeds = [{"x": floats(rows, 5), "known": floats(rows, 3, seed=1)} for rows in (0, 1, 5)]
    source = export_graph(tmp_path / "source", build)
    plans, left, result = towers(source, feeds)
    assert len(plans) == 1
    assert "MatMul" not in left
    assert not result.refused
    wrong = [feeds[1] | {"x": feeds[1]["x"][:, 1:]}]
    for path in (source, tmp_path / "towers" / "kernel"):
        with pytest.raises(tf.errors.InvalidArgumentError):
            all_answers(path, wrong, KEY)


def test_another_signature_may_take_other_rows(tmp_path: Path) -> None:
    kernel = tf.Variable(floats(8, 4))

    class Both(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, name="x")])
        def layer(self, x: Any) -> dict[str, Any]:
            return {"y": tf.nn.relu(tf.matmul(x, kernel))}

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, name="x")])
        def plain(self, x: Any) -> dict[str, Any]:
            return {"y": tf.nn.relu(x)}

    module = Both()
    module.kernel = kernel
    tf.saved_model.save(module, str(tmp_path / "source"), signatures={KEY: module.layer, "plain": module.plain})
    plans, _, _ = towers(tmp_path / "source", [{"x": floats(3, 8)}])
    assert len(plans) == 1
    (answer,) = all_answers(tmp_path / "towers" / "kernel", [{"x": floats(3, 5)}], "plain")
    np.testing.assert_array_equal(answer["y"], np.maximum(floats(3, 5), 0))


def test_product_of_two_inputs_does_not_prevent_other_fusions(tmp_path: Path) -> None:
    def build(v1: Any, x: Any) -> Any:
        y = v1.nn.relu(dense(v1, x, 8, "one"))
        return v1.sigmoid(dense(v1, v1.matmul(v1.matmul(y, y, transpose_b=True), x), 1, "two"))

    plans, left, result = towers(from_graph(tmp_path, build, 8), x_of(8))
    assert [len(plan["layers"]) for plan in plans] == [1, 1]
    assert len(result.refused) == 2
    assert left == {"MatMul"}


def test_wide_and_deep_model_is_fused(idwdl_model: Path, tmp_path: Path) -> None:
    plans, left, result = towers(idwdl_model, requests_for(idwdl_model)["serving_default"], out=tmp_path / "towers")
    assert layers(plans) == ["dense relu", "dense relu", "dense relu", "dense sigmoid"]
    assert not result.refused
    assert left == {"ResourceGather", "ConcatV2"}
