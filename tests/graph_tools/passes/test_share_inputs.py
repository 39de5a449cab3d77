# SPDX-License-Identifier: Apache-2.0
"""Signatures share inputs of one name, dtype and shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from graph_tools_support import assert_same_answers, requests_for
from pass_checks import rewritten

from graph_tools.model import Model
from graph_tools.passes.base import PassResult
from graph_tools.passes.merge_duplicates import MergeDuplicates
from graph_tools.passes.share_inputs import ShareInputs
from graph_tools.writer import write_saved_model


def shared(path: Path, **specs: Any) -> tuple[Model, PassResult]:
    """Export one function under signatures that differ by the given specs of x, and share their inputs."""
    module = tf.Module()
    module.w = tf.Variable(np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32))
    functions = {
        name: tf.function(
            lambda x: {"y": tf.matmul(tf.cast(tf.reshape(x, [-1, 3]), tf.float32), module.w)}, input_signature=[spec]
        )
        for name, spec in specs.items()
    }
    module.functions = functions
    source = path / "source"
    tf.saved_model.save(module, str(source), signatures={
        name: function.get_concrete_function() for name, function in functions.items()})  # fmt: skip
    model, (result, *_) = rewritten(source, ShareInputs(), MergeDuplicates(), ShareInputs())
    write_saved_model(model, path / "out")
    assert_same_answers(source, path / "out", requests_for(source), exact=True)
    return model, result


SPEC = tf.TensorSpec([None, 3], tf.float32, name="x")


def test_two_signatures_become_one_graph(tmp_path: Path) -> None:
    model, result = shared(tmp_path, serve=SPEC, serving_default=SPEC)
    assert result.applied == 1
    assert len(model.graph.of("Placeholder")) == 1
    assert len(model.graph.of("MatMul")) == 1
    first, second = (one.inputs["x"].tensor for one in model.signatures.values())
    assert first == second == ("serving_default_x", 0)
    assert model.graph.removed["serve_x"][1].startswith(
        "input 'x' of signature 'serve' is fed as 'serving_default_x:0'"
    )


def test_other_dtypes_and_shapes_stay(tmp_path: Path) -> None:
    wide, whole = tf.TensorSpec([None, 6], tf.float32, name="x"), tf.TensorSpec([None, 3], tf.int32, name="x")
    model, result = shared(tmp_path, serving_default=SPEC, wide=wide, whole=whole)
    assert result.applied == 0
    assert len(model.graph.of("Placeholder")) == 3
    assert [reason for _, reason in result.refused] == [
        "input 'x' of signature 'whole': it is int32 beside float32, expected one dtype",
        "input 'x' of signature 'wide': its shape is (None, 6) beside (None, 3), expected one shape",
    ]


def test_signature_with_inputs_of_its_own_is_left_alone(tmp_path: Path) -> None:
    _, result = shared(tmp_path, serving_default=SPEC)
    assert (result.applied, result.refused) == (0, [])
