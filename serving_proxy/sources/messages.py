# SPDX-License-Identifier: Apache-2.0
"""The protobuf messages that the proxy reads, built at run time in a pool of their own.

TensorFlow registers the same names in protobuf's default pool. A separate pool avoids conflicts, and TensorFlow need
not
be imported. Fields that are not described here are kept or skipped, as protobuf does with unknown fields.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "int32": _FIELD.TYPE_INT32,
    "int64": _FIELD.TYPE_INT64,
    "uint32": _FIELD.TYPE_UINT32,
    "bool": _FIELD.TYPE_BOOL,
    "float": _FIELD.TYPE_FLOAT,
}

_ENUMS = {"ModelType": ("MODEL_TYPE_UNSPECIFIED", "TENSORFLOW", "OTHER")}

# Message: its fields, each `name: (number, type)`. "[]" repeats, "<>" is a map with string keys, "|" is in a oneof.
_SERVING = {
    "Latest": {"num_versions": (1, "uint32")},
    "All": {},
    "Specific": {"versions": (1, "[]int64")},
    "ServableVersionPolicy": {"latest": (100, "|Latest"), "all": (101, "|All"), "specific": (102, "|Specific")},
    "SamplingConfig": {"sampling_rate": (1, "float")},
    "LogCollectorConfig": {"type": (1, "string"), "filename_prefix": (2, "string")},
    "LoggingConfig": {"log_collector_config": (1, "LogCollectorConfig"), "sampling_config": (2, "SamplingConfig")},
    "ModelConfig": {
        "name": (1, "string"),
        "base_path": (2, "string"),
        "model_type": (3, "ModelType"),
        "model_platform": (4, "string"),
        "logging_config": (6, "LoggingConfig"),
        "model_version_policy": (7, "ServableVersionPolicy"),
        "version_labels": (8, "<>int64"),
    },
    "ModelConfigList": {"config": (1, "[]ModelConfig")},
    "ModelServerConfig": {
        "model_config_list": (1, "|ModelConfigList"),
        "custom_model_config": (2, "|google.protobuf.Any"),
    },
    "Int64Value": {"value": (1, "int64")},
    "StringValue": {"value": (1, "string")},
    "BoolValue": {"value": (1, "bool")},
    "BatchingParameters": {
        "max_batch_size": (1, "Int64Value"),
        "batch_timeout_micros": (2, "Int64Value"),
        "max_enqueued_batches": (3, "Int64Value"),
        "num_batch_threads": (4, "Int64Value"),
        "thread_pool_name": (5, "StringValue"),
        "allowed_batch_sizes": (6, "[]int64"),
        "pad_variable_length_inputs": (7, "bool"),
        "enable_large_batch_splitting": (8, "BoolValue"),
        "max_execution_batch_size": (9, "Int64Value"),
    },
    "ReloadConfigRequest": {"config": (1, "ModelServerConfig"), "metric_names": (2, "[]string")},
}
_SAVED_MODEL = {
    "Dim": {"size": (1, "int64"), "name": (2, "string")},
    "TensorShapeProto": {"dim": (2, "[]Dim"), "unknown_rank": (3, "bool")},
    "TensorInfo": {"name": (1, "string"), "dtype": (2, "int32"), "tensor_shape": (3, "TensorShapeProto")},
    "SignatureDef": {
        "inputs": (1, "<>TensorInfo"),
        "outputs": (2, "<>TensorInfo"),
        "method_name": (3, "string"),
    },
    "TensorProto": {"string_val": (8, "[]bytes")},
    "NameAttrList": {"name": (1, "string")},
    "ListValue": {"s": (2, "[]bytes"), "func": (9, "[]NameAttrList")},
    "AttrValue": {
        "list": (1, "|ListValue"),
        "s": (2, "|bytes"),
        "tensor": (8, "|TensorProto"),
        "func": (10, "|NameAttrList"),
    },
    "NodeDef": {"name": (1, "string"), "op": (2, "string"), "input": (3, "[]string"), "attr": (5, "<>AttrValue")},
    "ArgDef": {"name": (1, "string")},
    "OpDef": {"name": (1, "string"), "input_arg": (2, "[]ArgDef")},
    "FunctionDef": {"signature": (1, "OpDef"), "node_def": (3, "[]NodeDef")},
    "FunctionDefLibrary": {"function": (1, "[]FunctionDef")},
    "GraphDef": {"node": (1, "[]NodeDef"), "library": (2, "FunctionDefLibrary")},
    "NodeList": {"value": (1, "[]string")},
    "CollectionDef": {"node_list": (1, "NodeList")},
    "AssetFileDef": {"tensor_info": (1, "TensorInfo"), "filename": (2, "string")},
    "MetaInfoDef": {"tags": (4, "[]string")},
    "MetaGraphDef": {
        "meta_info_def": (1, "MetaInfoDef"),
        "graph_def": (2, "GraphDef"),
        "collection_def": (4, "<>CollectionDef"),
        "signature_def": (5, "<>SignatureDef"),
        "asset_file_def": (6, "[]AssetFileDef"),
    },
    "SavedModel": {"saved_model_schema_version": (1, "int64"), "meta_graphs": (2, "[]MetaGraphDef")},
}
_INFERENCE = {
    "ModelRepositoryParameter": {},
    **{
        f"RepositoryModel{verb}Request": {
            "repository_name": (1, "string"),
            "model_name": (2, "string"),
            "parameters": (3, "<>ModelRepositoryParameter"),
        }
        for verb in ("Load", "Unload")
    },
}
_FILES = {"tensorflow.serving": _SERVING, "tensorflow": _SAVED_MODEL, "inference": _INFERENCE}


def new(name: str) -> Any:
    """Make an empty message, such as `tensorflow.serving.ModelServerConfig`."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))()


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb)
    for package, messages in _FILES.items():
        file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
        file.dependency.append("google/protobuf/any.proto")
        if package == "tensorflow.serving":
            for name, values in _ENUMS.items():
                enum = file.enum_type.add(name=name)
                for number, value in enumerate(values):
                    enum.value.add(name=value, number=number)
        for name, fields in messages.items():
            _add_message(file, name, fields)
        pool.Add(file)
    return pool


def _add_message(file: Any, name: str, fields: dict[str, tuple[int, str]]) -> None:
    message = file.message_type.add(name=name)
    for field_name, (number, kind) in fields.items():
        field = message.field.add(name=field_name, number=number, label=_FIELD.LABEL_OPTIONAL)
        if kind.startswith("|"):
            field.oneof_index = 0
            if not message.oneof_decl:
                message.oneof_decl.add(name="choice")
        elif kind.startswith("[]"):
            field.label = _FIELD.LABEL_REPEATED
        elif kind.startswith("<>"):
            entry = message.nested_type.add(name=f"{field_name.title().replace('_', '')}Entry")
            entry.options.map_entry = True
            _set_type(entry.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL), "string", file.package)
            value = entry.field.add(name="value", number=2, label=_FIELD.LABEL_OPTIONAL)
            _set_type(value, kind[2:], file.package)
            field.label, field.type = _FIELD.LABEL_REPEATED, _FIELD.TYPE_MESSAGE
            field.type_name = f".{file.package}.{name}.{entry.name}"
            continue
        _set_type(field, kind.lstrip("|[]"), file.package)


def _set_type(field: Any, kind: str, package: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    elif kind in _ENUMS:
        field.type = _FIELD.TYPE_ENUM
        field.type_name = f".{package}.{kind}"
    else:
        field.type = _FIELD.TYPE_MESSAGE
        field.type_name = f".{kind}" if "." in kind else f".{package}.{kind}"
