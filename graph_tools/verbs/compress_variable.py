# SPDX-License-Identifier: Apache-2.0
"""Compress a variable of which the graph gathers rows: the table of an ordinary embedding layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from graph_tools.errors import UsageError
from graph_tools.graph import Node, Output, attribute
from graph_tools.model import Model
from graph_tools.report.compress import CompressedTable
from graph_tools.rewriting.add_weights import add_variable
from graph_tools.rewriting.protocol import Pass, PassResult
from graph_tools.tables.code_fit import fit
from graph_tools.tables.code_nodes import CodeNodes
from graph_tools.tables.emit import replace_output
from graph_tools.tables.mixed_dims import RowWidth, mix_dims
from graph_tools.tables.plain import PlainTable, combines_rows, plain_tables
from graph_tools.tables.row_codes import RowCode
from graph_tools.tensors import Array
from graph_tools.verbs.compressible import (
    check_dim,
    check_finite,
    check_memory,
    check_row_count,
    code_report,
    dims_report,
    names_table,
)
from graph_tools.verbs.mixed_table import MixedTable

_WHY = "its rows are stored otherwise"
#: Ids [...] and their dtype -> rows [..., dim] float32.
_LookUp = Callable[[Node, Output, Any], Output]


class CompressVariable(Pass):
    """Replace the rows of a variable by sums of rows of a code, or by rows of different widths.

    Before: `ids → ResourceGather(variable)`, also by a GatherV2 or an op on segments.
    After, with a code: `ids → row numbers of each part → ResourceGather(rows) → AddN`; with widths:
    `ids → ResourceGather(places) → ResourceGather(rows)`, whose rows are rotated.

    It runs among the passes of `cut`, as soon as lookups are in their simplest form.

    Parameters
    ----------
    table : str
        Name of the variable, or of the layer that has it.
    code : RowCode or None
        None: see `widths`.
    widths : sequence of RowWidth
    memory_limit : int

    Attributes
    ----------
    compressed : CompressedTable or None
        For the report, after the pass has run.
    mixed : MixedTable or None
        With widths, what `turn_back` needs after all passes.
    """

    name = "compress_variable"

    def __init__(self, table: str, code: RowCode | None, widths: Sequence[RowWidth], memory_limit: int) -> None:
        self.table, self.code, self.widths, self.memory_limit = table, code, widths, memory_limit
        self.compressed: CompressedTable | None = None
        self.mixed: MixedTable | None = None

    def process(self, model: Model, result: PassResult) -> None:
        table = find_variable(model, self.table)
        source = model.variables[table.handle]
        check_memory(table.handle, source.shape, self.memory_limit)
        rows = np.asarray(source.read(), np.float32)
        check_finite(table.handle, rows)
        source_bytes = rows.size * source.dtype.itemsize
        if self.code is not None:
            self.compressed = self._use_code(model, table, self.code, rows, source_bytes)
        else:
            self.compressed = self._use_widths(model, table, rows, source_bytes)
        for name in [*reversed(table.reads), table.handle]:
            if not model.graph.users(name):
                model.graph.remove(name, _WHY)
        del model.variables[table.handle]
        result.applied = len(table.gathers)

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the variable if it is still there."""
        handle = "" if self.compressed is None else self.compressed.name
        return (name for name in model.variables if name == handle)

    def _use_code(
        self, model: Model, table: PlainTable, code: RowCode, rows: Array, source_bytes: int
    ) -> CompressedTable:
        check_row_count(table.handle, code, len(rows))
        fitted = fit(code, np.arange(len(rows), dtype=np.int64), rows)
        held = add_variable(model, f"{table.handle}/code_rows", fitted.rows).output()

        def look_up(node: Node, ids: Output, id_type: Any) -> Output:
            return CodeNodes(model.graph, code, held, node.name).look_up(ids, id_type)

        _replace_lookups(model, table, look_up)
        return code_report(table.handle, rows.shape, source_bytes, code, fitted)

    def _use_widths(self, model: Model, table: PlainTable, rows: Array, source_bytes: int) -> CompressedTable:
        import tensorflow as tf

        check_dim(table.handle, self.widths, rows.shape[1])
        mixed = mix_dims(rows, np.square(rows).sum(axis=1), self.widths)
        places = np.empty(len(rows), np.int32)
        places[mixed.order] = np.arange(len(rows), dtype=np.int32)
        index = add_variable(model, f"{table.handle}/places", places).output()
        held = add_variable(model, f"{table.handle}/rows", mixed.rows).output()

        def look_up(node: Node, ids: Output, id_type: Any) -> Output:
            attrs = {"dtype": tf.int32, "Tindices": id_type}
            place = model.graph.add("ResourceGather", [index, ids], name=f"{node.name}/place", attrs=attrs).output()
            attrs = {"dtype": tf.float32, "Tindices": tf.int32}
            return model.graph.add("ResourceGather", [held, place], name=f"{node.name}/rows", attrs=attrs).output()

        _replace_lookups(model, table, look_up)
        self.mixed = MixedTable(held.node, mixed.basis)
        return dims_report(table.handle, rows.shape, source_bytes, places.nbytes, self.widths, mixed)


def find_variable(model: Model, name: str) -> PlainTable:
    """Return the variable that a user means by its name, or by that of its layer.

    Raises
    ------
    UsageError
        There is none, there are several, or something else than lookups reads it.
    """
    tables, refused = plain_tables(model)
    found = [table for table in tables if table.handle == name] or [
        table for table in tables if names_table(name, table.handle)
    ]
    for handle, reason in refused:
        if names_table(name, handle) and not found:
            raise UsageError(f"--table {name}: {reason}, expected a variable of which lookups read rows, and no other")
    if len(found) != 1:
        known = [table.handle for table in found or tables] + [table.name for table in model.sparse_tables.values()]
        what = f"{len(found)} tables" if found else "no table"
        raise UsageError(f"--table {name}: {what} of this name, expected one of: {', '.join(sorted(known)) or 'none'}")
    return found[0]


def _replace_lookups(model: Model, table: PlainTable, look_up: _LookUp) -> None:
    """Replace what gathers rows of a variable, or sums gathered rows."""
    import tensorflow as tf

    graph = model.graph
    for name in table.gathers:
        node = graph[name]
        combines, ids = combines_rows(node), node.inputs[1]
        id_type = attribute(node, "Tidx" if combines else "Tindices")
        dtype = attribute(node, {"ResourceGather": "dtype", "GatherV2": "Tparams"}.get(node.op, "T"))
        rows = look_up(node, ids, id_type)
        if dtype != tf.float32:
            attrs = {"SrcT": tf.float32, "DstT": dtype}
            rows = graph.add("Cast", [rows], name=f"{name}/Cast", attrs=attrs).output()
        if not combines:
            replace_output(model, name, rows, dtype, _WHY)
            continue
        zero, one = (graph.add_const(np.array(n, id_type.as_numpy_dtype), f"{name}/Const") for n in (0, 1))
        attrs = {"T": id_type, "out_type": id_type}
        count = graph.add("Size", [ids], name=f"{name}/Size", attrs=attrs).output()
        attrs = {"Tidx": id_type}
        numbers = graph.add("Range", [zero, count, one], name=f"{name}/Range", attrs=attrs).output()
        graph.set_inputs(node, [rows, numbers, *node.inputs[2:]])
