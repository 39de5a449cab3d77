# SPDX-License-Identifier: Apache-2.0
"""Every fused op against the stock ops that it stands for: random graphs, requests with NaN, infinities and more."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.graph.op_library import load_library
from helpers.oracles.embedding_groups import Group, table_of
from helpers.oracles.op_graphs import OpGraph
from helpers.oracles.stock_cases import CASES, cases, stock_answers
from helpers.oracles.stock_draws import Array, Case
from helpers.system.programs import LIBRARY

#: More graphs of each op, and others.
COUNT = int(os.environ.get("FUSED_GRAPHS", "100"))
SEED = int(os.environ.get("FUSED_SEED", "13"))


@pytest.fixture(scope="module")
def without_onednn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Array]:
    """Answers of stock TensorFlow in a process where oneDNN is off: the setting is read once."""
    load_library(LIBRARY)
    out = tmp_path_factory.mktemp("stock") / "answers.npz"
    tests = Path(__file__).resolve().parents[1]
    program = tests / "helpers" / "oracles" / "stock_cases.py"
    environment = {**os.environ, "PYTHONPATH": str(tests), "TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([sys.executable, program, str(SEED), str(COUNT), out], env=environment, check=True, timeout=600)
    with np.load(out) as found:
        return dict(found)


def fused_answers(case: Case, folder: Path) -> list[Array]:
    if case.op == "RecEmbeddingGroup":
        folder.mkdir()
        (table,) = case.tables
        tables = [table_of(folder, table)]
        types = [source.dtype for source in case.inputs]
        group = Group(case.attributes["plan"], types, tables, outputs=case.outputs)
        found = group(*case.inputs)
        group.close()
        return found
    if case.op == "RecExpandRows":
        collapse = OpGraph("RecCollapseRows", [np.float32] * 2, {"T": [np.float32], "Tlike": np.float32})
        (few,) = collapse(*case.inputs)
        collapse.close()
        assert len(few) in {1, len(case.inputs[0])}
        case = replace(case, inputs=[few, case.inputs[1]])
    ops = OpGraph(case.op, [tensor.dtype for tensor in case.inputs], case.attributes, outputs=case.outputs)
    found = ops(*case.inputs)
    ops.close()
    return found


def kinds(x: Array) -> Array:
    """Tell numbers, NaN and both infinities apart."""
    return np.where(np.isnan(x), 3, np.where(np.isinf(x), np.sign(np.nan_to_num(x)), 0)).astype(int)


@pytest.mark.parametrize("name", CASES)
def test_fused_ops_equal_stock_tensorflow(name: str, without_onednn: dict[str, Array], tmp_path: Path) -> None:
    wrong: list[Any] = []
    for number, case in enumerate(cases(name, SEED, COUNT)):
        found, stock = fused_answers(case, tmp_path / f"{number}"), stock_answers(case)
        for port, (fused, wanted) in enumerate(zip(found, stock, strict=True)):
            other = without_onednn[f"{name}/{number}/{port}"]
            assert fused.shape == wanted.shape == other.shape, (name, SEED, number)
            agreed = kinds(wanted) == kinds(other)
            alike = (kinds(fused) == kinds(wanted)) & (
                (kinds(fused) != 0) | np.isclose(fused, wanted, rtol=1e-4, atol=1e-5)
            )
            bad = agreed & ~alike
            if bad.any():
                wrong.append((number, port, case.attributes, fused[bad][:3].tolist(), wanted[bad][:3].tolist()))
    assert not wrong, f"{len(wrong)} of {COUNT} graphs, FUSED_SEED={SEED}: {wrong[:3]}"
