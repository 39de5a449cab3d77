# SPDX-License-Identifier: Apache-2.0
"""Test that parts that are not fused are weighed by the time that TensorFlow measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from graph_tools.graph import Graph
from graph_tools.readers import read_model
from graph_tools.verbs.fuse import fuse
from graph_tools.verification.timing import measure
from helpers.graph_tools.interaction_checks import floats
from helpers.models.idiom_models import export_function
from helpers.system.programs import LIBRARY

WIDTH = 64
WEIGHTS = [tf.Variable(floats(WIDTH, WIDTH, seed=i, scale=0.1)) for i in range(2)]


def model(path: Path, function: Any) -> Path:
    export_function(path, function, [tf.TensorSpec([None, WIDTH], tf.float32, name="x")], weights=WEIGHTS)
    return path


def slow_and_quick(x: Any) -> dict[str, Any]:
    """Sort a large matrix, which nothing fuses, beside a layer and one quick op in the middle of it."""
    sorted_ = tf.sort(tf.tile(x, [1, 64]), axis=-1, name="slow")[:, :1]
    dense = tf.nn.relu(x @ WEIGHTS[0])
    return {"slow": sorted_, "quick": tf.math.bessel_i0e(dense, name="quick") @ WEIGHTS[1]}


def test_regions_are_weighed_by_time(tmp_path: Path) -> None:
    source = model(tmp_path / "source", slow_and_quick)
    report = fuse(source, None, dry_run=True, op_library=LIBRARY, precision="fp32", timing=True)
    timing = report.timing
    assert timing is not None
    assert timing.note == ""
    assert timing.requests == 8
    assert timing.rows >= 8
    assert timing.median_us > 0
    slow, *others = timing.regions
    assert "TopKV2" in slow.ops
    assert slow.share > 0.5
    assert slow.reason == "no pass knows it"
    assert all(other.share < slow.share for other in others)
    assert any("BesselI0e" in region.ops for region in others)
    assert sum(region.share for region in timing.regions) + timing.replaced == pytest.approx(1)
    assert report.to_json()["timing"]["regions"][0]["share"] == slow.share


def test_without_explain_no_time_is_measured(tmp_path: Path) -> None:
    source = model(tmp_path / "source", slow_and_quick)
    report = fuse(source, None, dry_run=True, op_library=LIBRARY, precision="fp32")
    assert report.to_json()["timing"] is None


def test_a_loop_is_one_node_with_its_reason(tmp_path: Path) -> None:
    def function(x: Any) -> dict[str, Any]:
        (found,) = tf.while_loop(lambda y: tf.reduce_sum(y) < 1e5, lambda y: (tf.abs(y) * 2 + 1,), [x])
        return {"y": found}

    report = fuse(
        model(tmp_path / "source", function), None, dry_run=True, op_library=LIBRARY, precision="fp32", timing=True
    )
    assert report.timing is not None
    (region,) = [region for region in report.timing.regions if "While" in region.ops]
    assert region.share > 0.5
    assert "not a recurrent layer" in region.reason


def test_a_model_that_answers_nothing_is_named(tmp_path: Path) -> None:
    original = read_model(model(tmp_path / "source", slow_and_quick))
    found = measure(original, []).weigh(Graph(), [])
    assert "not measured, since it answers none of 0 requests" in found.note
