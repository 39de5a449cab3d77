# SPDX-License-Identifier: Apache-2.0
"""Export a table in which Group Lasso set 93 % of the rows to zero, in the format of each training system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from load_tests.workloads import sparse_exports
from load_tests.workloads._cache import CACHE

KEYS, DIM, ZERO_SHARE = 200_000, 16, 0.93
SYSTEMS = ("deeprec", "tfplus", "tfra")
Array = np.ndarray[Any, Any]


def lasso_table(seed: int = 0) -> tuple[Array, Array]:
    """Return keys [n] int64 over the whole range, and rows [n, dim] float32 of which `ZERO_SHARE` are zero."""
    random = np.random.default_rng(seed)
    keys = np.unique(random.integers(-(2**62), 2**62, KEYS + 1000))[:KEYS]
    random.shuffle(keys)
    rows = random.normal(scale=0.1, size=(KEYS, DIM)).astype(np.float32)
    rows[random.random(KEYS) < ZERO_SHARE] = 0
    return keys, rows


def default_matrix() -> Array:
    """Return rows [4096, dim] that DeepRec uses for absent keys by `key % 4096` if the initializer is not zero."""
    return np.random.default_rng(1).normal(scale=0.1, size=(4096, DIM)).astype(np.float32)


def ensure_lasso(system: str, *, zero_default: bool = True, cache: Path = CACHE) -> Path:
    """Return the SavedModel of a system; export it if the cache does not contain it."""
    folder = cache / "lasso" / (system if zero_default else f"{system}-matrix")
    if folder.is_dir():
        return folder
    keys, rows = lasso_table()
    export = sparse_exports.Export()
    ids = export.input("ids")
    if system == "deeprec":
        default = None if zero_default else default_matrix()
        table = sparse_exports.deeprec_table(export, "item", keys, rows, default=default)
        found = sparse_exports.deeprec_lookup(export, table, ids, DIM)
    elif system == "tfplus":
        table = sparse_exports.tfplus_table(export, "item", keys, rows)
        found = sparse_exports.tfplus_lookup(export, table, ids)
    else:
        table = sparse_exports.tfra_table(export, "item", keys, rows)
        found = sparse_exports.tfra_lookup(export, table, ids, export.const(np.zeros(DIM, np.float32)))
    return export.finish(folder, [found], DIM)
