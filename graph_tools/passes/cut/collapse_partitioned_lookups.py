# SPDX-License-Identifier: Apache-2.0
"""Replace lookups in the parts of a table by a lookup in one table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from graph_tools.analysis.sizes import SizeFinder
from graph_tools.graph import Node, Output, attribute, dtype_of, is_constant, operand, skip, source
from graph_tools.graph.sparse_lookup import add_lookup, table_of
from graph_tools.live import LiveTensor
from graph_tools.model import Model
from graph_tools.model.tables import SparseTable
from graph_tools.recognition.lookups.partitions import (
    Route,
    common_name,
    interleaved,
    layout_of,
    misplaced,
    partition_number,
    route_function,
    same_absent,
    without,
)
from graph_tools.rewriting.chains import chain_between
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.protocol import SitePass
from graph_tools.rewriting.replace import replace_output
from graph_tools.rewriting.sizes import drop_same_shape_reshapes
from graph_tools.tensors import Concatenated, TensorSource

_WHY = "the parts of the table are one table now"
_FOLLOWED = "a trainer changes the rows of each part under the name of the part"
_GATHERS = ("ResourceGather", "SparseLookup", "GatherV2")


@dataclass
class Partitioned:
    """A lookup of ids in parts of a table.

    Attributes
    ----------
    ids : Output [n]
    parts : Output [n] int32
        The part to which each id is sent.
    rows : Output [n]
        The row of that part, or the key.
    gathers : list of Node
        One for each part.
    names : tuple of str
        The parts: handles of variables, or tables.
    """

    ids: Output
    parts: Output
    rows: Output
    gathers: list[Node]
    names: tuple[str, ...]


Merge = Callable[[], str]
"""Adds the variable or table that contains all parts, and returns the name of its handle or of the table."""


class CollapsePartitionedLookups(SitePass[tuple[Partitioned, Merge]]):
    """Replace a lookup in parts of a table by one lookup in the table made of all parts.

    Before: `ids → FloorMod, FloorDiv → DynamicPartition → n gathers → DynamicStitch`.
    After: one gather of `ids` from one variable, or one SparseLookup in one table.

    TensorFlow runs the nodes that route ids to parts over every id, or over every key that a part contains. The merged
    variable therefore has its rows where ids look for them, for any partition strategy. A key in a part to which its
    lookups are not sent was never found; it is dropped and reported.
    """

    name = "collapse_partitioned_lookups"

    def candidates(self, model: Model) -> Iterable[str]:
        # Several lookups may read the same parts.
        self._merged: dict[tuple[str, ...], str] = {}
        self._layouts: dict[tuple[str, ...], str] = {}
        return [node.name for node in model.graph.of("DynamicStitch", "ParallelDynamicStitch")]

    def match(self, model: Model, site: str) -> Outcome[tuple[Partitioned, Merge]]:
        outcome = _lookup_before(model, model.graph[site])
        if not isinstance(outcome, Found):
            return outcome
        found = outcome.value
        dtype = dtype_of(model.graph, found.ids)
        keyed = found.gathers[0].op == "SparseLookup"
        wanted = [found.parts] if keyed else [found.parts, found.rows]
        route = route_function(model, found.ids, wanted, dtype)
        if not isinstance(route, Found):
            return route
        merge = (
            self._merge_of_tables(model, found, route.value)
            if keyed
            else self._merge_of_variables(model, found, route.value, dtype)
        )
        return Found((found, merge.value)) if isinstance(merge, Found) else merge

    def _merge_of_variables(self, model: Model, found: Partitioned, route: Route, dtype: object) -> Outcome[Merge]:
        graph = model.graph
        tensors = [model.variables.get(name) for name in found.names]
        if any(tensor is None for tensor in tensors) or set(found.names) & model.written_variables():
            return Refused(f"variable '{found.names[0]}' has no value, or is written while it is served")
        held = [tensor for tensor in tensors if tensor is not None]
        if any(isinstance(part, LiveTensor) for part in held):
            return Refused(_FOLLOWED)
        if any(part.dtype != held[0].dtype or part.shape[1:] != held[0].shape[1:] for part in held):
            return Refused("parts have rows of different shapes or dtypes")
        for name in found.names:
            others = [user.name for user in graph.users(name) if user.op not in _GATHERS]
            if others:
                return Refused(f"part '{name}' is also used by '{others[0]}'")
        layout = layout_of(route, [part.shape[0] for part in held], np.dtype(dtype.as_numpy_dtype))  # type: ignore[attr-defined]
        if layout is None:
            return Refused(
                "parts contain neither consecutive rows ('div') nor every n-th row ('mod'), expected one of these"
            )
        known = self._layouts.setdefault(found.names, layout)
        if known != layout:
            return Refused(f"parts are divided by '{layout}', and by '{known}' in another lookup, expected one layout")
        return Found(lambda: _merge_variables(model, found, held, layout))

    def _merge_of_tables(self, model: Model, found: Partitioned, route: Route) -> Outcome[Merge]:
        if skip(model.graph, found.rows) != skip(model.graph, found.ids):
            return Refused(f"parts are looked up by '{found.rows}', expected the ids '{found.ids}' themselves")
        if model.live is not None:
            return Refused(_FOLLOWED)
        tables = [model.sparse_tables[name] for name in found.names]
        for name, table in zip(found.names, tables, strict=True):
            if not same_absent(tables[0].absent, table.absent):
                return Refused(f"'{found.names[0]}' and '{name}' give different rows for an absent key")
        defaults = {(gather.inputs[1:] and skip(model.graph, gather.inputs[1])) or None for gather in found.gathers}
        if len(defaults) > 1:
            return Refused("parts have different default rows for an absent key")
        return Found(lambda: _merge_tables(model, found, tables, route))

    def rewrite(self, model: Model, site: str, found: tuple[Partitioned, Merge]) -> None:
        (lookup, merge), graph = found, model.graph
        gather, stitch = lookup.gathers[0], graph[site]
        ids = _before_flattening(model, lookup.ids)
        dtype = attribute(stitch, "T")
        if lookup.names not in self._merged:
            self._merged[lookup.names] = merge()
        merged = self._merged[lookup.names]
        if gather.op == "SparseLookup":
            default = gather.inputs[1] if len(gather.inputs) > 1 else None
            key_dtype = attribute(gather, "Tkeys")
            made = add_lookup(graph, merged, ids, key_dtype, attribute(gather, "dim"), dtype, default, f"{site}/lookup")
        else:
            attrs = {"dtype": dtype, "Tindices": dtype_of(graph, ids), "batch_dims": 0, "validate_indices": True}
            made = graph.add("ResourceGather", [Output(merged), ids], name=f"{site}/gather", attrs=attrs)
        replace_output(model, stitch.output(), made.output(), dtype, _WHY)
        # Reshapes that remain of the stitch would separate the lookup from the idiom around it.
        drop_same_shape_reshapes(model, made.output(), _WHY)


def _before_flattening(model: Model, ids: Output) -> Output:
    """Return ids without a reshape that leaves them the vector that they are, and that hides their origin."""
    node = model.graph[skip(model.graph, ids).node]
    flat = node.op == "Reshape" and not node.controls and SizeFinder(model).is_same_shape(node)
    return node.inputs[0] if flat else ids


def _lookup_before(model: Model, stitch: Node) -> Outcome[Partitioned]:
    """Return the lookup that a stitch ends."""
    graph = model.graph
    count = attribute(stitch, "N")
    gathers = [gather for output in stitch.inputs[count:] if (gather := source(graph, output, *_GATHERS)) is not None]
    if len(gathers) != count or len({gather.op for gather in gathers}) != 1:
        return NoMatch()
    split = _partition_of(model, [gather.inputs[0 if gather.op == "SparseLookup" else 1] for gather in gathers])
    places = _partition_of(model, stitch.inputs[:count])
    if split is None or places is None or attribute(split, "num_partitions") != count:
        return NoMatch()
    if operand(graph, split, 1) != operand(graph, places, 1):
        return Refused(f"'{split.name}' and '{places.name}' partition by different numbers")
    ids = _vector_counted_by(model, places)
    if ids is None:
        return Refused(f"'{places.name}' does not partition the numbers 0, 1, … of the ids")
    for end in split.inputs[:2]:
        chain = Found([]) if skip(graph, end) == skip(graph, ids) else chain_between(graph, ids, end)
        if not isinstance(chain, Found):
            return chain
    names = []
    for gather in gathers:
        name = _part_name(model, gather)
        if name is None:
            return Refused(f"'{gather.name}' does not gather from a variable, or not along its first axis")
        names.append(name)
    if len(set(names)) != count:
        return Refused(f"{count} lookups of {len(set(names))} parts, expected each part once")
    return Found(Partitioned(ids, split.inputs[1], split.inputs[0], gathers, tuple(names)))


def _partition_of(model: Model, outputs: list[Output]) -> Node | None:
    """Return the DynamicPartition whose outputs these are, in order."""
    found = [partition_number(model.graph, output, "DynamicPartition") for output in outputs]
    first = found[0]
    in_order = first is not None and all(
        part is not None and part[0] is first[0] and part[1] == number for number, part in enumerate(found)
    )
    return first[0] if first is not None and in_order else None


def _vector_counted_by(model: Model, places: Node) -> Output | None:
    """Return the vector whose places 0, 1, … are partitioned."""
    graph = model.graph
    numbers = source(graph, places.inputs[0], "Range")
    if numbers is None or not is_constant(graph, numbers.inputs[0], 0) or not is_constant(graph, numbers.inputs[2], 1):
        return None
    limit = graph[skip(graph, numbers.inputs[1]).node]
    while limit.op in {"Cast", "StridedSlice", "Shape"}:
        if limit.op == "Shape":
            return limit.inputs[0]
        limit = graph[operand(graph, limit, 0).node]
    return limit.inputs[0] if limit.op == "Size" else None


def _part_name(model: Model, gather: Node) -> str | None:
    """Return the table or the handle of the variable from which a gather reads rows."""
    graph = model.graph
    if gather.op == "SparseLookup":
        return table_of(gather)
    if attribute(gather, "batch_dims", 0):
        return None
    handle = graph[operand(graph, gather, 0).node]
    if gather.op == "GatherV2":
        if handle.op != "ReadVariableOp" or not is_constant(graph, gather.inputs[2], 0):
            return None
        handle = graph[operand(graph, handle, 0).node]
    return handle.name if handle.op == "VarHandleOp" else None


def _merge_variables(model: Model, found: Partitioned, held: list[TensorSource], layout: str) -> str:
    """Add the variable that contains every part, and return its handle."""
    graph = model.graph
    merged: TensorSource = Concatenated(held) if layout == "div" else interleaved(held)
    attrs = dict(graph[found.names[0]].attrs)
    handle = graph.add("VarHandleOp", name=common_name(list(found.names)), attrs=attrs)
    handle.attrs.pop("debug_name", None)
    graph.set_attr(handle, "shape", tuple(merged.shape))
    graph.set_attr(handle, "shared_name", handle.name)
    model.variables[handle.name] = merged
    model.tensor_names[handle.name] = tuple(
        tensor for name in found.names for tensor in model.tensor_names.get(name, ())
    )
    return handle.name


def _merge_tables(model: Model, found: Partitioned, tables: list[SparseTable], route: Route) -> str:
    """Add the table that contains every part, without keys that are in a part in which no lookup can find them."""
    merged = replace(tables[0], parts=[], dropped_tensors=[], misplaced=0)
    merged.name = re.sub(r"/part_\d+(?=/|$)", "", tables[0].name)
    for number, table in enumerate(tables):
        merged.dropped_tensors += table.dropped_tensors
        for part in table.parts:
            wrong = misplaced(part, number, route)
            kept = replace(part, keys=without(part.keys, wrong), rows=without(part.rows, wrong))
            if part.frequencies is not None:
                kept.frequencies = without(part.frequencies, wrong)
            merged.parts.append(kept)
            merged.misplaced += len(wrong)
    name = common_name(list(found.names))
    while name in model.sparse_tables:
        name += "_merged"
    model.sparse_tables[name] = merged
    model.merged_tables |= dict.fromkeys(found.names, merged.name)
    model.tensor_names[name] = _tensors_of(model, found.names)
    return name


def _tensors_of(model: Model, parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the tensors of the checkpoint from which parts are restored."""
    return tuple(tensor for part in parts for tensor in model.tensor_names.get(part, ()))
