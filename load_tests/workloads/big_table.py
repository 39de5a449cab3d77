# SPDX-License-Identifier: Apache-2.0
"""Create a TFPlus export with one large table: by default 1.2 GB, without zero rows.

python -m load_tests.workloads.big_table FOLDER --rows 16000000 --zero-share 0.5
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from graph_tools.bundle import BundleWriter
from graph_tools.tensors import StreamTensor
from load_tests.workloads import sparse_exports
from load_tests.workloads._cache import CACHE

ROWS, DIM = 16_000_000, 16
#: Bytes of a key with its row.
ROW_BYTES = 8 + 4 * DIM


def ensure_big_table(rows: int = ROWS, cache: Path = CACHE) -> Path:
    """Return the SavedModel; export it if the cache does not contain it."""
    folder = cache / f"big-table-{rows}"
    if not folder.is_dir():
        scratch = folder.with_suffix(".part")
        export_big_table(scratch, rows)
        scratch.rename(folder)
    return folder


def export_big_table(folder: Path, rows: int, zero_share: float = 0.0) -> None:
    """Export a table with `rows` rows, some of them zero, into a folder that does not exist yet."""
    export = sparse_exports.Export()
    keys, few = np.arange(8, dtype=np.int64), np.ones((8, DIM), np.float32)
    table = sparse_exports.tfplus_table(export, "item", keys, few)
    found = sparse_exports.tfplus_lookup(export, table, export.input("ids"))
    export.finish(folder, [found], DIM)
    small = dict(export.saved)
    for file in (folder / "variables").iterdir():
        file.unlink()
    with BundleWriter(folder / "variables" / "variables") as bundle:
        for name in sorted(small):
            if name == "item-keys":
                bundle.add(name, StreamTensor(np.dtype(np.int64), (rows,), lambda block: _keys(rows, block)))
            elif name == "item-values":
                shape = (rows, DIM)
                bundle.add(
                    name, StreamTensor(np.dtype(np.float32), shape, lambda block: _rows(rows, block, zero_share))
                )
            else:
                bundle.add(name, _whole(small[name]))
        bundle.finish()


def _whole(value: Any) -> Any:
    from graph_tools.tensors import ArrayTensor

    return ArrayTensor(np.asarray(value))


def _keys(rows: int, block: int) -> Iterator[np.ndarray[Any, Any]]:
    """Return distinct keys over the whole range: an odd factor permutes the integers modulo 2**64."""
    for begin in range(0, rows, block):
        numbers = np.arange(begin, min(begin + block, rows), dtype=np.uint64)
        yield (numbers * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)


def _rows(rows: int, block: int, zero_share: float) -> Iterator[np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    pattern = random.normal(scale=0.1, size=(block, DIM)).astype(np.float32)
    zero = random.random(block) < zero_share
    for begin in range(0, rows, block):
        chunk = pattern[: min(block, rows - begin)].copy()
        chunk[:, 0] = np.arange(begin, begin + len(chunk))  # so that no two rows are equal
        chunk[zero[: len(chunk)]] = 0
        yield chunk


def main() -> None:
    """Export a table of a size that the caller chooses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder to write the model to")
    parser.add_argument("--rows", type=int, default=ROWS, help="number of rows")
    parser.add_argument("--zero-share", type=float, default=0.0, help="share of the rows that are zero")
    arguments = parser.parse_args()
    export_big_table(arguments.folder, arguments.rows, arguments.zero_share)


if __name__ == "__main__":
    main()
