# SPDX-License-Identifier: Apache-2.0
"""The optimizers of elastic_training in a library of their own, built beside the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.system.cmake_targets import build_target


@pytest.fixture(scope="session")
def probe_library(repository: Path) -> Path:
    """The library that `Probe` loads."""
    return build_target("elastic_optimizer_probe", repository) / "tests" / "libelastic_optimizer_probe.so"
