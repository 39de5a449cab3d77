# SPDX-License-Identifier: Apache-2.0
"""Add tables and lookups of DeepRec to an export."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from load_tests.workloads.sparse_exports.export import Array, Export

__all__ = ["deeprec_lookup", "deeprec_table"]


def deeprec_table(
    export: Export,
    name: str,
    keys: Array,
    rows: Array,
    *,
    default: Array | None = None,
    random: bool = False,
    slots: Sequence[str] = (),
    saved: dict[str, tuple[Array, Array]] | None = None,
    offsets: bool = True,
    freqs: Array | None = None,
    filtered: Array | None = None,
    partition: tuple[int, int] = (0, 1),
    **attrs: Any,
) -> str:
    """Add an EmbeddingVariable with its initializer, its restore op, and its optimizer slots.

    Parameters
    ----------
    keys, rows : ndarray [n], [n, dim]
    default : ndarray [count, dim]
        Rows that the initializer gives to new keys; by default zeros [4, dim].
    random : bool
        The initializer draws random rows instead.
    saved : dict of name to (keys, rows)
        Content of the checkpoint, if that is not one table of this name.
    attrs
        Attributes of InitializeKvVariableOp.
    """
    dim, tkeys = rows.shape[1], keys.dtype
    matrix = np.zeros((4, dim), np.float32) if default is None else default
    attrs.setdefault("default_value_dim", len(matrix))
    common: dict[str, Any] = {"Tkeys": tkeys, "dtype": "float32", "shape": (dim,)}
    value = _initializer(export, name, matrix, random)
    empty = export.const(np.array(-1, tkeys) if tkeys.kind == "i" else b"")
    handles = []
    for variable in (name, *(f"{name}/{slot}" for slot in slots)):
        handles.append(export.node("KvVarHandleOp", name=variable, container="", shared_name=variable, **common))
        self_and_primary = [variable, name]
        export.node(
            "InitializeKvVariableOp", [*self_and_primary, value, empty], f"{variable}/Initialize",
            counter_type="uint64", **common, **attrs,
        )  # fmt: skip
        names = export.const(variable.encode())
        restore = export.node(
            "KvResourceImportV2", ["save/Const", *self_and_primary, value, names, empty], counter_type="uint64",
            partition_id=partition[0], partition_num=partition[1], **common, **attrs,
        )  # fmt: skip
        export.on_restore(restore)
        content = saved if saved is not None and variable == name else {variable: (keys, rows)}
        for stem, (saved_keys, saved_rows) in content.items():
            _save(export, stem, saved_keys, saved_rows, offsets, freqs, filtered)
    return handles[0]


def _initializer(export: Export, name: str, matrix: Array, random: bool) -> str:
    """Add the initializer of new keys: random rows, one value, or the rows of a matrix."""
    if random:
        shape = export.const(np.array(matrix.shape, np.int32))
        return export.node(
            "TruncatedNormal", [shape], f"{name}/Initializer/truncated_normal", T="int32", dtype="float32"
        )
    dims, first = export.const(np.array(matrix.shape, np.int32)), export.const(np.float32(matrix[0, 0]))
    if (matrix == matrix[0, 0]).all():
        return export.node("Fill", [dims, first], f"{name}/Initializer/fill", T="float32", index_type="int32")
    return export.const(matrix, f"{name}/Initializer/const")


def _save(
    export: Export, name: str, keys: Array, rows: Array, offsets: bool, freqs: Array | None, filtered: Array | None
) -> None:
    none = np.empty(0, np.int64)
    bucket = keys % 1000 if keys.dtype.kind == "i" else np.zeros(len(keys), np.int64)
    order = np.argsort(bucket, kind="stable")
    export.saved |= {
        f"{name}-keys": keys[order],
        f"{name}-values": rows[order],
        f"{name}-versions": np.arange(len(keys), dtype=np.int64),
        f"{name}-freqs": freqs[order] if freqs is not None else none,
        f"{name}-keys_filtered": filtered if filtered is not None else none,
        f"{name}-versions_filtered": none,
        f"{name}-freqs_filtered": np.ones(len(filtered), np.int64) if filtered is not None else none,
        f"{name}-partition_filter_offset": np.zeros(1001, np.int32),
    }
    if offsets:
        export.saved[f"{name}-partition_offset"] = np.searchsorted(bucket[order], np.arange(1001)).astype(np.int32)


def deeprec_lookup(
    export: Export,
    handle: str,
    ids: str,
    tkeys: Any = "int64",
    *,
    counts: bool = False,
    default: str = "",
    **attrs: Any,
) -> str:
    """Add a KvResourceGather, or V1 with counts; `default` is used if `is_use_default_value_tensor` is set."""
    given = default or export.const(np.float32(0.0))
    common: dict[str, Any] = {
        "Tkeys": tkeys,
        "dtype": "float32",
        "is_use_default_value_tensor": bool(default),
        "validate_indices": True,
    }
    if not counts:
        return export.node("KvResourceGather", [handle, ids, given], **common, **attrs)
    ones = export.const(np.ones(1, np.int32))
    return export.node("KvResourceGatherV1", [handle, ids, given, ones], counts_type="int32", **common, **attrs)
