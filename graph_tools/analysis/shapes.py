# SPDX-License-Identifier: Apache-2.0
"""Static shapes of all outputs, as TensorFlow infers them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graph_tools.errors import UnreadableError
from graph_tools.graph.attributes import attribute
from graph_tools.graph.dtypes import dtype_of
from graph_tools.graph.graph import Graph
from graph_tools.graph.node import Node, Output
from graph_tools.graph.op_defs import is_native, op_def, output_types, tf_type

if TYPE_CHECKING:
    from graph_tools.model import Model

Shape = tuple[int | None, ...] | None
ShapeOf = Callable[[Output], Shape]

_SCALAR_TABLES = {"HashTableV2", "MutableHashTableV2"}

_kept: weakref.WeakKeyDictionary[Graph, tuple[int, ShapeOf]] = weakref.WeakKeyDictionary()


def shapes(model: Model) -> ShapeOf:
    """Infer the static shape of every output of a model's graph as it is now.

    Returns
    -------
    callable
        Output -> shape; None in a shape is any size, None for a shape any rank. An output added later has any rank.

    Raises
    ------
    UnreadableError
        TensorFlow cannot import the graph.
    """
    held = _kept.get(model.graph)
    if held is None or held[0] != model.graph.revision:
        held = (model.graph.revision, _infer(model))
        _kept[model.graph] = held
    return held[1]


def _infer(model: Model) -> ShapeOf:
    import tensorflow as tf

    stand_in = _with_native_ops(model)
    imported = tf.Graph()
    try:
        with imported.as_default():
            tf.graph_util.import_graph_def(stand_in.to_graph_def(), name="")
    except (ValueError, tf.errors.OpError) as error:
        raise UnreadableError(f"{model.path}: {error}, expected a graph that TensorFlow imports") from error
    names = set(model.graph.nodes)

    def shape_of(output: Output) -> Shape:
        if output.node not in names:
            return None
        operation = imported.get_operation_by_name(output.node)
        if output.port >= len(operation.outputs):
            return None
        shape = operation.outputs[output.port].shape
        return None if shape.rank is None else tuple(shape.as_list())

    return shape_of


def _with_native_ops(model: Model) -> Graph:
    """Copy the graph, with unknown ops replaced by native ops of equal output shapes."""
    copy = Graph.from_graph_def(model.graph.to_graph_def())
    copy.op_defs = model.graph.op_defs
    written = model.written_variables()
    for node in copy:
        if node.op == "VarHandleOp" and node.name in model.variables and node.name not in written:
            copy.set_attr(node, "shape", model.variables[node.name].shape)
        elif node.op == "LookupTableFindV2" and copy.input(node, 0).op in _SCALAR_TABLES:
            _replace_find(copy, node)
        elif not is_native(node.op) and node.op not in copy.library:
            _replace_unknown(copy, node)
    return copy


def _replace_find(graph: Graph, node: Node) -> None:
    """Replace a lookup in a table of scalars by an op with the keys' shape; TensorFlow infers only eager tables."""
    import tensorflow as tf

    keys, key_type, value_type = node.inputs[1], attribute(node, "Tin"), attribute(node, "Tout")
    if key_type == tf.string:
        keys = graph.add("StringToHashBucketFast", [keys], name=f"{node.name}/keys", attrs={"num_buckets": 1}).output()
        key_type = tf.int64
    if value_type == tf.string:
        graph.become(node, "AsString", [keys], {"T": key_type})
    else:
        graph.become(node, "Cast", [keys], {"SrcT": key_type, "DstT": value_type})


def _replace_unknown(graph: Graph, node: Node) -> None:
    import tensorflow as tf

    if node.op == "SparseLookup":
        dtype, dim = attribute(node, "dtype"), attribute(node, "dim")
        rows = graph.add("Placeholder", name=f"{node.name}/rows", attrs={"dtype": dtype, "shape": (None, dim)})
        key_dtype, keys = attribute(node, "Tkeys"), node.inputs[0]
        if key_dtype == tf.string:
            attrs: dict[str, Any] = {"num_buckets": 1}
            keys = graph.add("StringToHashBucketFast", [keys], name=f"{node.name}/keys", attrs=attrs).output()
        else:
            attrs = {"SrcT": key_dtype, "DstT": tf.int64}
            keys = graph.add("Cast", [keys], name=f"{node.name}/keys", attrs=attrs).output()
        axis = graph.add_const(0, f"{node.name}/axis")
        attrs = {"Tparams": dtype, "Tindices": tf.int64, "Taxis": tf.int32}
        graph.become(node, "GatherV2", [rows.output(), keys, axis], attrs)
        return
    described = op_def(node.op, graph.op_defs)
    if described is not None:
        types = [tf_type(dtype) for dtype in output_types(described, node.attrs)]
    else:
        used = [source.port for user in graph.users(node.name) for source in user.inputs if source.node == node.name]
        ports = 1 + max(used, default=0)
        types = [dtype_of(graph, node.output(port)) or tf.float32 for port in range(ports)]
    any_shape = tf.TensorShape(None).as_proto()
    made = [
        graph.add("Placeholder", name=f"{node.name}/output", attrs={"dtype": dtype, "shape": any_shape}).output()
        for dtype in types
    ]
    if made:
        graph.become(node, "IdentityN", made, {"T": types})
    else:
        graph.become(node, "NoOp", [], {})
