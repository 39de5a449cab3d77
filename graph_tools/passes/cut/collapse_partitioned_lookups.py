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
    merge : callable
        Makes the variable or table that contains all parts, and returns the name of the variable's handle or of the
        table.
    """

    ids: Output
    parts: Output
    rows: Output
    gathers: list[Node]
    names: tuple[str, ...]
    merge: Callable[[], str] = str


class CollapsePartitionedLookups(SitePass[Partitioned]):
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

    def match(self, model: Model, site: str) -> Outcome[Partitioned]:
        found = _find(model, model.graph[site])
        if isinstance(found, str):
            return Refused(found) if found else NoMatch()
        dtype = dtype_of(model.graph, found.ids)
        keyed = found.gathers[0].op == "SparseLookup"
        wanted = [found.parts] if keyed else [found.parts, found.rows]
        route = route_function(model, found.ids, wanted, dtype)
        if isinstance(route, str):
            return Refused(route)
        reason = self._check_tables(model, found, route) if keyed else self._check_variables(model, found, route, dtype)
        return Found(found) if reason is None else Refused(reason)

    def _check_variables(self, model: Model, found: Partitioned, route: Route, dtype: object) -> str | None:
        graph = model.graph
        tensors = [model.variables.get(name) for name in found.names]
        if any(tensor is None for tensor in tensors) or set(found.names) & model.written_variables():
            return f"variable '{found.names[0]}' has no value, or is written while it is served"
        held = [one for one in tensors if one is not None]
        if any(one.dtype != held[0].dtype or one.shape[1:] != held[0].shape[1:] for one in held):
            return "parts have rows of different shapes or dtypes"
        for name in found.names:
            other = [user.name for user in graph.users(name) if user.op not in _GATHERS]
            if other:
                return f"part '{name}' is also used by '{other[0]}'"
        layout = layout_of(route, [one.shape[0] for one in held], np.dtype(dtype.as_numpy_dtype))  # type: ignore[attr-defined]
        if not layout:
            return "ids are sent to rows that are neither one part after another nor dealt in turn"
        if self._layouts.setdefault(found.names, layout) != layout:
            return f"another lookup of these parts deals ids by '{self._layouts[found.names]}', this one by '{layout}'"
        found.merge = lambda: _merge_variables(model, found, held, layout)
        return None

    def _check_tables(self, model: Model, found: Partitioned, route: Route) -> str | None:
        if skip(model.graph, found.rows) != skip(model.graph, found.ids):
            return f"parts are looked up by '{found.rows}', expected the ids '{found.ids}' themselves"
        tables = [model.sparse_tables[name] for name in found.names]
        for name, one in zip(found.names, tables, strict=True):
            if not same_absent(tables[0].absent, one.absent):
                return f"'{found.names[0]}' and '{name}' give different rows for an absent key"
        defaults = {(gather.inputs[1:] and skip(model.graph, gather.inputs[1])) or None for gather in found.gathers}
        if len(defaults) > 1:
            return "parts have different default rows for an absent key"
        found.merge = lambda: _merge_tables(model, found, tables, route)
        return None

    def rewrite(self, model: Model, site: str, found: Partitioned) -> None:
        graph = model.graph
        gather, stitch = found.gathers[0], graph[site]
        ids = _before_flattening(model, found.ids)
        dtype = attribute(stitch, "T")
        if found.names not in self._merged:
            self._merged[found.names] = found.merge()
        merged = self._merged[found.names]
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


def _find(model: Model, stitch: Node) -> Partitioned | str:
    """Return the lookup that a stitch ends, or the reason for a refusal; "" if it ends no lookup."""
    graph = model.graph
    count = attribute(stitch, "N")
    gathers = [source(graph, one, *_GATHERS) for one in stitch.inputs[count:]]
    first = gathers[0]
    if first is None or any(one is None or one.op != first.op for one in gathers):
        return ""
    held = [one for one in gathers if one is not None]
    split = _partition(model, [one.inputs[0 if first.op == "SparseLookup" else 1] for one in held])
    places = _partition(model, stitch.inputs[:count])
    if split is None or places is None or attribute(split, "num_partitions") != count:
        return ""
    if operand(graph, split, 1) != operand(graph, places, 1):
        return f"'{split.name}' and '{places.name}' partition by different numbers"
    ids = _counted(model, places)
    if ids is None:
        return f"'{places.name}' partitions no count of the ids from zero"
    for end in (split.inputs[0], split.inputs[1]):
        if skip(graph, end) != skip(graph, ids):
            chain = chain_between(graph, ids, end)
            if isinstance(chain, str):
                return chain
    names = []
    for gather in held:
        name = _part_name(model, gather)
        if name is None:
            return f"'{gather.name}' gathers from no variable, or not along its first axis"
        names.append(name)
    if len(set(names)) != count:
        return f"{count} lookups of {len(set(names))} parts, expected each part once"
    return Partitioned(ids, split.inputs[1], split.inputs[0], held, tuple(names))


def _partition(model: Model, outputs: list[Output]) -> Node | None:
    """Return the DynamicPartition whose outputs these are, in order."""
    found = [partition_number(model.graph, output, "DynamicPartition") for output in outputs]
    first = found[0]
    if first is None or any(one is None or one[0] is not first[0] or one[1] != i for i, one in enumerate(found)):
        return None
    return first[0]


def _counted(model: Model, places: Node) -> Output | None:
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
    model.tensor_names[handle.name] = tuple(one for name in found.names for one in model.tensor_names.get(name, ()))
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
    model.tensor_names[name] = tuple(one for part in found.names for one in model.tensor_names.get(part, ()))
    return name
