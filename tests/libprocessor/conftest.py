# SPDX-License-Identifier: Apache-2.0
"""Hosts in this process, and the models that they serve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import processor
from helpers.hosts.host_clients import build_scaled
from helpers.hosts.state_directory import StateDirectory
from helpers.models.live_models import export_live


@pytest.fixture(scope="session")
def scaled_models(models_root: Path) -> dict[int, Path]:
    """Models that multiply by 1, 2 and 3, by that number."""
    return build_scaled(models_root)


@pytest.fixture(scope="session")
def live_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A live model whose answers show their epoch."""
    return export_live(tmp_path_factory.mktemp("live"))


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    """The state directory of `host`."""
    return StateDirectory(tmp_path / "state")


@pytest.fixture
def host(state: StateDirectory) -> Iterator[processor.Host]:
    """A host that serves what the test writes into `state`."""
    with processor.Host(state.path) as host:
        yield host
