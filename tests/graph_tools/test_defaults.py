# SPDX-License-Identifier: Apache-2.0
"""Test that defaults of signatures survive every command, and that verifications use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import processor
from graph_tools import cut, fuse, inspect, optimize, verify
from graph_tools.errors import UnreadableError
from graph_tools.readers import read_model
from graph_tools.verification.generate import Generator
from graph_tools.verification.requests import read_requests
from helpers.models.default_models import SCALE, build_defaults, expected

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_defaults(tmp_path_factory.mktemp("defaults") / "1")


@pytest.mark.parametrize("command", [cut, fuse, optimize])
def test_commands_keep_the_defaults_of_inputs(model: Path, tmp_path: Path, command: Any) -> None:
    out = tmp_path / "out"
    command(model, out)
    before, after = (read_model(path).signatures["serving_default"].defaults for path in (model, out))
    assert {key: value.SerializeToString() for key, value in after.items()} == {
        key: value.SerializeToString() for key, value in before.items()
    }
    assert set(after) == {"scale", "word"}
    with processor.Model(out) as loaded:
        np.testing.assert_allclose(loaded.run({"x": X})["score"], expected(X), rtol=1e-5)
    assert inspect(out) is not None


def test_generated_requests_leave_inputs_out(model: Path) -> None:
    requests = list(Generator(read_model(model), name="serving_default").requests(40))
    left_out = [request for request in requests if request.inputs["scale"] == np.float32(SCALE)]
    assert 5 < len(left_out) < 35
    assert verify(model, model, samples=16).bit_exact


def test_recorded_requests_leave_inputs_out(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "asked.npz", x=X)
    (request,) = read_requests(tmp_path / "asked.npz", read_model(model).signatures)
    assert request.inputs["scale"] == np.float32(SCALE)
    assert request.inputs["word"].tolist() == [b"none"]


def test_another_default_is_a_difference(model: Path, tmp_path: Path) -> None:
    for name, defaults in (
        ("changed", {"scale": tf.make_tensor_proto(2.0), "word": tf.make_tensor_proto([b"none"])}),
        ("lost", {"scale": tf.make_tensor_proto(SCALE)}),
    ):
        report = verify(model, build_defaults(tmp_path / name, defaults), samples=4)
        assert not report.passed
        assert any("another default in the second model" in problem for problem in report.problems), report.problems


def test_malformed_default_is_named(tmp_path: Path) -> None:
    path = build_defaults(tmp_path / "1", {"scale": tf.make_tensor_proto([1.0, 2.0])})
    with pytest.raises(UnreadableError, match="signature 'serving_default': default of input 'scale': float32"):
        read_model(path)
