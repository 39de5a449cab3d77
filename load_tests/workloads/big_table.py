# SPDX-License-Identifier: Apache-2.0
"""A TFPlus export with one table of 1.2 GB, none of whose rows is zero."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.bundle import BundleWriter
from graph_tools.tensors import StreamTensor
from load_tests.workloads import sparse_exports
from load_tests.workloads._cache import CACHE

ROWS, DIM = 16_000_000, 16


def ensure_big_table(rows: int = ROWS, cache: Path = CACHE) -> Path:
    """Answer the SavedModel, exporting it if the cache does not hold it."""
    folder = cache / f"big-table-{rows}"
    if folder.is_dir():
        return folder
    export = sparse_exports.Export()
    keys, few = np.arange(8, dtype=np.int64), np.ones((8, DIM), np.float32)
    table = sparse_exports.tfplus_table(export, "item", keys, few)
    found = sparse_exports.tfplus_lookup(export, table, export.input("ids"))
    scratch = folder.with_suffix(".part")
    export.finish(scratch, [found], DIM)
    small = dict(export.saved)
    for file in (scratch / "variables").iterdir():
        file.unlink()
    with BundleWriter(scratch / "variables" / "variables") as bundle:
        for name in sorted(small):
            if name == "item-keys":
                bundle.add(name, StreamTensor(np.dtype(np.int64), (rows,), lambda block: _keys(rows, block)))
            elif name == "item-values":
                bundle.add(name, StreamTensor(np.dtype(np.float32), (rows, DIM), lambda block: _rows(rows, block)))
            else:
                bundle.add(name, _whole(small[name]))
        bundle.finish()
    return scratch.rename(folder)


def _whole(value: Any) -> Any:
    from graph_tools.tensors import ArrayTensor

    return ArrayTensor(np.asarray(value))


def _keys(rows: int, block: int) -> Iterator[np.ndarray[Any, Any]]:
    """Distinct keys all over the range: an odd factor permutes the integers modulo 2**64."""
    for begin in range(0, rows, block):
        numbers = np.arange(begin, min(begin + block, rows), dtype=np.uint64)
        yield (numbers * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)


def _rows(rows: int, block: int) -> Iterator[np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    pattern = random.normal(scale=0.1, size=(block, DIM)).astype(np.float32)
    for begin in range(0, rows, block):
        chunk = pattern[: min(block, rows - begin)].copy()
        chunk[:, 0] = np.arange(begin, begin + len(chunk))  # so that no two rows are equal
        yield chunk
