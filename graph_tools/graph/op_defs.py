# SPDX-License-Identifier: Apache-2.0
"""Properties of ops: names, number and dtypes of their outputs, statefulness."""

from __future__ import annotations

from typing import Any

from graph_tools.graph.node import Node

# Serving needs none of these ops for an effect; they read, or create their result.
_HARMLESS = {
    "Placeholder", "PlaceholderWithDefault", "VarHandleOp", "VariableV2", "Variable", "ReadVariableOp",
    "HashTableV2", "MutableHashTableV2", "MutableHashTableOfTensorsV2", "MutableDenseHashTableV2", "HashTable",
    "MutableHashTable", "MutableDenseHashTable", "LookupTableFindV2", "LookupTableFind",
    "LookupTableSizeV2", "ResourceGather",
    "ResourceGatherNd", "VarIsInitializedOp", "AnonymousHashTable", "AnonymousMutableHashTable",
    "RecEmbeddingTable", "RecEmbeddingGroup",
    "TruncatedNormal", "Multinomial", "ParameterizedTruncatedNormal",
}  # fmt: skip


def op_def(op: str, known: dict[str, Any] | None = None) -> Any | None:
    """Return the OpDef of an op from TensorFlow, or else from the export; None if neither describes it."""
    from tensorflow.python.framework import op_def_registry

    found = op_def_registry.get(op)
    return found if found is not None else (known or {}).get(op)


def is_native(op: str) -> bool:
    """Return whether stock TensorFlow has the op."""
    from tensorflow.python.framework import op_def_registry

    return op_def_registry.get(op) is not None


def writes(node: Node) -> bool:
    """Return whether a node has an effect: it assigns, inserts, prints or asserts."""
    if node.op in _HARMLESS:
        return False
    described = op_def(node.op)
    return bool(described is not None and described.is_stateful) and not node.op.startswith("Random")


def output_lengths(definition: Any, attrs: dict[str, Any]) -> list[tuple[str, int]]:
    """Return (name, number of tensors) for each output of an op, in order."""
    return [(argument.name, argument_length(argument, attrs)) for argument in definition.output_arg]


def argument_length(argument: Any, attrs: dict[str, Any]) -> int:
    """Return the number of tensors of an argument: one, the value of an int attribute, or the length of a type list."""
    if argument.number_attr:
        return int(attrs[argument.number_attr].i)
    if argument.type_list_attr:
        return len(attrs[argument.type_list_attr].list.type)
    return 1


def output_types(definition: Any, attrs: dict[str, Any]) -> list[int]:
    """Return the DataType numbers of an op's outputs, in order."""
    return _types(definition.output_arg, definition, attrs)


def input_types(definition: Any, attrs: dict[str, Any]) -> list[int]:
    """Return the DataType numbers of an op's inputs, in order."""
    return _types(definition.input_arg, definition, attrs)


def with_defaults(definition: Any, attrs: dict[str, Any]) -> dict[str, Any]:
    """Return attributes, with those that are not written because they have the op's default."""
    return {attr.name: attr.default_value for attr in definition.attr if attr.HasField("default_value")} | dict(attrs)


def _types(arguments: Any, definition: Any, attrs: dict[str, Any]) -> list[int]:
    attrs = with_defaults(definition, attrs)
    types: list[int] = []
    for argument in arguments:
        if argument.type_list_attr:
            types.extend(attrs[argument.type_list_attr].list.type)
            continue
        number = argument.type or attrs[argument.type_attr].type
        types.extend([number] * argument_length(argument, attrs))
    return types


def tf_type(number: int) -> Any:
    """Return TensorFlow's dtype of a DataType number."""
    import tensorflow as tf

    return tf.as_dtype(number)
