# SPDX-License-Identifier: Apache-2.0
"""Declare the custom ops of training systems, as `stripped_op_list` of an export describes them."""

from __future__ import annotations

import os
import re
from typing import Any

__all__ = ["OPS", "define_op", "load_tensorflow"]

# Op: inputs, outputs; `name: type`, a type being TensorFlow's or an attribute; `N * type` for as many as attribute N,
# `[T]` for a list of types.
OPS = {
    "KvVarHandleOp": ("", "resource: resource"),
    "InitializeKvVariableOp": (
        "resource_self: resource, resource_primary: resource, value: dtype, empty_key: Tkeys",
        "",
    ),
    "KvResourceGather": ("resource: resource, indices: Tkeys, default_value: dtype", "output: dtype"),
    "KvResourceGatherV1": (
        "resource: resource, indices: Tkeys, default_value: dtype, counts: counts_type",
        "output: dtype",
    ),
    "KvResourceImportV2": (
        "prefix: string, resource_self: resource, resource_primary: resource, value: dtype, tensor_names: string, "
        "empty_key: Tkeys",
        "",
    ),
    "GroupEmbeddingVarLookup": (
        "resource: num_lookups * resource, sp_values: num_lookups * Tkeys",
        "output: num_lookups * dtype",
    ),
    "KvVariable": ("", "table_handle: resource"),
    "KvVariableV2": ("", "table_handle: resource"),
    "KvVariableV3": ("", "table_handle: resource"),
    "KvVariableV4": ("", "table_handle: resource"),
    "KvVariableGatherOrZerosV2": ("table_handle: resource, indices: Tindices", "output: dtype"),
    "KvVariableGatherOrInsertV2": ("table_handle: resource, indices: Tindices", "output: dtype"),
    "KvVariableGatherOrInsertWithCounts": ("table_handle: resource, indices: Tindices, counts: int32", "output: dtype"),
    "KvVariableGatherV2": ("table_handle: resource, indices: Tindices, use_init_value: bool", "output: dtype"),
    "BatchKvVariableGatherOrZerosV2": ("table_handles: N * resource, indices: N * Tindices", "output: N * dtype"),
    "KvVariableFullOrDeltaImport": (
        "table_handle: resource, keys: Tin, values: Tout, init_table: Tout, blacklist: Tin, freq_keys: Tin, "
        "freq_values: uint32, need_full_import: bool, delete_keys: Tin",
        "",
    ),
    "TFRA>CuckooHashTableOfTensors": ("", "table_handle: resource"),
    "TFRA>CuckooHashTableFind": ("table_handle: resource, keys: Tin, default_value: Tout", "values: Tout"),
    "TFRA>CuckooHashTableFindWithExists": (
        "table_handle: resource, keys: Tin, default_value: Tout",
        "values: Tout, exists: bool",
    ),
    "TFRA>CuckooHashTableImport": ("table_handle: resource, keys: Tin, values: Tout", ""),
    "TFRA>HkvHashTableOfTensors": ("", "table_handle: resource"),
    "TFRA>HkvHashTableFind": (
        "table_handle: resource, keys: key_dtype, default_value: value_dtype",
        "values: value_dtype",
    ),
    "TFRA>RedisTableOfTensors": ("", "table_handle: resource"),
    "TFRA>RedisTableFind": ("table_handle: resource, keys: Tin, default_value: Tout", "values: Tout"),
    "TFRA>DynamicPartition": ("data: T, partitions: int32", "outputs: num_partitions * T"),
    "TFRA>DynamicStitchFast": ("indices: N * int32, data: N * T", "merged: T"),
    "Nobody>Knows": ("x: T", "y: T"),
}  # fmt: skip


def load_tensorflow() -> Any:
    """Import TensorFlow without its log lines."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    return tf


def define_op(name: str, inputs: str, outputs: str) -> Any:
    """Return the OpDef for a line of `OPS`; the first use of an attribute decides whether it is a number."""
    from tensorflow.core.framework import op_def_pb2

    definition = op_def_pb2.OpDef(name=name, is_stateful=True)
    attrs: dict[str, str] = {}
    for text, arguments in ((inputs, definition.input_arg), (outputs, definition.output_arg)):
        for declaration in filter(None, map(str.strip, text.split(","))):
            match = re.fullmatch(r"(\w+): (?:(\w+) \* )?(\[\w+\]|\w+)", declaration)
            assert match, declaration
            argument = arguments.add(name=match[1])
            if match[2]:
                argument.number_attr = match[2]
                attrs.setdefault(match[2], "int")
            if match[3].startswith("["):
                argument.type_list_attr = match[3][1:-1]
                attrs.setdefault(match[3][1:-1], "list(type)")
            elif match[3] in {"resource", "string", "int32", "int64", "float32", "bool", "uint32"}:
                argument.type = load_tensorflow().as_dtype(match[3]).as_datatype_enum
            else:
                argument.type_attr = match[3]
                attrs.setdefault(match[3], "type")
    for attribute, kind in attrs.items():
        definition.attr.add(name=attribute, type=kind)
    return definition
