# SPDX-License-Identifier: Apache-2.0
"""Check that a model is an export, whose tables and variables have the names of the source model."""

from __future__ import annotations

from pathlib import Path

from graph_tools.errors import UsageError
from graph_tools.report.manifest import PLACE


def check_export(path: Path) -> None:
    """Raise `UsageError` if a model is the result of `cut`, `fuse` or `optimize`."""
    if (path / PLACE).exists():
        raise UsageError(f"{path}: an artifact of graph-tools, expected the export that it was made from")
