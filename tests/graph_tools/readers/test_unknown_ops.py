# SPDX-License-Identifier: Apache-2.0
"""Test ops that neither TensorFlow nor a known system has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import ConversionError
from graph_tools.passes.cut.prune_unreachable import PruneUnreachable
from graph_tools.readers import read_model
from graph_tools.readers.unknown_ops import check_unknown_ops
from load_tests.workloads.sparse_exports import Export, tfplus_lookup, tfplus_table

KEYS, ROWS = np.array([3, 7], np.int64), np.ones((2, 2), np.float32)


def build(path: Path, needed: bool) -> Path:
    export = Export()
    handle = tfplus_table(export, "emb", KEYS, ROWS)
    rows = tfplus_lookup(export, handle, export.input("item"))
    strange = export.node("Nobody>Knows", [rows], "strange", T="float32")
    return export.finish(path / "model", [strange if needed else rows], 2)


def test_unknown_op_is_named_with_its_node_output_and_the_known_systems(tmp_path: Path) -> None:
    model = read_model(build(tmp_path, needed=True))
    PruneUnreachable().apply(model)
    with pytest.raises(ConversionError) as caught:
        check_unknown_ops(model)
    message = str(caught.value)
    assert "1 unknown op: Nobody>Knows (node 'strange', needed by output 'rows' of signature" in message
    assert "DeepRec EmbeddingVariable" in message
    assert "TFRA dynamic_embedding" in message


def test_an_unknown_op_that_no_output_needs_is_ignored(tmp_path: Path) -> None:
    check_unknown_ops(read_model(build(tmp_path, needed=False)))


def test_sparse_lookup_is_known(tmp_path: Path) -> None:
    model = read_model(build(tmp_path, needed=False))
    PruneUnreachable().apply(model)
    assert model.graph.of("SparseLookup")
    check_unknown_ops(model)


def test_unknown_op_in_the_branch_of_a_condition(tmp_path: Path) -> None:
    import tensorflow as tf

    export = Export()
    rows = export.input("x", "float32", (None, 2))
    branch = export.graph.library.function.add()
    branch.signature.name = "branch"
    branch.signature.input_arg.add(name="x", type=tf.float32.as_datatype_enum)
    branch.signature.output_arg.add(name="y", type=tf.float32.as_datatype_enum)
    inner = branch.node_def.add(name="inside", op="Nobody>Knows", input=["x"])
    inner.attr["T"].type = tf.float32.as_datatype_enum
    branch.ret["y"] = "inside:y:0"
    yes = export.const(np.array(True))
    export.node("StatelessIf", [yes, rows], "choice", Tcond="bool")
    node = export.graph.node[-1]
    for name in ("Tin", "Tout"):
        node.attr[name].list.type.append(tf.float32.as_datatype_enum)
    for name in ("then_branch", "else_branch"):
        node.attr[name].func.name = "branch"
    model = read_model(export.finish(tmp_path / "model", ["choice"], 2))
    with pytest.raises(ConversionError, match=r"Nobody>Knows .node 'inside' of the function 'branch' in 'choice'"):
        check_unknown_ops(model)
