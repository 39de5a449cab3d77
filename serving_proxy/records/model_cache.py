# SPDX-License-Identifier: Apache-2.0
"""The options of a machine's copies of models in stores, which the proxy and agents have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from serving_proxy.records.option import CliOption

ModelCache = Annotated[
    Path | None,
    CliOption("DIR", "This machine's copies of models in stores; by default a folder of the state directory."),
]
ModelCacheMb = Annotated[
    Annotated[int, Field(ge=1)] | None,
    CliOption("MB", "Largest size of these copies; without it, they stay as long as the disk has room."),
]


def cache_folder(given: Path | None, state_dir: Path) -> Path:
    """Return the folder of the copies."""
    return given or state_dir / "models"


def cache_limit(given_mb: int | None) -> int | None:
    """Return the largest size of the copies [byte]; None: as the disk permits."""
    return None if given_mb is None else given_mb * 1_000_000
