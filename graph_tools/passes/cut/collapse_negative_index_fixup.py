# SPDX-License-Identifier: Apache-2.0
"""Gather rows from a variable directly."""

from __future__ import annotations

from collections.abc import Iterable

from graph_tools.analysis.ranges import RangeFinder
from graph_tools.graph import Graph, Node, Output, attribute, constant_list, operand, skip, source
from graph_tools.model import Model
from graph_tools.rewriting.matcher import GraphFacts, Pattern
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.pattern import const, op, value
from graph_tools.rewriting.protocol import SitePass
from graph_tools.rewriting.replace import replace_output

_WHY = "rows are gathered from the variable itself"
_FIXUP = "no id of it can be negative"

_IDS = value()
_NEGATIVE = op("Less", _IDS, const(0), waits=True)
_REPAIRED = Pattern(op("Select|SelectV2", _NEGATIVE, op("Add|AddV2", _IDS, value(), waits=True), _IDS, waits=True))


class CollapseNegativeIndexFixup(SitePass[Output]):
    """Gather from a variable in one node, and drop the repair of negative ids if no id can be negative.

    Before: `ReadVariableOp → GatherV2(…, SelectV2(ids < 0, ids + n, ids), axis 0)`, as Keras 3 exports an Embedding.
    After: `ResourceGather(variable, ids)`; ids that may be negative keep their repair.

    An id is known not to be negative if it comes from a hash into buckets, from a table whose values are not negative,
    or from an unsigned integer.
    """

    name = "collapse_negative_index_fixup"

    def candidates(self, model: Model) -> Iterable[str]:
        self._written = model.written_variables()
        return [node.name for node in model.graph.of("GatherV2", "ResourceGather")]

    def match(self, model: Model, site: str) -> Outcome[Output]:
        graph = model.graph
        gather = graph[site]
        kept = _fixed_ids(graph, gather)
        needs_repair = kept is None or not RangeFinder(model).is_nonnegative(kept)
        if gather.op == "ResourceGather":
            if kept is None:
                return NoMatch()
            return Refused(f"ids '{kept}' may be negative: their repair stays") if needs_repair else Found(kept)
        read = source(graph, gather.inputs[0], "ReadVariableOp")
        if read is None:
            return NoMatch()
        if constant_list(graph, gather.inputs[2]) != [0]:
            return Refused(f"gathers along axis {constant_list(graph, gather.inputs[2])}, expected the first")
        if attribute(gather, "batch_dims", 0):
            return Refused(f"has {attribute(gather, 'batch_dims')} batch dimensions, expected none")
        if attribute(gather, "Tindices").name not in {"int32", "int64"}:
            return Refused(f"ids are {attribute(gather, 'Tindices').name}, expected int32 or int64")
        if operand(graph, read, 0).node in self._written:
            return Refused(f"variable '{operand(graph, read, 0).node}' is written while it is served")
        return Found(gather.inputs[1] if kept is None or needs_repair else kept)

    def rewrite(self, model: Model, site: str, found: Output) -> None:
        graph = model.graph
        gather = graph[site]
        if gather.op == "ResourceGather":
            replace_output(model, skip(graph, gather.inputs[1]), found, attribute(gather, "Tindices"), _FIXUP)
            return
        read = source(graph, gather.inputs[0], "ReadVariableOp")
        assert read is not None
        dtype = attribute(gather, "Tparams")
        attrs = {"dtype": dtype, "Tindices": attribute(gather, "Tindices"), "batch_dims": 0, "validate_indices": True}
        made = graph.add("ResourceGather", [read.inputs[0], found], name=f"{site}/gather", attrs=attrs)
        replace_output(model, gather.output(), made.output(), dtype, _WHY)


def _fixed_ids(graph: Graph, gather: Node) -> Output | None:
    """Return the ids before the repair `where(ids < 0, ids + n, ids)`, or None if there is no repair."""
    outcome = _REPAIRED.match(GraphFacts(graph), gather.inputs[1])
    return outcome.value[_IDS] if isinstance(outcome, Found) else None
