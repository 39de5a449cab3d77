# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import verify_models

from graph_tools.graph import Graph, Output
from graph_tools.model import Endpoint, Model, Signature
from graph_tools.readers import read_model
from graph_tools.verification.structure import SparseInput, find_sparse_inputs


def test_by_use(tmp_path: Path) -> None:
    model = read_model(verify_models.build_bags(tmp_path / "bags"))
    assert find_sparse_inputs(model, model.signatures["serving_default"]) == [SparseInput("a", "b", "c")]


@pytest.mark.parametrize(
    "keys", [("x_indices", "x_values", "x_shape"), ("x/Indices", "x/ids", "x/dense_shape"), ("x", "x_1", "x_2")]
)
def test_by_name(keys: tuple[str, str, str]) -> None:
    signature = _signature(dict(zip(keys, [(None, 2), (None,), (2,)], strict=True)))
    model = Model(Path("m"), "GraphDef", Graph(), {"s": signature})
    assert find_sparse_inputs(model, signature) == [SparseInput(*keys)]


def test_dense_inputs_are_none() -> None:
    signature = _signature({"user": (None,), "items": (None, 2), "weights": (2,)})
    model = Model(Path("m"), "GraphDef", Graph(), {"s": signature})
    assert find_sparse_inputs(model, signature) == []


def _signature(shapes: dict[str, tuple[Any, ...]]) -> Signature:
    import tensorflow as tf

    return Signature({key: Endpoint(Output(f"p{n}"), tf.int64, s) for n, (key, s) in enumerate(shapes.items())}, {})
