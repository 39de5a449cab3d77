# SPDX-License-Identifier: Apache-2.0
"""Export models with the idioms that training libraries leave in a graph, and run passes over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.model import Model
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.writer import write_saved_model
from helpers.graph_tools.stock_answers import Feeds, answers
from helpers.oracles.outputs import assert_same_outputs

KEY = "serving_default"


def table(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    """Return rows [rows, dim] float32 without a zero row."""
    return np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)


def export_graph(path: Path, build: Callable[[Any], tuple[dict[str, Any], dict[str, Any]]]) -> Path:
    """Export the TF 1 graph of `build(v1)`, which returns its inputs and outputs by key."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(0)
        with v1.variable_scope("", use_resource=True):
            inputs, outputs = build(v1)
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        for number, variable in enumerate(v1.global_variables()):
            if not session.run(variable).any():  # as in a new linear model, whose rows are all equal
                variable.load(np.random.default_rng(number).normal(size=variable.shape), session)
        builder = v1.saved_model.Builder(str(path))
        signature = v1.saved_model.signature_def_utils.predict_signature_def(inputs, outputs)
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            signature_def_map={KEY: signature},
            main_op=v1.tables_initializer(),
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
        )
        builder.save()
    return path


def export_function(path: Path, function: Callable[..., Any], specs: list[Any], **held: Any) -> Path:
    """Export a function as TF 2 does; `held` are the variables and tables that it uses."""
    import tensorflow as tf

    module = tf.Module()
    for name, value in held.items():
        setattr(module, name, value)
    module.serve = tf.function(function, input_signature=specs)
    tf.saved_model.save(module, str(path), signatures={KEY: module.serve})
    return path


def passed(source: Path, *passes: Pass) -> tuple[Model, list[PassResult]]:
    """Read a model, run passes over the nodes that its signatures need, and prune again."""
    model = read_model(source)
    PruneUnreachable().apply(model)
    results = [pass_.apply(model) for pass_ in passes]
    PruneUnreachable().apply(model)
    return model, results


def ops(model: Model) -> dict[str, int]:
    """Count the nodes of each op, except constants and handles."""
    counted: dict[str, int] = {}
    for node in model.graph:
        if node.op not in {"Const", "VarHandleOp", "Placeholder"}:
            counted[node.op] = counted.get(node.op, 0) + 1
    return counted


def assert_same(source: Path, model: Model, out: Path, feeds: Iterable[Feeds], refused: Iterable[Feeds] = ()) -> None:
    """Check that stock TensorFlow returns the same bits for the exported model and for the present one.

    Both must refuse the inputs in `refused`.
    """
    import tensorflow as tf

    write_saved_model(model, out)
    for feed in feeds:
        assert_same_outputs(answers(out, feed, KEY), answers(source, feed, KEY), exact=True, label=f"of {feed}")
    for bad_feed in refused:
        for path in (source, out):
            with pytest.raises(tf.errors.InvalidArgumentError):
                answers(path, bad_feed, KEY)
