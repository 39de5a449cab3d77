# SPDX-License-Identifier: Apache-2.0
"""Interactions take columns as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from graph_tools.passes.fuse.drop_field_reshapes import DropFieldReshapes
from graph_tools.passes.fuse.fuse_fm_interactions import FuseFmInteractions
from helpers.graph_tools.interaction_checks import fuse, requests


def pairwise(x: Any) -> Any:
    return 0.5 * (tf.square(tf.reduce_sum(x, 1)) - tf.reduce_sum(x * x, 1))


def test_chain_of_reshapes_is_removed(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        # The first pass leaves out one reshape itself; of another it takes what that gives.
        return pairwise(tf.reshape(tf.squeeze(tf.expand_dims(x, 1), 1), [-1, 5, 8]))

    found = fuse(tmp_path, function, requests(x=(40,)), FuseFmInteractions(), DropFieldReshapes())
    assert found.ops == {"RecFmInteraction": 1}
    assert found.attributes("RecFmInteraction", "dim") == [8]


def test_reshape_to_other_rows_stays(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        # Two rows of the interaction are one of the request.
        return pairwise(tf.reshape(2.0 * x, [-1, 5, 4]))

    found = fuse(tmp_path, function, requests(x=(40,)), FuseFmInteractions(), DropFieldReshapes())
    assert found.ops == {"RecFmInteraction": 1, "Reshape": 1, "Mul": 1}


def test_reshape_that_another_node_uses_stays(tmp_path: Path) -> None:
    def function(x: Any) -> dict[str, Any]:
        fields = tf.reshape(2.0 * x, [-1, 5, 8])
        return {"fields": fields, "y": pairwise(fields)}

    found = fuse(tmp_path, function, requests(x=(40,)), FuseFmInteractions(), DropFieldReshapes())
    assert found.ops == {"RecFmInteraction": 1, "Reshape": 1, "Mul": 1}
    assert found.model.graph.input(found.node("RecFmInteraction"), 0).op == "Mul"
