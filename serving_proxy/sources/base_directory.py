# SPDX-License-Identifier: Apache-2.0
"""A base directory in the layout of TensorFlow Serving: `<base>/<version>/saved_model.pb`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from serving_proxy.gates.fingerprint import stamp_of

_GRAPHS = ("saved_model.pb", "saved_model.pbtxt")
_LARGEST = 2**63 - 1


def version_folders(base: Path) -> dict[int, Path] | None:
    """Return the folders whose names are versions and that hold a graph; None if the directory cannot be read.

    A version may be written with leading zeros or as a link.
    """
    try:
        names = sorted(os.listdir(base))
    except OSError:
        return None
    found: dict[int, Path] = {}
    for name in names:
        if name.isascii() and name.isdecimal() and 0 < int(name) <= _LARGEST:
            folder = base / name
            # Not `Path.is_file`, which raises where storage refuses or fails.
            if any(os.path.isfile(folder / graph) for graph in _GRAPHS):
                found.setdefault(int(name), folder)
    return found


class BaseDirectory:
    """Watches a base directory: a version counts once its files have not changed between two looks.

    Whoever copies a model there without renaming it into place is waited for.
    """

    def __init__(self, base: Path, stamp: Callable[[Path], str] = stamp_of) -> None:
        self.base = base
        self._stamp = stamp
        self._before: dict[int, str] = {}

    def look(self) -> dict[int, tuple[Path, str]] | None:
        """Return folder and stamp of each version that has come to rest; None if the directory cannot be read."""
        folders = version_folders(self.base)
        if folders is None:
            return None
        stamps = {number: self._stamp(folder) for number, folder in folders.items()}
        still = {n: (folders[n], stamp) for n, stamp in stamps.items() if stamp and self._before.get(n) == stamp}
        self._before = stamps
        return still
