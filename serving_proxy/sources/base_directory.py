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
    """Return the folders that are named by a version and contain a graph; None if the directory cannot be read.

    A version may be written with leading zeros, and the folder may be a link.
    """
    sorted_out = _sort_out(base)
    return None if sorted_out is None else sorted_out[0]


def _sort_out(base: Path) -> tuple[dict[int, Path], dict[str, str]] | None:
    """Return the folders of versions, and, by name, why other folders with numbers as names are not versions."""
    try:
        names = sorted(os.listdir(base))
    except OSError:
        return None
    found: dict[int, Path] = {}
    left_out: dict[str, str] = {}
    for name in names:
        folder = base / name
        # Not `Path.is_dir` or `Path.is_file`, which raise errors if storage refuses access or fails.
        if not name.isascii() or not name.isdecimal() or not os.path.isdir(folder):
            continue
        number, why = version_number(name)
        if number is None:
            left_out[name] = why
        elif not any(os.path.isfile(folder / graph) for graph in _GRAPHS):
            left_out[name] = f"has no {_GRAPHS[0]} yet"
        elif number in found:
            left_out[name] = f"has the same number as '{found[number].name}', which is used"
        else:
            found[number] = folder
    return found, left_out


def version_number(name: str) -> tuple[int | None, str]:
    """Return the version that decimal digits name, or None and the reason why requests cannot name it."""
    number = int(name)
    if 0 < number <= _LARGEST:
        return number, ""
    return None, f"is not a version that a request can name, expected 1 to {_LARGEST}"


class BaseDirectory:
    """Watches a base directory: a version counts once its files have not changed between two looks.

    So a model that is copied there without being renamed into place counts only when it is complete.

    Attributes
    ----------
    left_out : dict of str to str
        By name, why folders with numbers as names are not versions, if two looks have found so.
    seen : frozenset of int
        The versions of the last look, at rest or not.
    empty : bool
        Whether two looks have found no version.
    """

    def __init__(self, base: Path, stamp: Callable[[Path], str] = stamp_of) -> None:
        self.base = base
        self.left_out: dict[str, str] = {}
        self.seen: frozenset[int] = frozenset()
        self.empty = False
        self._stamp = stamp
        self._before: dict[int, str] | None = None
        self._left_out_before: dict[str, str] = {}

    def look(self) -> dict[int, tuple[Path, str]] | None:
        """Return folder and stamp of each version that is at rest; None if the directory cannot be read."""
        sorted_out = _sort_out(self.base)
        if sorted_out is None:
            return None
        folders, left_out = sorted_out
        before = self._before or {}
        stamps = {number: self._stamp(folder) for number, folder in folders.items()}
        still = {n: (folders[n], stamp) for n, stamp in stamps.items() if stamp and before.get(n) == stamp}
        self.seen = frozenset(stamps)
        self.empty = not stamps and self._before == {}
        self.left_out = {name: why for name, why in left_out.items() if self._left_out_before.get(name) == why}
        self._before, self._left_out_before = stamps, left_out
        return still
