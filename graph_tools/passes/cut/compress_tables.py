# SPDX-License-Identifier: Apache-2.0
"""Store embedding variables in fewer bytes."""

from __future__ import annotations

from collections.abc import Iterator

from graph_tools.graph import attribute
from graph_tools.model import Model
from graph_tools.rewriting.protocol import PassResult
from graph_tools.rewriting.table_pass import TablePass
from graph_tools.tables.emit import Emitter, replace_output
from graph_tools.tables.plain import PlainTable, combines_rows, plain_tables
from graph_tools.tables.plan import TablePlan, plan_variable
from graph_tools.tables.stored import describe_stored
from graph_tools.tables.streams import TableStreams


class CompressTables(TablePass):
    """Drop rows that no index reaches, share rows that are equal, and store rows in the requested type.

    Before: `ids → ResourceGather(variable)`, or `ids → GatherV2(ReadVariableOp)`, or
    `SparseSegmentMean(ReadVariableOp, ids, segments)`.
    After, if that takes fewer bytes: `ids → ResourceGather(index) → ResourceGather(rows)`; and with rows of fewer
    bits, `ResourceGather(codes) · scale + bias`. An op on segments combines stored rows by `ResourceGather(index)`. If
    rows have fewer bits, it combines the gathered rows by `Range(Size(ids))`: the same rows in the same order.
    """

    name = "compress_tables"

    def process(self, model: Model, result: PassResult) -> None:
        tables, result.refused = plain_tables(model)
        for table in tables:
            plan = plan_variable(model, table, self.options, self.progress)
            self.plans.append(plan)
            if plan.changes:
                self._rewrite(model, table, plan)
                result.applied += 1
            else:
                model.stored_tables.append(describe_stored(plan, TableStreams(plan), {"rows": table.handle}))
        model.table_records += self.records

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the tables that were not planned, or that are stored in another way than planned."""
        unchanged = {plan.name for plan in self.plans if not plan.changes}
        return (table.handle for table in plain_tables(model)[0] if table.handle not in unchanged)

    def _rewrite(self, model: Model, table: PlainTable, plan: TablePlan) -> None:
        graph = model.graph
        emitter = Emitter(model, plan)
        why = f"rows of '{table.handle}' are stored otherwise ({plan.layout.name}, {plan.row_type})"
        for name in table.gathers:
            node = graph[name]
            if combines_rows(node):
                types = attribute(node, "Tidx"), attribute(node, "T")
                data, numbers, number_type = emitter.segment_rows(name, node.inputs[1], *types)
                graph.set_inputs(node, [data, numbers, *node.inputs[2:]])
                graph.set_attr(node, "Tidx", number_type)
                continue
            dtype = attribute(node, "dtype" if node.op == "ResourceGather" else "Tparams")
            rows = emitter.lookup(name, node.inputs[1], attribute(node, "Tindices"), dtype)
            replace_output(model, name, rows, dtype, why)
        for name in [*reversed(table.reads), table.handle]:
            if not graph.users(name):
                graph.remove(name, why)
        model.variables.pop(table.handle, None)
