# SPDX-License-Identifier: Apache-2.0
"""Test variables that a request writes and reads again, as TrainableWrapper of TFRA leaves them in a graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_tools.errors import ConversionError
from graph_tools.readers import read_model
from graph_tools.verification.evaluate import evaluate
from load_tests.workloads.sparse_exports import Export, rows_for, tfra_lookup, tfra_table

KEYS, ROWS = np.array([3, 7, 0], np.int64), np.arange(1, 7, dtype=np.float32).reshape(3, 2)


def build(path: Path, assigns: int = 1, after: bool = True, counter: bool = False) -> Path:
    """ids -> find -> assigned to `wrapper`, which is read for the rows."""
    export = Export()
    handle = tfra_table(export, "emb", KEYS, ROWS)
    default = export.const(np.zeros(2, np.float32))
    found = tfra_lookup(export, handle, export.input("item"), default)
    export.saved["wrapper"] = np.zeros((1, 2), np.float32)
    export.node("VarHandleOp", name="wrapper", dtype="float32", shape=(None, 2))
    writes = [
        export.node("AssignVariableOp", ["wrapper", found], f"assign_{i}", dtype="float32") for i in range(assigns)
    ]
    controls = [f"^{write}" for write in writes] if after else []
    read = export.node("ReadVariableOp", ["wrapper", *controls], "read", dtype="float32")
    rows = read if after else export.node("Identity", [read, f"^{writes[0]}"], T="float32")
    if counter:
        export.node("VariableShape", ["wrapper", *controls], "shape", out_type="int32")
        rows = export.node("Identity", [rows, "^shape"], T="float32")
    return export.finish(path / "model", [rows], 2)


def test_rows_come_from_the_lookup(tmp_path: Path) -> None:
    model = read_model(build(tmp_path))
    assert "wrapper" not in {node.name for node in model.graph if node.name in model.graph.ancestors(model.outputs())}
    op, reason = model.graph.removed["assign_0"]
    assert op == "AssignVariableOp"
    assert "comes from the lookup itself" in reason
    asked = np.array([7, 8, 0])
    found = evaluate(model, "serving_default", {"item": asked})
    np.testing.assert_array_equal(found["rows"], rows_for(asked, KEYS, ROWS))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"after": False}, r"variable 'wrapper': used by 'read' \(ReadVariableOp\) after 0 assignments"),
        ({"assigns": 2}, r"'read' \(ReadVariableOp\) after 2 assignments"),
        ({"counter": True}, r"used by 'shape' \(VariableShape\)"),
    ],
)
def test_uncertain_wrappers_are_refused(tmp_path: Path, options: dict[str, bool], message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        read_model(build(tmp_path, **options))
