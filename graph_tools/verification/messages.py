# SPDX-License-Identifier: Apache-2.0
"""Declare the messages of recorded requests by their field numbers, so that reading them needs no serving package."""

from __future__ import annotations

from functools import cache
from typing import Any

# Message -> (field, number, kind, repeated). A map is a list of entries on the wire. A message that need not be parsed
# is declared as bytes; TensorFlow's own tensor message is parsed from such bytes.
_FIELDS = {
    "PredictionLog": [("predict_log", 6, "PredictLog", False)],
    "PredictLog": [("request", 1, "PredictRequest", False)],
    "PredictRequest": [
        ("model_spec", 1, "ModelSpec", False),
        ("inputs", 2, "TensorEntry", True),
    ],
    "ModelSpec": [("name", 1, "string", False), ("signature_name", 3, "string", False)],
    "TensorEntry": [("key", 1, "string", False), ("value", 2, "bytes", False)],
    "EasRequest": [
        ("signature_name", 1, "string", False),
        ("inputs", 2, "ArrayEntry", True),
    ],
    "ArrayEntry": [("key", 1, "string", False), ("value", 2, "ArrayProto", False)],
    "ArrayShape": [("dim", 1, "int64", True)],
    "ArrayProto": [
        ("dtype", 1, "int32", False),
        ("array_shape", 2, "ArrayShape", False),
        ("float_val", 3, "float", True),
        ("double_val", 4, "double", True),
        ("int_val", 5, "int32", True),
        ("string_val", 6, "bytes", True),
        ("int64_val", 7, "int64", True),
        ("bool_val", 8, "bool", True),
    ],
}
_PACKAGE = "graph_tools.recorded"


@cache
def messages() -> dict[str, Any]:
    """Return the message classes by name, from a separate descriptor pool."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="graph_tools/recorded.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for key, number, kind, repeated in fields:
            known = kind in _FIELDS
            message.field.add(
                name=key,
                number=number,
                label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL,
                type=field.TYPE_MESSAGE if known else getattr(field, f"TYPE_{kind.upper()}"),
                type_name=f".{_PACKAGE}.{kind}" if known else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(found(f"{_PACKAGE}.{name}")) for name in _FIELDS}
