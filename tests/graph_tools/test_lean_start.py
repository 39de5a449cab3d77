# SPDX-License-Identifier: Apache-2.0
"""Processes of graph-tools do not load Keras."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from graph_tools.lean_start import leave_out_keras
from graph_tools.readers import read_model
from graph_tools.verification.elsewhere import Elsewhere, ElsewhereRunner


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
