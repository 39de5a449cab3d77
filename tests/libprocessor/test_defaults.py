# SPDX-License-Identifier: Apache-2.0
"""Defaults of signatures: used where a request leaves an input out, and checked when the model is loaded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import processor
from helpers.models.default_models import SCALE, build_defaults, expected
from load_tests.request_files import encode_request

X = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_defaults(tmp_path_factory.mktemp("defaults") / "1")


def test_tensors_use_defaults(model: Path) -> None:
    with processor.Model(model) as loaded:
        for _ in range(3):  # what is used once is there for the next
            np.testing.assert_allclose(loaded.run({"x": X})["score"], expected(X))
        np.testing.assert_allclose(loaded.run({"x": X, "scale": np.float32(3)})["score"], expected(X, 3))
        answer = loaded.run({"x": X, "word": [b"gold"]})["score"]
        np.testing.assert_allclose(answer, expected(X, SCALE, b"gold"))
        with pytest.raises(processor.InvalidArgumentError, match="input 'x': missing"):
            loaded.run({"scale": np.float32(3)})


@pytest.mark.parametrize("protocol", ["eas", "tfserving", "tfserving_json", "kserve_json"])
def test_all_protocols_and_batches_use_defaults(model: Path, protocol: str) -> None:
    body = _request(protocol, {"x": X})
    whole = _request(protocol, {"x": X, "scale": np.array(SCALE, np.float32), "word": np.array([b"none"], object)})
    for config in ({}, {"batching": {"mode": "zero_wait"}}):
        with processor.Model(model, {"session_num": 2, **config}) as loaded:
            right = loaded.process(whole, protocol=protocol)
            with ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda _: loaded.process(body, protocol=protocol), range(64)))
            assert set(answers) == {right}


def _request(protocol: str, inputs: dict[str, Any]) -> bytes:
    if protocol == "tfserving_json":
        import json

        columns = {key: value.tolist() for key, value in inputs.items()}
        columns = {key: [word.decode() for word in value] if key == "word" else value for key, value in columns.items()}
        return json.dumps({"inputs": columns}).encode()
    if protocol == "kserve_json":
        import json

        kinds = {"x": "FP32", "scale": "FP32", "word": "BYTES"}
        tensors = []
        for key, value in inputs.items():
            data = [word.decode() for word in value] if key == "word" else value.ravel().tolist()
            tensors.append({"name": key, "datatype": kinds[key], "shape": list(value.shape), "data": data})
        return json.dumps({"inputs": tensors}).encode()
    return encode_request(inputs, protocol)


def test_signatures_name_optional_inputs(model: Path) -> None:
    with processor.Model(model) as loaded:
        inputs = loaded.signatures["serving_default"].inputs
    assert {name: spec.optional for name, spec in inputs.items()} == {"x": False, "scale": True, "word": True}


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("scale", tf.make_tensor_proto(1), "dtype DT_INT32, expected DT_FLOAT"),
        ("scale", tf.make_tensor_proto([1.0, 2.0]), r"shape \[2\], expected \[\]"),
        ("word", tf.make_tensor_proto([b"a", b"b"]), r"shape \[2\], expected \[1\]"),
        ("scale", tf.make_tensor_proto(1.0).__class__(dtype=1, tensor_content=b"abc"), "no tensor"),
        ("scale", tf.make_tensor_proto(1.0).__class__(), "no tensor"),
    ],
)
def test_malformed_default_fails_the_load(tmp_path: Path, key: str, value: Any, text: str) -> None:
    path = build_defaults(tmp_path / "1", {key: value})
    with pytest.raises(processor.InvalidArgumentError, match=f"'serving_default': default of input '{key}': {text}"):
        processor.Model(path)


def test_a_default_of_an_unknown_input_is_ignored(tmp_path: Path) -> None:
    path = build_defaults(tmp_path / "1", {"other": tf.make_tensor_proto(1.0)})
    with processor.Model(path) as loaded, pytest.raises(processor.InvalidArgumentError, match="'scale': missing"):
        loaded.run({"x": X})
