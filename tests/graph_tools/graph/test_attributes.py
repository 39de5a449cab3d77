# SPDX-License-Identifier: Apache-2.0
"""Attributes to and from Python values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from graph_tools.graph import Graph, Node, attr_value, attribute, const_array
from graph_tools.graph.op_defs import input_types, op_def, output_types, with_defaults, writes


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (True, True),
        (7, 7),
        (np.int64(7), 7),
        (0.5, 0.5),
        ("text", b"text"),
        (b"\xff", b"\xff"),
        (np.float16, tf.float16),
        (tf.string, tf.string),
        ((None, 3), (None, 3)),
        ((), ()),
        ([1, 2], [1, 2]),
        ([0.5], [0.5]),
        ([b"a", "b"], [b"a", b"b"]),
        ([tf.int32, np.float32], [tf.int32, tf.float32]),
        ([], []),
    ],
)
def test_attribute_reads_what_was_written(value: Any, read: Any) -> None:
    assert attribute(Node("n", "Op", attrs={"key": attr_value(value)}), "key") == read


def test_attribute_that_is_not_written_has_the_default_given() -> None:
    assert attribute(Node("n", "Op"), "key", 5) == 5
    assert attribute(Node("n", "Op"), "key") is None


def test_shape_of_any_rank_is_none() -> None:
    any_rank = tf.TensorShape(None).as_proto()
    assert attribute(Node("n", "Op", attrs={"shape": attr_value(any_rank)}), "shape") is None


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.zeros((0, 4), np.float32),
        np.array(1.5, np.float16),
        np.array([b"", b"a\x00b", "ż".encode()], object),
        np.array(b"one", object),
        np.array([True, False]),
    ],
)
def test_constant_holds_its_elements(array: np.ndarray) -> None:
    graph = Graph()
    found = const_array(graph[graph.add_const(array).node])
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    np.testing.assert_array_equal(found, array)


def test_types_of_lists_and_defaults() -> None:
    described = op_def("IdentityN")
    attrs = {"T": attr_value([tf.int32, tf.string])}
    assert output_types(described, attrs) == input_types(described, attrs) == [3, 7]
    shape = op_def("Shape")
    assert output_types(shape, {"T": attr_value(tf.float32)}) == [tf.int32.as_datatype_enum]
    assert with_defaults(shape, {"out_type": attr_value(tf.int64)})["out_type"].type == tf.int64.as_datatype_enum


@pytest.mark.parametrize(
    ("op", "effect"),
    [
        ("AssignVariableOp", True),
        ("LookupTableInsertV2", True),
        ("Assert", True),
        ("ReadVariableOp", False),
        ("LookupTableFindV2", False),
        ("RandomUniform", False),
        ("TruncatedNormal", False),
        ("MatMul", False),
    ],
)
def test_which_ops_write(op: str, effect: bool) -> None:
    assert writes(Node("n", op)) is effect
