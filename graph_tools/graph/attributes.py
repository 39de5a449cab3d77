# SPDX-License-Identifier: Apache-2.0
"""Convert attributes of nodes to and from Python values."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_tools.graph.node import Node
from graph_tools.tensors import Array


def attr_value(value: Any) -> Any:
    """Make an AttrValue from bool, int, float, str, bytes, a numpy or TensorFlow dtype, a shape, or a list of those.

    A tuple is a shape (None for an unknown size, `()` a scalar's); a list is a list.
    """
    import tensorflow as tf
    from tensorflow.core.framework import attr_value_pb2, tensor_pb2, tensor_shape_pb2

    if isinstance(value, attr_value_pb2.AttrValue):
        return value
    made = attr_value_pb2.AttrValue()
    if isinstance(value, bool):
        made.b = value
    elif isinstance(value, (int, np.integer)):
        made.i = int(value)
    elif isinstance(value, float):
        made.f = value
    elif isinstance(value, str):
        made.s = value.encode()
    elif isinstance(value, bytes):
        made.s = value
    elif isinstance(value, tensor_shape_pb2.TensorShapeProto):
        made.shape.CopyFrom(value)
    elif isinstance(value, tensor_pb2.TensorProto):
        made.tensor.CopyFrom(value)
    elif isinstance(value, tuple):
        made.shape.CopyFrom(tf.TensorShape(value).as_proto())
    elif isinstance(value, list):
        made.list.SetInParent()
        for element in map(attr_value, value):
            kind = element.WhichOneof("value")
            field = getattr(made.list, kind)
            field.append(getattr(element, kind))
    else:
        made.type = tf.as_dtype(value).as_datatype_enum
    return made


def const_attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of a Const with an array, a number, a string or a list of them."""
    import tensorflow as tf

    if isinstance(value, np.ndarray) and value.dtype == object:
        proto = tf.make_tensor_proto(value, tf.string, value.shape)
    else:
        proto = tf.make_tensor_proto(value)
    return {"dtype": tf.as_dtype(proto.dtype), "value": proto}


def const_array(node: Node) -> Array:
    """Return the elements of a Const; strings as `bytes` in an object array."""
    import tensorflow as tf

    array: Array = tf.make_ndarray(node.attrs["value"].tensor)
    return array


def attribute(node: Node, name: str, default: Any = None) -> Any:
    """Return an attribute as a Python value: bool, int, float, bytes, TensorFlow dtype, shape as tuple, or list.

    An attribute that is not written has the op's default, which the caller must pass.
    """
    import tensorflow as tf

    if name not in node.attrs:
        return default
    value = node.attrs[name]
    kind = value.WhichOneof("value")
    if kind == "type":
        return tf.as_dtype(value.type)
    if kind == "shape":
        return None if value.shape.unknown_rank else tuple(None if d.size < 0 else d.size for d in value.shape.dim)
    if kind == "list":
        for field in ("s", "i", "f", "b", "type", "shape", "func"):
            found = list(getattr(value.list, field))
            if found:
                return [tf.as_dtype(number) for number in found] if field == "type" else found
        return []
    return getattr(value, kind) if kind else default
