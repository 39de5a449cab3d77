# SPDX-License-Identifier: Apache-2.0
"""What the tests of the hosts share: a model, requests for it, and stock TensorFlow's answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.models.host_model import export_host_model
from helpers.system.programs import LIBRARY


@pytest.fixture(scope="session")
def library() -> Path:
    """Path of libprocessor.so."""
    assert LIBRARY.is_file(), f"{LIBRARY}: not there; run `make build`"
    return LIBRARY


@pytest.fixture(scope="session")
def host_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a SavedModel, version 7; see `helpers.models.host_model`."""
    return export_host_model(tmp_path_factory.mktemp("host_model") / "7")


@pytest.fixture(scope="session")
def inputs() -> list[dict[str, Any]]:
    """Inputs of six requests with 1, 2, 3, 5, 17 and 128 rows."""
    random = np.random.default_rng(5)
    return [
        {
            "x": random.normal(size=(rows, 3)).astype(np.float32),
            "s": np.array([f"item {i}".encode() for i in range(rows)], dtype=object),
        }
        for rows in (1, 2, 3, 5, 17, 128)
    ]


@pytest.fixture(scope="session")
def stock(host_model: Path) -> Callable[[dict[str, Any]], dict[str, np.ndarray]]:
    """Stock TensorFlow's answer to inputs of the default signature."""
    import tensorflow as tf

    function = tf.saved_model.load(str(host_model)).signatures["serving_default"]

    def answer(inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        outputs = function(**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    return answer
