# SPDX-License-Identifier: Apache-2.0
"""Tensors of zeros beside a tensor of their shape become one zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools.passes.cut.collapse_zeros_like import CollapseZerosLike
from helpers.models.idiom_models import assert_same, export_function, ops, passed


def export(path: Path, function: Any, dtype: str) -> Path:
    import tensorflow as tf

    return export_function(path, lambda x: {"y": function(x)}, [tf.TensorSpec([None, None], dtype, name="x")])


@pytest.mark.parametrize("dtype", ["string", "int64", "float32"])
def test_comparison_needs_one_zero(dtype: str, tmp_path: Path) -> None:
    import tensorflow as tf

    source = export(tmp_path / "in", lambda x: tf.not_equal(x, tf.zeros_like(x)), dtype)
    model, (first, second) = passed(source, CollapseZerosLike(), CollapseZerosLike())
    assert (first.applied, second.applied, second.refused) == (1, 0, [])
    assert "ZerosLike" not in ops(model)
    value = np.array([[b"a", b""]], object) if dtype == "string" else np.array([[1, 0]], dtype)
    assert_same(source, model, tmp_path / "out", [{"x": value}, {"x": value[:0]}])


def test_zeros_that_give_the_shape_stay(tmp_path: Path) -> None:
    import tensorflow as tf

    source = export(tmp_path / "in", lambda x: tf.zeros_like(x) + tf.reduce_sum(x), "float32")
    model, (result,) = passed(source, CollapseZerosLike())
    assert result.applied == 0
    assert ops(model)["ZerosLike"] == 1
    assert_same(source, model, tmp_path / "out", [{"x": np.ones((2, 3), np.float32)}])
