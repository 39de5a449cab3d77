# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.graph import Graph, Output
from graph_tools.model import Endpoint, Model, Signature
from graph_tools.readers import read_model
from graph_tools.verification.request import Request
from graph_tools.verification.structure import SparseInput, find_sparse_inputs, row_count
from helpers.models import verify_models


def test_sparse_inputs_are_found_by_use(tmp_path: Path) -> None:
    model = read_model(verify_models.build_bags(tmp_path / "bags"))
    assert find_sparse_inputs(model, model.signatures["serving_default"]) == [SparseInput("a", "b", "c")]


@pytest.mark.parametrize(
    "keys", [("x_indices", "x_values", "x_shape"), ("x/Indices", "x/ids", "x/dense_shape"), ("x", "x_1", "x_2")]
)
def test_sparse_inputs_are_found_by_name(keys: tuple[str, str, str]) -> None:
    signature = _signature(dict(zip(keys, [(None, 2), (None,), (2,)], strict=True)))
    model = Model(Path("m"), "GraphDef", Graph(), {"s": signature})
    assert find_sparse_inputs(model, signature) == [SparseInput(*keys)]


def test_dense_inputs_are_not_sparse_inputs() -> None:
    signature = _signature({"user": (None,), "items": (None, 2), "weights": (2,)})
    model = Model(Path("m"), "GraphDef", Graph(), {"s": signature})
    assert find_sparse_inputs(model, signature) == []


def _signature(shapes: dict[str, tuple[Any, ...]]) -> Signature:
    import tensorflow as tf

    return Signature({key: Endpoint(Output(f"p{n}"), tf.int64, s) for n, (key, s) in enumerate(shapes.items())}, {})


def test_rows_of_ragged_and_sparse_inputs_are_rows() -> None:
    answer = {"y": np.zeros((3, 1))}
    ragged = {"values": np.arange(11), "row_splits": np.array([0, 4, 4, 11])}
    assert row_count(Request("s", ragged, "generated 1"), answer, []) == 3
    bags = {"a": np.zeros((9, 2), np.int64), "b": np.arange(9), "c": np.array([3, 4])}
    assert row_count(Request("s", bags, "generated 2"), answer, [SparseInput("a", "b", "c")]) == 3
    # An answer that has no rows of its own: those of what was asked.
    assert row_count(Request("s", {"x": np.zeros((5, 2))}, "generated 3"), {"y": np.zeros(())}, []) == 5
