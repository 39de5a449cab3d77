# SPDX-License-Identifier: Apache-2.0
"""Processes of graph-tools load Keras only for models that need it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from graph_tools.lean_start import allow_keras, leave_out_keras
from graph_tools.readers import read_model
from graph_tools.verification.elsewhere import Elsewhere, ElsewhereRunner
from graph_tools.verification.request import Request
from graph_tools.verification.runner import V2Runner


def test_keras_is_not_loaded_where_models_are_verified(
    tiny_model: Path, verifications_share_a_process: Callable[[bool], Elsewhere]
) -> None:
    with verifications_share_a_process(False) as process:
        runner = ElsewhereRunner(process, read_model(tiny_model), "V2Runner")
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        runner.close()
    assert "libtensorflow_cc.so" in maps
    # Keras imports matplotlib if it is installed, as it is here.
    assert find_spec("matplotlib") is not None
    assert "/matplotlib/" not in maps


def test_keras_that_was_imported_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = sys.modules.copy()
    imported.pop("tf_keras", None)
    imported["keras"] = sys
    monkeypatch.setattr(sys, "modules", imported)
    leave_out_keras()
    assert imported["keras"] is sys
    assert imported["tf_keras"] is None
    allow_keras()
    assert imported["keras"] is sys
    assert "tf_keras" not in imported


def build_with_optimizer(path: Path) -> Path:
    """Export x float32 [batch, 2] -> y float32 [batch, 1], with an optimizer of Keras 2 that has a slot variable."""
    module = tf.Module()
    module.kernel = tf.Variable([[1.0], [-2.0]])
    module.optimizer = tf_keras.optimizers.legacy.SGD(0.5, momentum=0.9)
    module.optimizer.apply_gradients([(tf.ones([2, 1]), module.kernel)])

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def serve(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"y": tf.matmul(x, module.kernel)}

    module.serve = serve
    tf.saved_model.save(module, str(path), signatures=serve)
    return path


def test_models_with_an_optimizer_of_keras_2_are_verified_as_others(tmp_path: Path) -> None:
    model = read_model(build_with_optimizer(tmp_path / "model"))
    asked = [Request("serving_default", {"x": np.array([[1, 2], [3, 4]], np.float32)}, "here")]
    # A process of its own, since Keras stays in it.
    with Elsewhere(False) as process:
        runner = ElsewhereRunner(process, model, "V2Runner")
        (there,) = runner.run(asked, lambda: None)
        runner.close()
    here = V2Runner(model)
    (expected,) = here.run(asked, lambda: None)
    here.close()
    assert isinstance(there, dict)
    assert isinstance(expected, dict)
    np.testing.assert_array_equal(there["y"], expected["y"])
    np.testing.assert_array_equal(there["y"], np.array([[-4.5], [-8.5]], np.float32))
