# SPDX-License-Identifier: Apache-2.0
"""The signatures of a SavedModel, read without TensorFlow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from serving_proxy import messages
from serving_proxy.errors import InvalidError, NotFoundError, PreconditionError
from serving_proxy.system.files import read_regular

# TensorFlow's DataType, by number.
DTYPES = (
    "invalid", "float32", "float64", "int32", "uint8", "int16", "int8", "string", "complex64", "int64", "bool",
    "qint8", "quint8", "qint32", "bfloat16", "qint16", "quint16", "uint16", "complex128", "float16", "resource",
    "variant", "uint32", "uint64",
)  # fmt: skip
_HIDDEN = "__saved_model_"
_OWN_OPS = "Rec"
# Largest message that protobuf can read.
_MOST_BYTES = 2**31 - 1

Signatures = dict[str, dict[str, dict[str, dict[str, Any]]]]
"""Signature, `inputs` or `outputs`, name: its `dtype` and `shape`; -1 is any size, a shape of None any rank."""


def check_graph(folder: Path) -> None:
    """Raise `NotFoundError` if the folder is not that of a SavedModel."""
    if not any(os.path.isfile(folder / name) for name in ("saved_model.pb", "saved_model.pbtxt")):
        raise NotFoundError(f"{folder}: no saved_model.pb, expected the folder of a SavedModel")


def is_live(folder: Path) -> bool:
    """Return whether a SavedModel can follow a timeline."""
    return os.path.isfile(folder / "assets" / "live.json")


def check_live(folder: Path) -> None:
    """Raise `PreconditionError` if a SavedModel cannot follow a timeline."""
    if not is_live(folder):
        raise PreconditionError(
            f"{folder}: a model that is not live, expected what `graph-tools optimize --live` makes of its export "
            "(deploy --optimize does it), or a new version for changes, made by `graph-tools delta apply`"
        )


def read_meta_graph(folder: Path) -> Any:
    """Read the graph of a SavedModel that is served, as a `MetaGraphDef`.

    Raises
    ------
    NotFoundError, InvalidError
        There is no graph, or it is damaged.
    """
    binary, text = folder / "saved_model.pb", folder / "saved_model.pbtxt"
    message = messages.new("tensorflow.SavedModel")
    check_graph(folder)
    try:
        if binary.is_file():
            message.ParseFromString(read_regular(binary, _MOST_BYTES))
        else:
            pool = message.DESCRIPTOR.file.pool
            data = read_regular(text, _MOST_BYTES)
            text_format.Parse(data, message, allow_unknown_field=True, descriptor_pool=pool)
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise InvalidError(f"{folder}: a graph that does not parse, expected a SavedModel") from error
    except RecursionError as error:
        raise InvalidError(f"{folder}: messages within messages too deep to read, expected a SavedModel") from error
    graphs = [graph for graph in message.meta_graphs if "serve" in graph.meta_info_def.tags] or list(
        message.meta_graphs
    )
    if len(graphs) != 1:
        raise InvalidError(f"{folder}: {len(graphs)} graphs, expected one with the tag 'serve'")
    return graphs[0]


def read_signatures(folder: Path) -> Signatures:
    """Read the signatures that clients may use of a SavedModel.

    Raises
    ------
    NotFoundError, InvalidError
        There is no graph, or it is damaged, or it has no signature to serve.
    """
    return signatures_of(folder, read_meta_graph(folder))


def signatures_of(folder: Path, graph: Any) -> Signatures:
    """Return the signatures that clients may use of a SavedModel's graph; raise the errors of `read_signatures`."""
    found = {
        name: {"inputs": _tensors(signature.inputs), "outputs": _tensors(signature.outputs)}
        for name, signature in sorted(graph.signature_def.items())
        if not name.startswith(_HIDDEN) and signature.outputs
    }
    if not found:
        raise InvalidError(f"{folder}: no signature with outputs, expected one to serve")
    return found


def own_ops(graph: Any) -> tuple[str, ...]:
    """Return the ops of a SavedModel's graph that only hosts have, and no TensorFlow, sorted."""
    functions = graph.graph_def.library.function
    names = {node.op for node in graph.graph_def.node}
    names |= {node.op for function in functions for node in function.node_def}
    defined = {function.signature.name for function in functions}
    return tuple(sorted(name for name in names - defined if name.startswith(_OWN_OPS)))


def differences(old: Signatures, new: Signatures) -> list[str]:
    """Return the reasons, one sentence each, why clients of the old model could not use the new one.

    An additional signature does no harm. A dimension that only one of the models leaves open is not a difference.
    """
    found = []
    for name, signature in sorted(old.items()):
        if name not in new:
            found.append(f"signature '{name}' is missing")
            continue
        for kind in ("inputs", "outputs"):
            found += _tensor_differences(f"{kind[:-1]} of '{name}'", signature[kind], new[name][kind])
    return found


def _tensor_differences(named: str, old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> list[str]:
    found = [f"{named}: '{name}' is missing" for name in sorted(old.keys() - new.keys())]
    found += [f"{named}: '{name}' is there in addition" for name in sorted(new.keys() - old.keys())]
    for name in sorted(old.keys() & new.keys()):
        if old[name]["dtype"] != new[name]["dtype"]:
            found.append(f"{named}: '{name}' is {new[name]['dtype']} instead of {old[name]['dtype']}")
        elif not _fits(old[name]["shape"], new[name]["shape"]):
            found.append(f"{named}: '{name}' has shape {new[name]['shape']} instead of {old[name]['shape']}")
    return found


def _fits(old: list[int] | None, new: list[int] | None) -> bool:
    if old is None or new is None:
        return True
    return len(old) == len(new) and all(a == b or -1 in {a, b} for a, b in zip(old, new, strict=True))


def _tensors(tensors: Any) -> dict[str, dict[str, Any]]:
    return {
        name: {"dtype": _dtype(tensor.dtype), "shape": _shape(tensor.tensor_shape)}
        for name, tensor in sorted(tensors.items())
    }


def _dtype(number: int) -> str:
    return DTYPES[number] if 0 <= number < len(DTYPES) else f"dtype {number}"


def _shape(shape: Any) -> list[int] | None:
    return None if shape.unknown_rank else [dimension.size for dimension in shape.dim]
