# SPDX-License-Identifier: Apache-2.0
"""Add tables and lookups of TensorFlow Recommenders Addons to an export."""

from __future__ import annotations

from typing import Any

from load_tests.workloads.sparse_exports.export import Array, Export

__all__ = ["tfra_lookup", "tfra_table"]


def tfra_table(
    export: Export,
    name: str,
    keys: Array,
    rows: Array,
    shard: tuple[int, int] = (0, 1),
    *,
    op: str = "TFRA>CuckooHashTableOfTensors",
    restored: bool = True,
    to_checkpoint: bool = True,
) -> str:
    """Add a shard of a Variable, as TF 1's Saver names it."""
    stem = f"{name.replace('/', '_')}_mht_{shard[0] + 1}of{shard[1]}"
    export.node(
        op, name=stem, shared_name=stem, container="", key_dtype=keys.dtype, value_dtype="float32",
        value_shape=(rows.shape[1],), use_node_name_sharing=False,
    )  # fmt: skip
    if to_checkpoint:
        export.saved |= {f"{stem}-keys": keys, f"{stem}-values": rows}
    if restored:
        inputs = [
            export.restored(f"{stem}-{part}", dtype) for part, dtype in (("keys", keys.dtype), ("values", "float32"))
        ]
        export.on_restore(export.node("TFRA>CuckooHashTableImport", [stem, *inputs], Tin=keys.dtype, Tout="float32"))
    return stem


def tfra_lookup(export: Export, handle: str, ids: str, default: str, tkeys: Any = "int64", exists: bool = False) -> str:
    op = "TFRA>CuckooHashTableFind" + ("WithExists" if exists else "")
    return export.node(op, [handle, ids, default], Tin=tkeys, Tout="float32")
