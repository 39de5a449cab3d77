# SPDX-License-Identifier: Apache-2.0
"""`RecFmInteraction`, `RecDotInteraction`, `RecCrossNetwork`, `RecProduct` and `RecFieldOuter` against TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.tensors import Array
from helpers.oracles.op_graphs import assert_close, error_of, run_op, uniform

SHAPES = [(0, 3, 4), (1, 1, 1), (1, 26, 16), (2, 5, 7), (67, 13, 8), (300, 6, 32)]


# RecFmInteraction


def pairwise(x: Array) -> Any:
    return 0.5 * (tf.square(tf.reduce_sum(x, 1)) - tf.reduce_sum(tf.square(x), 1))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_fm_equals_the_formula(shape: tuple[int, int, int], threads: int) -> None:
    x = uniform(*shape)
    expected = pairwise(x)
    flat = x.reshape(shape[0], shape[1] * shape[2])
    assert_close(run_op("RecFmInteraction", [x], threads), tf.reduce_sum(expected, 1, keepdims=True))
    assert_close(run_op("RecFmInteraction", [x], threads, output="vector", keep_dims=True), expected[:, None])
    assert_close(run_op("RecFmInteraction", [flat], threads, output="vector", dim=shape[2]), expected)


@pytest.mark.parametrize(("shape", "dim"), [((2, 7), 3), ((2, 6), 0), ((6,), 3), ((2, 3, 4, 5), 0)])
def test_fm_refuses_other_shapes(shape: tuple[int, ...], dim: int) -> None:
    assert "expected [rows, fields, dim], or rows of fields * dim elements" in error_of(
        "RecFmInteraction", [uniform(*shape)], dim=dim
    )


# RecDotInteraction


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_dot_equals_the_formula(shape: tuple[int, int, int], threads: int) -> None:
    x, count = uniform(*shape), shape[1]
    pairs = [i * count + j for i in range(count) for j in range(i + 1)]
    everything = tf.reshape(tf.matmul(x, x, transpose_b=True), [shape[0], count * count])
    attributes: dict[str, Any] = {"num_fields": count, "dim": shape[2]}
    found = run_op("RecDotInteraction", [x.reshape(shape[0], shape[1] * shape[2])], threads, pairs=pairs, **attributes)
    assert_close(found, tf.gather(everything, pairs, axis=1))
    some = np.random.default_rng(0).integers(-1, count * count, 7)
    expected = np.where(some < 0, 0, np.asarray(everything)[:, some])
    assert_close(run_op("RecDotInteraction", [x], threads, pairs=some.tolist(), num_fields=count), expected)


def test_dot_refuses_wrong_inputs() -> None:
    x = uniform(2, 3, 4)
    assert "pairs: 9, expected a number from -1 to 8" in error_of("RecDotInteraction", [x], pairs=[9], num_fields=3)
    assert "pairs: -2" in error_of("RecDotInteraction", [x], pairs=[-2], num_fields=3)
    assert "fields: 3 fields, expected 4" in error_of("RecDotInteraction", [x], pairs=[0], num_fields=4)
    large = error_of("RecDotInteraction", [x], pairs=[0], num_fields=1 << 40)
    assert "num_fields: 1099511627776, expected a number from 1 to 16383" in large


# RecProduct


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape[1] > 1])
def test_products_equal_the_formula(shape: tuple[int, int, int], threads: int) -> None:
    count, dim = shape[1:]
    x = uniform(*shape)
    first, second = np.triu_indices(count, 1)
    pairs = (first * count + second).tolist()
    p, q = x[:, first], x[:, second]
    attributes: dict[str, Any] = {"pairs": pairs, "num_fields": count}
    for kind, size in (("scalar", 1), ("vector", dim)):
        kernel = uniform(len(pairs), size)
        expected = tf.reduce_sum(p * q * kernel, -1)
        assert_close(run_op("RecProduct", [x, kernel], threads, kind=kind, **attributes), expected)
    kernel = uniform(dim, len(pairs), dim)
    inner = tf.reduce_sum(tf.expand_dims(p, 1) * kernel, -1)
    expected = tf.reduce_sum(tf.transpose(inner, [0, 2, 1]) * q, -1)
    assert_close(run_op("RecProduct", [x, kernel], threads, kind="matrix", **attributes), expected)


def test_products_refuse_wrong_inputs() -> None:
    x, kernel = uniform(2, 3, 4), uniform(2, 4)
    attributes: dict[str, Any] = {"kind": "vector", "num_fields": 3}
    assert "expected 12 elements" in error_of("RecProduct", [x, kernel], pairs=[1, 2, 5], **attributes)
    assert "pairs: -1, expected a number from 0 to 8" in error_of(
        "RecProduct", [x, kernel], pairs=[-1, 2], **attributes
    )


# RecFieldOuter


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_outer_equals_the_formula(shape: tuple[int, int, int], threads: int) -> None:
    x, y = uniform(*shape), uniform(shape[0], shape[1] + 2, shape[2], seed=1)
    expected = np.einsum("bie,bje->beij", x, y).reshape(shape[0], shape[2], shape[1] * y.shape[1])
    np.testing.assert_array_equal(run_op("RecFieldOuter", [x, y], threads), expected)


def test_outer_refuses_wrong_inputs() -> None:
    x = uniform(2, 3, 4)
    assert "expected [rows, fields, dim] with equal rows and dim" in error_of("RecFieldOuter", [x, uniform(1, 3, 4)])
    assert "expected [rows, fields, dim] with equal rows and dim" in error_of("RecFieldOuter", [x, uniform(2, 3, 5)])


# RecCrossNetwork


def crossed(x: Array, kernels: list[Array], biases: list[Array], version: str, transposed: bool = False) -> Any:
    y = tf.constant(x)
    turned = [kernel.T if transposed else kernel for kernel in kernels]
    for i in range(len(kernels) // (2 if version == "low_rank" else 1)):
        bias = biases[i].reshape(-1) if biases else 0.0
        if version == "vector":
            y = x * tf.matmul(y, kernels[i].reshape(-1, 1)) + bias + y
        elif version == "matrix":
            y = x * (tf.matmul(y, turned[i]) + bias) + y
        else:
            y = x * (tf.matmul(tf.matmul(y, turned[2 * i]), turned[2 * i + 1]) + bias) + y
    return y


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [0, 1, 7, 200])
@pytest.mark.parametrize(("width", "rank", "layers"), [(1, 1, 1), (17, 3, 2), (64, 8, 3), (131, 16, 1)])
def test_cross_equals_the_formula(width: int, rank: int, layers: int, rows: int, threads: int) -> None:
    x = uniform(rows, width)
    biases = [uniform(width, seed=i) for i in range(layers)]
    scale = np.float32(1 / np.sqrt(width))
    shapes: dict[str, list[tuple[int, ...]]] = {
        "vector": [(width, 1)] * layers,
        "matrix": [(width, width)] * layers,
        "low_rank": [(width, rank), (rank, width)] * layers,
    }
    for version, sizes in shapes.items():
        for transposed in (False, True) if version != "vector" else (False,):
            given = [uniform(*(size[::-1] if transposed else size), seed=i) * scale for i, size in enumerate(sizes)]
            for some in (biases, []):
                expected = crossed(x, given, some, version, transposed)
                found = run_op(
                    "RecCrossNetwork", [x, *given, *some], threads, num_kernels=len(given), num_biases=len(some),
                    version=version, transposed=transposed,
                )  # fmt: skip
                assert_close(found, expected)


def test_cross_refuses_wrong_inputs() -> None:
    def said(x: Array, *weights: Array, version: str = "matrix", biases: int = 0) -> str:
        attributes = {"num_kernels": len(weights) - biases, "num_biases": biases, "version": version}
        return error_of("RecCrossNetwork", [x, *weights], **attributes)

    assert "x: shape [2,5], expected [rows, 4]" in said(uniform(2, 5), uniform(4, 4))
    assert "kernel 1: shape [4,5], expected one for width 4" in said(uniform(2, 4), uniform(4, 4), uniform(4, 5))
    assert "bias 0: shape [3], expected one for width 4" in said(uniform(2, 4), uniform(4, 4), uniform(3), biases=1)
    assert "num_biases: 2, expected none or 1" in said(uniform(2, 4), uniform(4, 4), uniform(4), uniform(4), biases=2)
    assert "expected two for each layer" in said(uniform(2, 4), uniform(4, 4), version="low_rank")
    assert "kernel 1: shape [2,4], expected one for width 4 and rank 3" in said(
        uniform(2, 4), uniform(4, 3), uniform(2, 4), version="low_rank"
    )
    assert "kernel 0" in said(uniform(2, 0), uniform(0), version="vector")


def test_shapes_are_inferred() -> None:
    def shape(op: str, types: list[Any], sizes: list[Any], **attributes: Any) -> Any:
        from graph_tools.graph import attr_value

        definition = tf.compat.v1.GraphDef()
        node = definition.node.add(name="node", op=op)
        for name, value in attributes.items():
            node.attr[name].CopyFrom(attr_value(value))
        for number, (dtype, size) in enumerate(zip(types, sizes, strict=True)):
            placeholder = definition.node.add(name=f"x{number}", op="Placeholder")
            placeholder.attr["dtype"].CopyFrom(attr_value(dtype))
            placeholder.attr["shape"].CopyFrom(attr_value(size))
            node.input.append(placeholder.name)
        with tf.Graph().as_default():
            (found,) = tf.graph_util.import_graph_def(definition, {}, ["node:0"], name="")
            return found.shape.as_list()

    f = np.float32
    assert shape("RecFmInteraction", [f], [(None, 3, 4)]) == [None, 1]
    assert shape("RecFmInteraction", [f], [(None, 12)], output="vector", dim=4, keep_dims=True) == [None, 1, 4]
    assert shape("RecDotInteraction", [f], [(None, 3, 4)], pairs=[1, 2], num_fields=3) == [None, 2]
    assert shape("RecProduct", [f, f], [(5, 12), (2, 1)], kind="scalar", pairs=[1, 2], num_fields=3, dim=4) == [5, 2]
    assert shape("RecFieldOuter", [f, f], [(None, 3, 4), (5, 6, None)]) == [5, 4, 18]
    attributes = {"num_kernels": 1, "num_biases": 0, "version": "vector"}
    assert shape("RecCrossNetwork", [f, f], [(None, 9), (9,)], **attributes) == [None, 9]
