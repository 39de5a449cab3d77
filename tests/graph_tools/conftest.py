# SPDX-License-Identifier: Apache-2.0
"""Models that the tests of graph-tools share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from load_tests.workloads import _cache, _wheels

DEEPCTR = ("DeepFM", "WDL", "DCN")


@pytest.fixture(scope="session")
def wdl_model() -> Path:
    """W1: Wide & Deep of some 4,700 nodes from tf.feature_column."""
    return _cache.ensure_model("W1")


@pytest.fixture(scope="session")
def idwdl_model() -> Path:
    """W2: the same tower on integer ids, exported by TF 2."""
    return _cache.ensure_model("W2")


@pytest.fixture(scope="session")
def basic_pitch_model() -> Path:
    """A published audio model; Python's loader of TF 2.21 does not read its object graph."""
    folder = _wheels.unpacked_wheel("basic-pitch", "0.4.0")
    return folder / "basic_pitch" / "saved_models" / "icassp_2022" / "nmp"


@pytest.fixture(scope="session")
def deepctr_models(models_root: Path) -> Path:
    """Models of the DeepCTR package, trained for a moment and exported by Keras 2, each in a folder of its name."""
    out = models_root / "deepctr"
    package = _wheels.unpacked_wheel("deepctr", "0.9.4")
    script = Path(_wheels.__file__).with_name("make_deepctr.py")
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, script, package, out, *DEEPCTR], check=True, env=environment, timeout=300)
    return out


@pytest.fixture(params=DEEPCTR)
def deepctr_model(request: pytest.FixtureRequest, deepctr_models: Path) -> Path:
    """One of them."""
    return deepctr_models / str(request.param)
