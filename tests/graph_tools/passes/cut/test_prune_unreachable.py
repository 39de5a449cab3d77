# SPDX-License-Identifier: Apache-2.0
"""Nodes that no signature needs are removed; initializers of needed tables and variables stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools import cut
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.writer import write_saved_model
from helpers.graph_tools.stock_answers import answers, assert_same_answers, requests_for


def test_training_nodes_are_removed_and_inputs_stay(multi_signature_model: Path, tmp_path: Path) -> None:
    model = read_model(multi_signature_model)
    before = len(model.graph)
    result = PruneUnreachable().apply(model)
    assert result.applied == before - len(model.graph) > 0
    assert not model.graph.of("SaveV2", "RestoreV2", "MergeV2Checkpoints")
    assert model.inputs() <= set(model.graph.nodes)
    assert {reason for _, reason in model.graph.removed.values()} >= {
        next(reason for name, (_, reason) in model.graph.removed.items() if "Save" in name or "Restore" in name)
    }
    assert PruneUnreachable().apply(model).applied == 0
    write_saved_model(model, tmp_path / "out")
    assert_same_answers(multi_signature_model, tmp_path / "out", requests_for(multi_signature_model), exact=True)


def test_nodes_of_other_signatures_are_removed(multi_signature_model: Path) -> None:
    whole = read_model(multi_signature_model)
    PruneUnreachable().apply(whole)
    part = read_model(multi_signature_model, signatures=("length",))
    PruneUnreachable().apply(part)
    assert set(part.signatures) == {"length"}
    assert len(part.graph) < len(whole.graph)
    assert all("'length'" in reason for _, reason in part.graph.removed.values() if "no output" in reason)


def test_functions_and_unneeded_tensors_are_named(tiny_model: Path) -> None:
    model = read_model(tiny_model)
    names = set(model.graph.library)
    PruneUnreachable().apply(model)
    assert names
    assert not model.graph.library
    assert set(model.removed_functions) == names
    assert "_CHECKPOINTABLE_OBJECT_GRAPH" in model.unused_tensors


def test_table_is_still_filled(string_model: Path, tmp_path: Path) -> None:
    model = read_model(string_model)
    PruneUnreachable().apply(model)
    assert [model.graph[name].op for name in model.init] == ["InitializeTableFromTextFileV2"]
    write_saved_model(model, tmp_path / "out")
    assert_same_answers(string_model, tmp_path / "out", requests_for(string_model), exact=True)


@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
def test_local_variable_is_still_set(use_resource: bool, tmp_path: Path) -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        ids = v1.placeholder(v1.int64, [None], name="ids")
        rows = v1.get_variable("rows", initializer=np.arange(20, dtype=np.float32).reshape(10, 2), use_resource=True)
        local = v1.get_variable(
            "local",
            initializer=np.array([5.0, 6.0], np.float32),
            collections=[v1.GraphKeys.LOCAL_VARIABLES],
            trainable=False,
            use_resource=use_resource,
        )
        y = v1.multiply(v1.gather(rows, ids), local, name="y")
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        builder = v1.saved_model.Builder(str(tmp_path / "source"))
        signature = v1.saved_model.predict_signature_def({"ids": ids}, {"y": y})
        builder.add_meta_graph_and_variables(
            session, ["serve"], {"serving_default": signature}, main_op=v1.local_variables_initializer()
        )
        builder.save()
    cut(tmp_path / "source", tmp_path / "out")
    feeds: dict[str, Any] = {"ids": np.array([0, 3, 9])}
    np.testing.assert_array_equal(answers(tmp_path / "out", feeds)["y"], answers(tmp_path / "source", feeds)["y"])
