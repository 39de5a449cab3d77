# SPDX-License-Identifier: Apache-2.0
"""Run single ops of libprocessor in stock TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from graph_tools.graph import attr_value
from graph_tools.graph.op_library import load_library
from graph_tools.tensors import Array
from helpers.system.programs import LIBRARY


class OpGraph:
    """Build a graph of one op, all of whose inputs are fed.

    Parameters
    ----------
    op : str
    types : sequence of numpy dtypes
        Types of the inputs; `object` for strings.
    attributes : dict
        Values as accepted by `attr_value`.
    outputs : int
    threads : int
        Size of the pool over which a batch is divided.
    """

    def __init__(
        self, op: str, types: Sequence[Any], attributes: dict[str, Any], *, outputs: int = 1, threads: int = 1
    ) -> None:
        import tensorflow as tf

        load_library(LIBRARY)
        tf1 = tf.compat.v1
        definition = tf1.GraphDef()
        node = definition.node.add(name="node", op=op)
        for name, value in attributes.items():
            given = [_plain(item) for item in value] if isinstance(value, list) else _plain(value)
            node.attr[name].CopyFrom(attr_value(given))
        with tf.Graph().as_default() as graph:
            self._inputs = [tf1.placeholder(_dtype(dtype_), None) for dtype_ in types]
            fed = {}
            for number, placeholder in enumerate(self._inputs):
                source = definition.node.add(name=f"input{number}", op="Placeholder")
                source.attr["dtype"].type = placeholder.dtype.as_datatype_enum
                node.input.append(source.name)
                fed[f"{source.name}:0"] = placeholder
            wanted = [f"node:{number}" for number in range(outputs)]
            self.outputs = tf.graph_util.import_graph_def(definition, fed, wanted, name="")
        config = tf1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=1)
        self._session = tf1.Session(graph=graph, config=config)

    def __call__(self, *inputs: Any, options: Any = None) -> list[Array]:
        """Run the op; `options`: tf.compat.v1.RunOptions."""
        fed = dict(zip(self._inputs, inputs, strict=True))
        found: list[Array] = self._session.run(self.outputs, fed, options=options)
        return found

    def close(self) -> None:
        self._session.close()


class Tower:
    """Build a graph of one `RecDenseTower`; `layers` and `outputs` are those of its plan."""

    def __init__(
        self,
        layers: Sequence[dict[str, Any]],
        outputs: Sequence[str],
        *,
        inputs: int,
        weights: Sequence[Array] = (),
        precision: str = "auto",
        threads: int = 1,
        plan: str | None = None,
    ) -> None:
        self._weights = [np.asarray(weight, np.float32) for weight in weights]
        if plan is None:
            plan = json.dumps({"version": 1, "layers": list(layers), "outputs": list(outputs)})
        attributes = {
            "num_inputs": inputs,
            "num_weights": len(weights),
            "num_outputs": len(outputs),
            "plan": plan,
            "precision": precision,
        }
        types = [np.float32] * (inputs + len(weights))
        self._op = OpGraph("RecDenseTower", types, attributes, outputs=len(outputs), threads=threads)

    def __call__(self, *inputs: Array, options: Any = None) -> list[Array]:
        """Run the op; `options` as for `OpGraph`."""
        return self._op(*inputs, *self._weights, options=options)


def run_op(op: str, inputs: Sequence[Array], threads: int = 1, **attributes: Any) -> Array:
    """Run an op with one output once."""
    graph = OpGraph(op, [array.dtype for array in inputs], attributes, threads=threads)
    (output,) = graph(*inputs)
    graph.close()
    return output


def error_of(op: str, inputs: Sequence[Array], **attributes: Any) -> str:
    """Return the message of an op that must refuse its inputs or attributes."""
    import tensorflow as tf

    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)) as caught:
        run_op(op, inputs, **attributes)
    return str(caught.value)


def uniform(*shape: int, seed: int = 0, bound: float = 1.0) -> Array:
    """Draw float32 numbers between -bound and bound."""
    return np.random.default_rng(seed + len(shape)).uniform(-bound, bound, shape).astype(np.float32)


def assert_close(actual: Array, expected: Any) -> None:
    """Check that the shapes are equal and |actual - expected| <= 1e-5 + 1e-5 * |expected|."""
    expected = np.asarray(expected)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def _plain(value: Any) -> Any:
    """Return an attribute's value, strings' dtype as TensorFlow's."""
    return _dtype(value) if value is object else value


def _dtype(value: Any) -> Any:
    import tensorflow as tf

    return tf.string if value is object else tf.as_dtype(value)
