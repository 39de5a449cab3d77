# SPDX-License-Identifier: Apache-2.0
"""Merge lookups that Monolith distributes over parameter servers: a key is on server `key mod servers`."""

from __future__ import annotations

from graph_tools.errors import ConversionError
from graph_tools.graph import Graph, Node, Output, attribute, constant
from graph_tools.model import Model
from graph_tools.readers.families.build import Build
from graph_tools.readers.families.lookups import replace_output
from graph_tools.readers.families.monolith_lookups import flat_rows, rows_of
from graph_tools.readers.families.monolith_tables import Tables

LOOKUP, MULTI_LOOKUP = "MonolithHashTableLookup", "MonolithMultiHashTableLookup"
SPLIT, MAP = "MonolithSplitByIndices", "MonolithMapIdToEmbedding"
RAGGED_SPLIT, UNIQUE_KEY = "MonolithRaggedSplitByIndices", "MonolithUniqueKeyWithValueAndOffset"
FILL, FINALIZE = "MonolithFillWithOffsetMap", "MonolithFinalizeSharedTensor"
TIMESTAMP = "MonolithTensorsTimestamp"

_PASSES_ON = {"Identity", "StopGradient", "EnsureShape"}


def strip_timestamps(model: Model) -> None:
    """Make users of MonolithTensorsTimestamp read its inputs directly."""
    for node in model.graph.of(TIMESTAMP):
        for port, source in enumerate(node.inputs):
            replace_output(model, node.output(port), source)
        model.graph.replace_control(node.name, node.controls)


def collapse_map(model: Model, tables: Tables, node: Node) -> bool:
    """Merge `Unique → FloorMod → split → lookup at each server → map` into one lookup; return whether it matched.

    Before: `ids → Unique → FloorMod → MonolithSplitByIndices → N x MonolithHashTableLookup → MonolithMapIdToEmbedding`.

    After: `ids → SparseLookup` in the table of all servers.
    """
    graph, count = model.graph, int(attribute(node, "num_splits"))
    ids = [_through(graph, source) for source in node.inputs[:count]]
    rows = [_through(graph, tensor, {*_PASSES_ON, "Reshape"}) for tensor in node.inputs[count : 2 * count]]
    wanted = node.inputs[2 * count]
    split = graph.source(ids[0])
    if split.op != SPLIT or ids != [split.output(port) for port in range(count)]:
        return False
    asked = _through(graph, split.inputs[1])
    unique = graph.source(asked)
    covers = asked == _through(graph, wanted) or (
        unique.op == "Unique" and asked.port == 0 and _through(graph, unique.inputs[0]) == _through(graph, wanted)
    )
    lookups = [graph.source(row) for row in rows]
    if not covers or attribute(split, "num_splits") != count or not _is_modulo(graph, split.inputs[0], asked, count):
        return False
    for lookup, own in zip(lookups, ids, strict=True):
        if lookup.op != LOOKUP or _through(graph, lookup.inputs[1]) != own:
            return False
    (member,) = tables.merge([tables.of_handle(lookup.inputs[0]) for lookup in lookups])
    replace_output(model, node.output(), rows_of(model, tables, member, wanted, Build(graph, node.name)))
    return True


def collapse_buffer(model: Model, tables: Tables, node: Node) -> None:
    """Merge the lookups of all servers that fill a shared buffer into one lookup per table.

    Before: `ids → MonolithUniqueKeyWithValueAndOffset → FloorMod → MonolithRaggedSplitByIndices →
    N x MonolithMultiHashTableLookup → N x MonolithFillWithOffsetMap → MonolithFinalizeSharedTensor`.

    After: the ids of each table → SparseLookup in the table of all servers → all values, one after another.

    Raises
    ------
    ConversionError
        The nodes are connected in another way.
    """
    graph = model.graph
    fills = [graph.source(_through(graph, source)) for source in node.inputs]
    found = _match_buffer(graph, fills)
    if found is None:
        raise ConversionError(
            f"node '{node.name}' ({node.op}): a buffer that is not filled by lookups of all servers, expected "
            f"{UNIQUE_KEY}, {RAGGED_SPLIT}, {MULTI_LOOKUP} and {FILL} before it"
        )
    unique, lookups = found
    members = tables.merge([tables.of_handle(lookup.inputs[0]) for lookup in lookups])
    dims = list(attribute(unique, "dims"))
    if dims != [member.dim for member in members]:
        raise ConversionError(
            f"node '{unique.name}': dims {dims}, expected {[member.dim for member in members]} as in the tables"
        )
    values = flat_rows(model, tables, members, unique.inputs[0], unique.inputs[1], Build(graph, node.name))
    replace_output(model, node.output(), values)


def _match_buffer(graph: Graph, fills: list[Node]) -> tuple[Node, list[Node]] | None:
    """Return the node that created the buffer and the lookups at each server, in order; None if they do not match."""
    count = len(fills)
    if any(fill.op != FILL for fill in fills):
        return None
    split = graph.source(_through(graph, fills[0].inputs[0]))
    if split.op != RAGGED_SPLIT or attribute(split, "num_splits") != count:
        return None
    unique = graph.source(_through(graph, split.inputs[1]))
    keys = [unique.output(port) for port in range(5)]
    if unique.op != UNIQUE_KEY or [_through(graph, source) for source in split.inputs[1:]] != keys[:2]:
        return None
    if not _is_modulo(graph, split.inputs[0], keys[0], count):
        return None
    by_server: dict[int, Node] = {}
    for fill in fills:
        position, begins, values, *buffer = [_through(graph, tensor) for tensor in fill.inputs]
        number = position.port - 2 * count
        lookup = graph.source(values)
        expected = [split.output(2 * count + number), split.output(count + number)]
        if [position, begins] != expected or buffer[:2] != keys[2:4] or lookup.op != MULTI_LOOKUP:
            return None
        if [_through(graph, tensor) for tensor in lookup.inputs[1:3]] != [
            split.output(number),
            split.output(count + number),
        ]:
            return None
        if not _same_buffer(graph, buffer[2], keys[4]):
            return None
        by_server[number] = lookup
    return (unique, [by_server[number] for number in range(count)]) if sorted(by_server) == list(range(count)) else None


def _same_buffer(graph: Graph, handle: Output, made: Output) -> bool:
    """Return whether a buffer's handle is the created one, possibly after other fills of it."""
    while handle != made and graph.source(handle).op == FILL:
        handle = _through(graph, graph.source(handle).inputs[5])
    return handle == made


def _is_modulo(graph: Graph, indices: Output, keys: Output, count: int) -> bool:
    node = graph.source(_through(graph, indices))
    if node.op != "FloorMod" or _through(graph, node.inputs[0]) != keys:
        return False
    value = constant(graph, node.inputs[1])
    return value is not None and value.size == 1 and int(value.item()) == count


def _through(graph: Graph, output: Output, ops: set[str] | None = None) -> Output:
    """Return the origin of an output, following nodes that pass it on."""
    node = graph.source(output)
    while node.op in (ops or _PASSES_ON) or node.op == "IdentityN":
        output = node.inputs[output.port if node.op == "IdentityN" else 0]
        node = graph.source(output)
    return output
