# SPDX-License-Identifier: Apache-2.0
"""Test that spilled arrays are read as they were added, and that their files are removed."""

import os
from pathlib import Path

import numpy as np
import pytest

from graph_tools.store.spill import SpillFolder


def _strings(*texts: bytes) -> np.ndarray:
    found = np.empty(len(texts), object)
    found[:] = texts
    return found


def test_arrays_grow_by_blocks(tmp_path: Path) -> None:
    with SpillFolder(tmp_path) as spill:
        rows, keys = spill.array(np.float32, (2,)), spill.keys(np.dtype(object))
        nothing, none = spill.array(np.int64), spill.keys(np.dtype(object))
        for begin in range(3):
            rows.add(np.full((begin, 2), begin, np.float32))
            keys.add(_strings(*[b"a\0" * number for number in range(begin)]))
        np.testing.assert_array_equal(rows.finish().read(), [[1, 1], [2, 2], [2, 2]])
        assert keys.finish().read().tolist() == [b"", b"", b"a\0"]
        assert nothing.finish().shape == none.finish().shape == (0,)
    assert not list(tmp_path.iterdir())


def test_files_are_removed_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), SpillFolder(tmp_path) as spill:
        spill.array(np.int64).add(np.arange(3))
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_folder_of_a_killed_process_is_removed_after_a_day(tmp_path: Path) -> None:
    old, new = tmp_path / ".spill.old", tmp_path / ".spill.new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "1").touch()
        os.utime(folder, (0, 0))
    os.utime(old / "1", (0, 0))
    with SpillFolder(tmp_path):
        assert not old.exists()
        assert new.exists()
