# SPDX-License-Identifier: Apache-2.0
"""Convert Monolith's lookups, and its ops on ids and rows around them, to native ops and SparseLookup."""

from __future__ import annotations

import numpy as np

from graph_tools.errors import ConversionError, UnreadableError
from graph_tools.graph import Node, Output, attribute
from graph_tools.graph.sparse_lookup import add_lookup
from graph_tools.model import Model
from graph_tools.readers.families.build import Build
from graph_tools.readers.families.lookups import replace_output
from graph_tools.readers.families.monolith_tables import Member, Tables


def convert_lookup(model: Model, tables: Tables, node: Node) -> None:
    """Convert MonolithHashTableLookup: ids [n] → rows [n, dim]."""
    (member,) = _members(tables, node.inputs[0], node)
    _check_dim(node, member)
    rows = rows_of(model, tables, member, node.inputs[1], Build(model.graph, node.name))
    replace_output(model, node.output(), rows)


def convert_multi_lookup(model: Model, tables: Tables, node: Node) -> None:
    """Convert MonolithMultiHashTableLookup: ids and the start of each table's ids → all values, one after another."""
    build = Build(model.graph, node.name)
    members = _members(tables, node.inputs[0], node)
    replace_output(model, node.output(), flat_rows(model, tables, members, node.inputs[1], node.inputs[2], build))


def flat_rows(
    model: Model, tables: Tables, members: list[Member], ids: Output, id_split: Output, build: Build
) -> Output:
    """Look up ids [n] and return all values [m]; the ids of table k are from `id_split` [tables + 1] k to k + 1."""
    tf, count = build.tf, len(members)
    size = build.const([count])
    ends = build.slice(id_split, build.const([1]), size, tf.int64, tf.int32)
    begins = build.slice(id_split, build.const([0]), size, tf.int64, tf.int32)
    lengths = build.add("Sub", ends, begins, T=tf.int64)
    pieces = build.split(ids, lengths, count, tf.int64, tf.int64)
    rows = [rows_of(model, tables, *pair, build) for pair in zip(members, pieces, strict=True)]
    return build.concat([build.flat(row, tf.float32) for row in rows], tf.float32)


def convert_fused_lookup(model: Model, tables: Tables, node: Node, handles: int) -> None:
    """Convert Monolith…FusedLookup: ids in pieces, by shard and within a shard by table → all values, and offsets.

    Outputs: embeddings [m]; embedding_splits [shards]: number of values of each shard; id_offsets and embedding_offsets
    [pieces + 1]: the start of each piece, and the total; indices [n]: the ids.
    """
    build = Build(model.graph, node.name)
    tf = build.tf
    members = [member for handle in node.inputs[:handles] for member in _members(tables, handle, node)]
    shards = int(attribute(node, "num_of_shards"))
    ids, sizes = node.inputs[handles : handles + 2]
    wanted = {port for port in range(5) if _is_used(model, node.output(port))}
    if len(node.inputs) == handles + 2 and wanted - {0, 1} and handles == attribute(node, "N", 0):
        # In releases whose op has no req_time, the offsets had no total, and the fifth output was something else.
        raise ConversionError(
            f"node '{node.name}' ({node.op}): output {max(wanted)} of an old release is used, expected only the first "
            f"two; export the model with a release whose op has the input req_time"
        )
    pieces = build.split(ids, sizes, len(members) * shards, tf.int64, tf.int32)
    if 0 in wanted:
        rows = [rows_of(model, tables, *pair, build) for pair in zip(members * shards, pieces, strict=True)]
        flat = build.concat([build.flat(row, tf.float32) for row in rows], tf.float32)
        replace_output(model, node.output(0), flat)
    dims = build.const([member.dim for member in members] * shards)
    values = build.add("Mul", sizes, dims, T=tf.int32)
    if 1 in wanted:
        shape = build.const([shards, len(members)])
        table = build.add("Reshape", values, shape, T=tf.int32, Tshape=tf.int32)
        total = build.add("Sum", table, build.const(1), T=tf.int32, Tidx=tf.int32, keep_dims=False)
        replace_output(model, node.output(1), total)
    for port, lengths in ((2, sizes), (3, values)):
        if port in wanted:
            ends = build.add(
                "Cumsum", lengths, build.const(0), T=tf.int32, Tidx=tf.int32, exclusive=False, reverse=False
            )
            replace_output(model, node.output(port), build.concat([build.const([0]), ends], tf.int32))
    if 4 in wanted:
        replace_output(model, node.output(4), ids)


def convert_split(model: Model, node: Node) -> None:
    """Convert MonolithSplitByIndices to DynamicPartition, which has int32 instead of int64 indices."""
    build = Build(model.graph, node.name)
    tf, count = build.tf, int(attribute(node, "num_splits"))
    numbers = build.add("Cast", node.inputs[0], SrcT=tf.int64, DstT=tf.int32)
    first = build.add("DynamicPartition", node.inputs[1], numbers, num_partitions=count, T=attribute(node, "T"))
    for port in range(count):
        replace_output(model, node.output(port), Output(first.node, port))


def convert_map(model: Model, node: Node) -> None:
    """Convert MonolithMapIdToEmbedding: return for each id the row at its first position among the shards' ids.

    `Unique` over all shards' ids followed by the wanted ids numbers both in the same way. An id that no shard has gets
    a position after the last row, which fails as in the source.
    """
    build = Build(model.graph, node.name)
    tf, count = build.tf, int(attribute(node, "num_splits"))
    held = build.concat([build.flat(source, tf.int64) for source in node.inputs[:count]], tf.int64)
    rows = build.concat(node.inputs[count : 2 * count], tf.float32)
    wanted = node.inputs[2 * count]
    both = build.concat([held, build.flat(wanted, tf.int64)], tf.int64)
    unique = model.graph.add("Unique", [both], name=f"{node.name}/Unique", attrs={"T": tf.int64, "out_idx": tf.int64})
    total = build.add("Size", held, T=tf.int64, out_type=tf.int64)
    size = build.add("ExpandDims", total, build.const(0), T=tf.int64, Tdim=tf.int32)
    of_held = build.slice(unique.output(1), build.const([0], np.int64), size, tf.int64, tf.int64)
    of_wanted = build.slice(unique.output(1), size, build.const([-1], np.int64), tf.int64, tf.int64)
    places = build.add("Range", build.const(0, np.int64), total, build.const(1, np.int64), Tidx=tf.int64)
    distinct = build.add("Size", unique.output(), T=tf.int64, out_type=tf.int64)
    attrs = {"T": tf.int64, "Tindices": tf.int64, "Tnumsegments": tf.int64}
    first = build.add("UnsortedSegmentMin", places, of_held, distinct, **attrs)
    found = build.gather(rows, build.gather(first, of_wanted, tf.int64), tf.float32)
    shapes = [
        build.add("Shape", tensor, T=kind, out_type=tf.int32)
        for tensor, kind in ((wanted, tf.int64), (rows, tf.float32))
    ]
    dim = build.slice(shapes[1], build.const([1]), build.const([1]), tf.int32, tf.int32)
    shape = build.concat([shapes[0], dim], tf.int32)
    replace_output(model, node.output(), build.add("Reshape", found, shape, T=tf.float32, Tshape=tf.int32))


def rows_of(model: Model, tables: Tables, member: Member, ids: Output, build: Build) -> Output:
    """Look up ids [n] in a table, or return zeros [n, dim] if the table has no rows at all."""
    tf = build.tf
    if member.table is not None:
        name = f"{build.scope}/rows"
        made = add_lookup(model.graph, tables.use(member), ids, tf.int64, member.dim, tf.float32, name=name)
        return made.output()
    size = build.add("Size", ids, T=tf.int64, out_type=tf.int32)
    shape = build.add("Pack", size, build.const(member.dim), N=2, T=tf.int32, axis=0)
    return build.add("Fill", shape, build.const(0.0, np.float32), T=tf.float32, index_type=tf.int32)


def _members(tables: Tables, handle: Output, node: Node) -> list[Member]:
    try:
        return tables.of_handle(handle)
    except UnreadableError as error:
        raise UnreadableError(f"{error} (looked up by node '{node.name}')") from error


def _check_dim(node: Node, member: Member) -> None:
    dim = attribute(node, "dim_size")
    if dim is not None and dim != member.dim:
        raise UnreadableError(
            f"table {member.name}: rows of {member.dim}, expected {dim} as dim_size of node '{node.name}'"
        )


def _is_used(model: Model, output: Output) -> bool:
    ends = {endpoint.tensor for signature in model.signatures.values() for endpoint in signature.outputs.values()}
    return output in ends or bool(model.graph.uses(output))
