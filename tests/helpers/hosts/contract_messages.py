# SPDX-License-Identifier: Apache-2.0
"""Declare the messages of the drop-in contract from its table instead of our files, and read them with protobuf."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_F = descriptor_pb2.FieldDescriptorProto
_ONE, _MANY = _F.LABEL_OPTIONAL, _F.LABEL_REPEATED
_PACKAGE = "tensorflow.eas"
# Message -> (field, number, type, label, message type).
_TABLE = {
    "ArrayShape": [("dim", 1, _F.TYPE_INT64, _MANY, None)],
    "ArrayProto": [
        ("dtype", 1, _F.TYPE_INT32, _ONE, None),  # an enum, which is the same on the wire
        ("array_shape", 2, _F.TYPE_MESSAGE, _ONE, "ArrayShape"),
        ("float_val", 3, _F.TYPE_FLOAT, _MANY, None),
        ("double_val", 4, _F.TYPE_DOUBLE, _MANY, None),
        ("int_val", 5, _F.TYPE_INT32, _MANY, None),
        ("string_val", 6, _F.TYPE_BYTES, _MANY, None),
        ("int64_val", 7, _F.TYPE_INT64, _MANY, None),
        ("bool_val", 8, _F.TYPE_BOOL, _MANY, None),
    ],
    "PredictRequest": [
        ("signature_name", 1, _F.TYPE_STRING, _ONE, None),
        ("inputs", 2, _F.TYPE_MESSAGE, _MANY, "PredictRequest.Entry"),
        ("output_filter", 3, _F.TYPE_STRING, _MANY, None),
    ],
    "PredictResponse": [("outputs", 1, _F.TYPE_MESSAGE, _MANY, "PredictResponse.Entry")],
    "ServingModelInfo": [("model_path", 1, _F.TYPE_STRING, _ONE, None)],
}
_MAP_ENTRY = [("key", 1, _F.TYPE_STRING, _ONE, None), ("value", 2, _F.TYPE_MESSAGE, _ONE, "ArrayProto")]
# Kind of NumPy dtype -> (number in the enum, field of the values).
_DTYPES = {
    "float32": (1, "float_val"),
    "float64": (2, "double_val"),
    "int32": (3, "int_val"),
    "object": (7, "string_val"),
    "int64": (9, "int64_val"),
    "bool": (10, "bool_val"),
}


@cache
def messages() -> dict[str, Any]:
    """Return the classes of the messages by name."""
    file = descriptor_pb2.FileDescriptorProto(name="contract.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _TABLE.items():
        message = file.message_type.add(name=name)
        _add_fields(message, fields)
        if any(type_name == f"{name}.Entry" for *_, type_name in fields):
            # A map is encoded as a list of entries; a list also permits cases that no map can express.
            _add_fields(message.nested_type.add(name="Entry"), _MAP_ENTRY)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    get = pool.FindMessageTypeByName
    return {name: message_factory.GetMessageClass(get(f"{_PACKAGE}.{name}")) for name in _TABLE}


def _add_fields(message: Any, fields: Iterable[tuple[str, int, int, int, str | None]]) -> None:
    for name, number, kind, label, type_name in fields:
        full = None if type_name is None else f".{_PACKAGE}.{type_name}"
        message.field.add(name=name, number=number, type=kind, label=label, type_name=full)


def make_request(inputs: Mapping[str, Any], signature: str = "", outputs: Iterable[str] = ()) -> Any:
    """Return a `PredictRequest` message; bytes objects become strings."""
    request = messages()["PredictRequest"](signature_name=signature, output_filter=list(outputs))
    for name, value in inputs.items():
        array = np.asarray(value)
        if array.dtype.kind == "S":
            array = array.astype(object)
        number, field = _DTYPES[array.dtype.name]
        entry = request.inputs.add(key=name)
        entry.value.dtype = number
        entry.value.array_shape.dim.extend(array.shape)
        getattr(entry.value, field).extend(array.ravel().tolist())
    return request


def encode(inputs: Mapping[str, Any], signature: str = "", outputs: Iterable[str] = ()) -> bytes:
    """Return a serialized `PredictRequest`."""
    data: bytes = make_request(inputs, signature, outputs).SerializeToString()
    return data


def decode(data: bytes) -> dict[str, np.ndarray]:
    """Return the outputs of a serialized `PredictResponse`."""
    arrays = {}
    for entry in messages()["PredictResponse"].FromString(data).outputs:
        (name, field) = next((n, f) for n, (number, f) in _DTYPES.items() if number == entry.value.dtype)
        array = np.array(list(getattr(entry.value, field)), dtype=name)
        assert entry.key not in arrays, f"output {entry.key!r} twice"
        arrays[entry.key] = array.reshape(tuple(entry.value.array_shape.dim))
    return arrays
