# SPDX-License-Identifier: Apache-2.0
"""Remove large constants from a GraphDef file before it is parsed; they stay in the file, which is memory-mapped.

A parsed constant is copied by the parser, by every copy of the graph and by TensorFlow: 1.6 GB became 24 GB. Here a
node `Const w` becomes `VarHandleOp w/value → ReadVariableOp w`, as the pass `move_constants` would do later.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from graph_tools.bundle.varints import decode
from graph_tools.tensors import ArrayTensor, TensorSource

#: Nodes with more bytes than this are examined.
LIMIT = 4 << 20

# Fields of GraphDef, NodeDef, the entries of a map, AttrValue and TensorProto.
_NODE, _ATTR, _KEY, _VALUE, _TENSOR, _CONTENT = 1, 5, 1, 2, 8, 4
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5

Buffer = mmap.mmap
Span = tuple[int, int]


def split_graph_def(path: Path) -> tuple[bytes, dict[str, TensorSource]]:
    """Split a GraphDef file.

    Returns
    -------
    bytes
        A GraphDef message without the elements of large constants.
    dict of str to TensorSource
        The elements, by the name of the variable that replaces each constant.

    Raises
    ------
    ValueError
        The file is not a message.
    """
    if path.stat().st_size <= LIMIT:
        return path.read_bytes(), {}
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    rest = bytearray()
    found: dict[str, TensorSource] = {}
    for begin, field, content in _fields(mapped, (0, len(mapped))):
        if field == _NODE and content[1] - content[0] > LIMIT:
            made = _without_elements(mapped, content, found)
            if made is not None:
                rest += made
                continue
        rest += mapped[begin : content[1]]
    return bytes(rest), found


def _without_elements(mapped: Buffer, node: Span, found: dict[str, TensorSource]) -> bytes | None:
    """Return the nodes that replace a large constant, as fields of a GraphDef; None: the node stays unchanged."""
    import tensorflow as tf
    from tensorflow.core.framework import graph_pb2, node_def_pb2, tensor_pb2

    elements: Span | None = None
    small = bytearray()
    for begin, field, content in _fields(mapped, node):
        tensor = _tensor(mapped, content) if field == _ATTR else None
        if tensor is None:
            small += mapped[begin : content[1]]
            continue
        described = bytearray()
        for start, inner, where in _fields(mapped, tensor):
            if inner == _CONTENT:
                elements = where
            else:
                described += mapped[start : where[1]]
        proto = tensor_pb2.TensorProto.FromString(bytes(described))
    parsed = node_def_pb2.NodeDef.FromString(bytes(small))
    if elements is None or parsed.op != "Const" or parsed.input:
        return None
    dtype = tf.as_dtype(proto.dtype)
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    count = math.prod(shape)
    if dtype == tf.string or count * dtype.size != elements[1] - elements[0]:
        return None
    name = f"{parsed.name}/value"
    array = np.frombuffer(mapped, np.dtype(dtype.as_numpy_dtype), count, elements[0]).reshape(shape)
    found[name] = ArrayTensor(array)
    made = graph_pb2.GraphDef()
    handle = made.node.add(name=name, op="VarHandleOp", device=parsed.device)
    handle.attr["dtype"].type = proto.dtype
    handle.attr["shape"].shape.CopyFrom(proto.tensor_shape)
    handle.attr["shared_name"].s = name.encode()
    handle.attr["container"].s = b""
    read = made.node.add(name=parsed.name, op="ReadVariableOp", input=[name], device=parsed.device)
    read.attr["dtype"].type = proto.dtype
    serialized: bytes = made.SerializeToString()
    return serialized


def _tensor(mapped: Buffer, entry: Span) -> Span | None:
    """Return where the tensor of the attribute `value` is; None for other attributes."""
    key, value = b"", None
    for _, field, content in _fields(mapped, entry):
        if field == _KEY:
            key = mapped[content[0] : content[1]]
        elif field == _VALUE:
            value = content
    if key != b"value" or value is None:
        return None
    return next((content for _, field, content in _fields(mapped, value) if field == _TENSOR), None)


def _fields(mapped: Buffer, span: Span) -> Iterator[tuple[int, int, Span]]:
    """Yield the start, the number and the position of the content of each field of a message."""
    place, end = span
    while place < end:
        begin = place
        tag, place = decode(mapped, place)
        kind = tag & 7
        if kind == _VARINT:
            start = place
            _, place = decode(mapped, place)
        elif kind == _BYTES:
            length, start = decode(mapped, place)
            place = start + length
        elif kind in (_EIGHT, _FOUR):
            start = place
            place += 8 if kind == _EIGHT else 4
        else:
            raise ValueError(f"a field of kind {kind} at byte {begin}")
        if place > end:
            raise ValueError(f"a field at byte {begin} that ends after its message")
        yield begin, tag >> 3, (start, place)
