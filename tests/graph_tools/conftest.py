# SPDX-License-Identifier: Apache-2.0
"""Provide models that the tests of graph-tools share, and check what each pass ensures."""

from __future__ import annotations

from pathlib import Path

import pytest

from graph_tools.model import Model
from graph_tools.rewriting.protocol import Pass, PassResult
from load_tests.workloads import CACHE, ensure_deepctr_models, ensure_model
from load_tests.workloads._wheels import unpacked_wheel

DEEPCTR = ("DeepFM", "WDL", "DCN")


@pytest.fixture(scope="session")
def wdl_model() -> Path:
    """W1: Wide & Deep of some 4,700 nodes from tf.feature_column."""
    return ensure_model("W1")


@pytest.fixture(scope="session")
def idwdl_model() -> Path:
    """W2: the same tower on integer ids, exported by TF 2."""
    return ensure_model("W2")


@pytest.fixture(scope="session")
def basic_pitch_model() -> Path:
    """A published audio model; Python's loader of TF 2.21 does not read its object graph."""
    folder = unpacked_wheel("basic-pitch", "0.4.0", CACHE)
    return folder / "basic_pitch" / "saved_models" / "icassp_2022" / "nmp"


@pytest.fixture(params=DEEPCTR)
def deepctr_model(request: pytest.FixtureRequest) -> Path:
    """A model of the DeepCTR package, trained for a moment and exported by Keras 2."""
    return ensure_deepctr_models(DEEPCTR) / str(request.param)


@pytest.fixture(autouse=True)
def passes_keep_their_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check what a pass ensures, each time that a test applies one."""
    apply = Pass.apply

    def apply_and_check(self: Pass, model: Model) -> PassResult:
        result = apply(self, model)
        assert list(self.ensures(model)) == [], f"pass '{self.name}' does not ensure what it promises"
        return result

    monkeypatch.setattr(Pass, "apply", apply_and_check)
