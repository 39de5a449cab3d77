# SPDX-License-Identifier: Apache-2.0
"""Test NaN and infinities: differences that TensorFlow's own rewriting causes are warnings, all others count."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_tools import cut, verify
from graph_tools.analysis.contractions import is_marked, mark_contractions
from graph_tools.readers import read_model
from graph_tools.verification import runners
from graph_tools.verification.elsewhere import Elsewhere, ElsewhereRunner
from graph_tools.verification.generate import Generator
from graph_tools.verification.request import Request
from graph_tools.verification.runner import LoadError
from graph_tools.verification.settings import settings_here
from helpers.graph_tools.cut_models import command, environment, run


def build_tower(path: Path, views: bool = True, fill: float | None = None) -> Path:
    """Export x float32 [batch, 4] and ids int64 [batch] -> y [batch, 1] by one layer with relu.

    With `views` the product is one of a tensor that is reshaped around it, so that TensorFlow computes relu by itself.
    With `fill` a NaN of x counts as that number.
    """
    import tensorflow as tf

    rng = np.random.default_rng(0)

    class Tower(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = tf.Variable(rng.normal(size=(50, 4)).astype(np.float32))
            self.kernel = tf.Variable(rng.normal(size=(8, 16)).astype(np.float32))
            self.bias = tf.Variable(rng.normal(size=16).astype(np.float32))
            self.last = tf.Variable(rng.normal(size=(16, 1)).astype(np.float32))

        @tf.function(
            input_signature=[
                tf.TensorSpec([None, 4], tf.float32, name="x"),
                tf.TensorSpec([None], tf.int64, name="ids"),
            ]
        )
        def serve(self, x: Any, ids: Any) -> Any:
            if fill is not None:
                x = tf.where(tf.math.is_nan(x), fill, x)
            hidden = tf.concat([x, tf.gather(self.table, ids)], 1)
            product = tf.tensordot(hidden, self.kernel, [[1], [0]]) if views else tf.matmul(hidden, self.kernel)
            hidden = tf.nn.relu(tf.nn.bias_add(product, self.bias))
            return {"y": tf.sigmoid(tf.matmul(hidden, self.last))}

    module = Tower()
    tf.saved_model.save(module, str(path), signatures=module.serve)
    return path


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Collect the processes that verifications start to run models elsewhere; other tests share one."""
    found: list[subprocess.Popen[bytes]] = []

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            found.append(self)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    monkeypatch.setattr(runners, "Elsewhere", Elsewhere)
    return found


@pytest.fixture
def with_onednn() -> None:
    if not settings_here().onednn:
        pytest.skip("TensorFlow runs without oneDNN here, which is where it treats NaN otherwise")


def test_requests_have_what_is_not_finite_in_each_input(tmp_path: Path) -> None:
    made = list(Generator(read_model(build_tower(tmp_path / "model")), name="serving_default").requests(20))
    found = next(request for request in made if "not finite" in request.origin).inputs["x"]
    assert np.isnan(found).any()
    assert np.isposinf(found).any()
    assert np.isneginf(found).any()
    assert ((found != 0) & (np.abs(found) < np.finfo(np.float32).tiny)).any()
    assert np.isfinite(found).all(axis=1).any()


def test_a_cut_warns_about_outputs_where_onednn_changes_nan(
    tmp_path: Path, with_onednn: None, started: list[subprocess.Popen[bytes]]
) -> None:
    report = cut(build_tower(tmp_path / "in"), tmp_path / "out").verification
    assert report is not None
    assert report.passed
    assert not report.bit_exact
    assert report.settings == settings_here()
    assert len(report.warnings) == 1
    assert "output 'y'" in report.warnings[0]
    assert "NaN or infinities in 'x' differ" in report.warnings[0]
    output = report.outputs[0]
    assert output.rewritten > 0
    assert output.beyond == output.nan_apart == 0
    # Both models ran in one process, which ends without an error.
    assert [process.returncode for process in started] == [0]


def test_a_process_outlives_a_model_that_does_not_load(
    tmp_path: Path, verifications_share_a_process: Callable[[bool], Elsewhere]
) -> None:
    damaged, model = (read_model(build_tower(tmp_path / name)) for name in ("damaged", "model"))
    (tmp_path / "damaged" / "saved_model.pb").write_bytes(b"\xff")
    asked = [Request("serving_default", {"x": np.ones((2, 4), np.float32), "ids": np.arange(2)}, "here")]
    # All tests share it, so it goes on after this one.
    with verifications_share_a_process(False) as process:
        with pytest.raises(LoadError, match=r"saved_model\.pb"):
            ElsewhereRunner(process, damaged, "SessionRunner")
        found = []
        for runner in ("V2Runner", "SessionRunner"):
            loaded = ElsewhereRunner(process, model, runner)
            (answer,) = loaded.run(asked, lambda: None)
            loaded.close()
            assert isinstance(answer, dict)
            found.append(answer["y"])
    assert found[0].shape == (2, 1)
    np.testing.assert_array_equal(found[0], found[1])


def test_the_command_line_compares_as_models_are_served(tmp_path: Path, with_onednn: None) -> None:
    source = build_tower(tmp_path / "in")
    cut(source, tmp_path / "out", check=False)
    served = run("verify", source, tmp_path / "out")
    assert (served.code, served.err) == (0, "")
    assert "warning signature 'serving_default', output 'y'" in served.out
    assert "oneDNN on" in served.out
    assert "bit for bit" not in served.out
    # TensorFlow reads the variable once, so this needs a process of its own.
    without = subprocess.run(
        command("verify", source, tmp_path / "out"),
        capture_output=True,
        text=True,
        env=environment() | {"TF_ENABLE_ONEDNN_OPTS": "0"},
        timeout=300,
    )
    assert (without.returncode, without.stderr) == (0, "")
    assert "oneDNN off (TF_ENABLE_ONEDNN_OPTS=0)" in without.stdout
    assert "warning" not in without.stdout


def test_a_nan_that_becomes_a_number_is_a_difference(tmp_path: Path) -> None:
    report = verify(build_tower(tmp_path / "a"), build_tower(tmp_path / "b", fill=0.0))
    assert not report.passed
    assert report.outputs[0].nan_apart > 0
    assert not report.warnings


def test_relus_that_tensorflow_computes_with_a_product_are_marked(tmp_path: Path) -> None:
    for views in (True, False):
        model = read_model(build_tower(tmp_path / str(views), views))
        mark_contractions(model)
        assert [is_marked(node) for node in model.graph.of("Relu")] == [not views]
