# SPDX-License-Identifier: Apache-2.0
"""Find the parts of a distributed Monolith export: `entry/<version>` next to `ps_0/<version>`, `ps_1/<version>`."""

from __future__ import annotations

import re
from pathlib import Path

from graph_tools.errors import UnreadableError
from graph_tools.readers.saved_model import is_saved_model

ENTRY = "entry"

_SERVER = re.compile(r"^ps_(\d+)$")


def find_entry(path: Path) -> Path:
    """Return the entry's SavedModel of a distributed export, or the path itself if it is not such an export.

    Parameters
    ----------
    path : Path
        The export's folder, its `entry`, or one version of the entry. If there are several versions, the last is used.
    """
    if is_saved_model(path):
        return path
    for folder in (path / ENTRY, path if path.name == ENTRY else None):
        if folder is not None and folder.is_dir():
            versions = _versions(folder)
            if is_saved_model(folder) or versions:
                return versions[max(versions)] if versions else folder
    return path


def find_servers(entry: Path) -> dict[int, Path]:
    """Return the SavedModels of the parameter servers next to an entry, by number.

    Raises
    ------
    UnreadableError
        The versions of a server differ from that of the entry.
    """
    versioned = entry.parent.name == ENTRY
    if not versioned and entry.name != ENTRY:
        return {}
    base = entry.parent.parent if versioned else entry.parent
    found = {}
    for folder in sorted(base.iterdir()):
        match = _SERVER.match(folder.name)
        if match is None or not folder.is_dir():
            continue
        path = folder / entry.name if versioned else folder
        if not is_saved_model(path):
            have = ", ".join(str(version) for version in sorted(_versions(folder))) or "no SavedModel"
            expected = f"version {entry.name}" if versioned else "a SavedModel"
            raise UnreadableError(f"{folder}: {have}, expected {expected}, as {entry} has")
        found[int(match[1])] = path
    return found


def _versions(folder: Path) -> dict[int, Path]:
    return {int(path.name): path for path in folder.iterdir() if path.name.isdigit() and is_saved_model(path)}
