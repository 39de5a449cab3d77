# SPDX-License-Identifier: Apache-2.0
"""Turn lookups in tables of training systems into native ops over variables."""

from __future__ import annotations

from collections.abc import Iterator

from graph_tools.graph import attribute
from graph_tools.graph.sparse_lookup import lookups
from graph_tools.model import Model
from graph_tools.rewriting.protocol import PassResult
from graph_tools.rewriting.table_pass import TablePass
from graph_tools.tables.emit import Emitter, replace_output
from graph_tools.tables.plan import check_names, plan_sparse


class ConvertSparseLookups(TablePass):
    """Store every sparse table as variables, without rows that no score needs, and look up keys with native ops.

    Before: `keys → SparseLookup(table)`.
    After, whichever takes the fewest bytes: `keys → LookupTableFind → ResourceGather`; or, if keys are dense,
    `keys → Sub, Less, Select → ResourceGather`, with an index between them if rows are shared. Absent keys get the same
    values as in the training system.
    """

    name = "convert_sparse_lookups"

    def process(self, model: Model, result: PassResult) -> None:
        check_names(model, self.options)
        for name, table in sorted(model.sparse_tables.items()):
            found = lookups(model.graph, name)
            if not found:
                continue
            plan = plan_sparse(model, name, table, self.options, self.progress)
            self.plans.append(plan)
            emitter = Emitter(model, plan)
            assert plan.policy is not None
            for node in found:
                dtype = attribute(node, "dtype")
                default = node.inputs[1] if node.name in plan.policy.by_input else None
                rows = emitter.lookup(node.name, node.inputs[0], attribute(node, "Tkeys"), dtype, default)
                why = f"table '{table.name}' is looked up with native ops ({plan.layout.name})"
                replace_output(model, node.name, rows, dtype, why)
                result.applied += 1
            del model.sparse_tables[name]
        model.table_records += self.records

    def ensures(self, model: Model) -> Iterator[str]:
        """Yield the lookups that only a training system understands."""
        return (node.name for node in lookups(model.graph))
