# SPDX-License-Identifier: Apache-2.0
"""Keep arrays in files while their length is not known yet."""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from graph_tools.bundle.output_file import OutputFile
from graph_tools.store.delta import StringKeys
from graph_tools.tensors import Array, ArrayTensor, TensorSource

_PREFIX = ".spill."
_ABANDONED_SECONDS = 86_400


class SpillFolder:
    """A hidden folder for spilled arrays; it is removed at the end of the `with` block.

    Folders that killed processes left behind are removed as well, if they were not written to for a day.

    Parameters
    ----------
    parent : Path
        An existing folder.
    """

    def __init__(self, parent: Path) -> None:
        for left in parent.glob(f"{_PREFIX}*"):
            # Another process may remove its own folder meanwhile.
            with contextlib.suppress(OSError):
                if time.time() - max(path.stat().st_mtime for path in (left, *left.glob("*"))) > _ABANDONED_SECONDS:
                    shutil.rmtree(left, ignore_errors=True)
        self._folder = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent)
        self._count = 0

    def __enter__(self) -> SpillFolder:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._folder.cleanup()

    def array(self, dtype: np.dtype[Any] | type, row_shape: tuple[int, ...] = ()) -> Spilled:
        """Return an empty array [0, *row_shape] that grows in a file."""
        return Spilled(self._file(), np.dtype(dtype), row_shape)

    def keys(self, dtype: np.dtype[Any]) -> Spilled | SpilledStrings:
        """Return an empty array of keys, int64 or strings."""
        if dtype.kind != "O":
            return self.array(np.int64)
        return SpilledStrings(self.array(np.uint64), self.array(np.uint8))

    def _file(self) -> OutputFile:
        self._count += 1
        file = OutputFile(Path(self._folder.name) / str(self._count), Path(self._folder.name))
        file.purpose = "intermediate data"
        return file


class Spilled:
    """An array that grows in a file."""

    def __init__(self, file: OutputFile, dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> None:
        self._file, self._dtype, self._row_shape = file, dtype, row_shape

    def add(self, block: Array) -> None:
        """Append rows [n, *row_shape]."""
        self._file.write(np.ascontiguousarray(block, self._dtype).reshape(-1).view(np.uint8))

    def finish(self) -> TensorSource:
        """Return the array, which is valid until the folder is removed."""
        return ArrayTensor(self.read())

    def read(self) -> Array:
        self._file.close()
        rows = self._file.size // (self._dtype.itemsize * math.prod(self._row_shape))
        if not rows:
            return np.empty((0, *self._row_shape), self._dtype)
        return np.asarray(np.memmap(self._file.path, self._dtype, "r", shape=(rows, *self._row_shape)))


class SpilledStrings:
    """An array of strings that grows in two files."""

    def __init__(self, ends: Spilled, data: Spilled) -> None:
        self._ends, self._data = ends, data
        self._end = np.uint64(0)
        self._ends.add(np.zeros(1, np.uint64))

    def add(self, block: Array) -> None:
        """Append strings [n]."""
        if not len(block):
            return
        ends = np.cumsum(np.fromiter(map(len, block), np.uint64, len(block)), dtype=np.uint64) + self._end
        self._end = ends[-1]
        self._ends.add(ends)
        self._data.add(np.frombuffer(b"".join(block.tolist()), np.uint8))

    def finish(self) -> TensorSource:
        """Return the array, which is valid until the folder is removed."""
        return StringKeys(self._ends.read(), self._data.read())
