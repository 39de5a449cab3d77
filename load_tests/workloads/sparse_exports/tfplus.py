# SPDX-License-Identifier: Apache-2.0
"""Add tables and lookups of TFPlus to an export."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from load_tests.workloads.sparse_exports.export import Array, Export

__all__ = ["tfplus_lookup", "tfplus_table"]


def tfplus_table(
    export: Export,
    name: str,
    keys: Array,
    rows: Array,
    *,
    op: str = "KvVariableV4",
    blacklist: Sequence[int] = (),
    delete_keys: Sequence[int] = (),
    freqs: tuple[Array, Array] | None = None,
    full: bool = True,
    slots: Sequence[str] = (),
) -> str:
    """Add a KvVariable with the ops that restore it, and its optimizer slots."""
    for variable in (name, *(f"{name}/{slot}" for slot in slots)):
        counted, words = freqs if freqs is not None else (keys[:0], np.empty(0, np.uint32))
        tensors = {
            "keys": keys, "values": rows, "init_table": np.full((5, rows.shape[1]), 0.5, np.float32),
            "blacklist": np.array(blacklist, keys.dtype), "freq_keys": counted, "freq_values": words,
            "need_full_import": np.array(full), "delete_keys": np.array(delete_keys, keys.dtype),
        }  # fmt: skip
        export.saved |= {f"{variable}-{key}": value for key, value in tensors.items()}
        common: dict[str, Any] = {"key_dtype": keys.dtype, "value_dtype": "float32"}
        common |= {"key_shape": (), "value_shape": (rows.shape[1],)}
        extra: dict[str, Any] = {"storage_option": b"mem"} if op == "KvVariableV4" else {}
        export.node(op, name=variable, shared_name=variable, container="", enter_threshold=0, **common, **extra)
        inputs = [export.restored(f"{variable}-{key}", value.dtype) for key, value in tensors.items()]
        export.on_restore(
            export.node("KvVariableFullOrDeltaImport", [variable, *inputs], Tin=keys.dtype, Tout="float32", first_n=8)
        )
    return name


def tfplus_lookup(
    export: Export, handle: str, ids: str, op: str = "KvVariableGatherOrZerosV2", tkeys: Any = "int64"
) -> str:
    more = {"KvVariableGatherV2": [np.array(False)], "KvVariableGatherOrInsertWithCounts": [np.ones(1, np.int32)]}
    inputs = [handle, ids, *(export.const(value) for value in more.get(op, ()))]
    return export.node(op, inputs, dtype="float32", Tindices=tkeys)
