# SPDX-License-Identifier: Apache-2.0
"""Look up ids without making them unique first."""

from __future__ import annotations

from collections.abc import Iterable

from graph_tools.graph import Graph, Node, attribute, constant_list
from graph_tools.model import Model
from graph_tools.recognition.lookups.safe_lookup import SEGMENTS, Finders, Rows, find_rows
from graph_tools.rewriting.outcome import Found, NoMatch, Outcome, Refused
from graph_tools.rewriting.protocol import SitePass
from graph_tools.rewriting.replace import replace_output

_WHY = "ids are looked up without making them unique"


class CollapseUnique(SitePass[tuple[Rows, list[Node]]]):
    """Remove the Unique around a lookup, which is useful only in training, where each gradient row must come once.

    Before: `Unique → ResourceGather → GatherV2(…, idx)` or `Unique → ResourceGather → SparseSegmentSum(…, idx, rows)`.
    After: `ResourceGather(table, ids)` or `SparseSegmentSum(table, ids, rows)`.

    The same rows are read in the same order, so results are equal bit for bit. A table with keys keeps its Unique
    before a SparseSegment op, since this op needs row numbers.
    """

    name = "collapse_unique"

    def candidates(self, model: Model) -> Iterable[str]:
        self._written = model.written_variables()
        return [node.name for node in model.graph.of("Unique")]

    def match(self, model: Model, site: str) -> Outcome[tuple[Rows, list[Node]]]:
        graph = model.graph
        unique = graph[site]
        users = [user for user, _ in graph.uses(unique.output(1))]
        if not users:
            return NoMatch()
        finders = Finders(model)
        found: Rows | None = None
        for user in users:
            if user.op not in {"GatherV2", *SEGMENTS}:
                return Refused(f"'{user.name}' ({user.op}) uses the numbers of the ids as well")
            if user.op == "GatherV2" and constant_list(graph, user.inputs[2]) != [0]:
                return Refused(f"'{user.name}' gathers along another axis than the first")
            rows = find_rows(model, user.inputs[0], user.inputs[1], finders)
            if isinstance(rows, NoMatch):
                return Refused(f"'{user.name}' gathers from '{user.inputs[0]}', which is not a lookup of the ids")
            if isinstance(rows, Refused):
                return rows
            if user.op in SEGMENTS and rows.value.gather.op == "SparseLookup":
                return Refused(f"'{user.name}' needs the numbers of rows, which a table with keys does not have")
            found = rows.value
        assert found is not None
        handle = found.handle(graph)
        if handle is not None and handle.node in self._written:
            return Refused(f"variable '{handle.node}' is written while it is served")
        return Found((found, users))

    def rewrite(self, model: Model, site: str, found: tuple[Rows, list[Node]]) -> None:
        rows, users = found
        for user in users:
            _rewrite_user(model, model.graph, rows, user)


def _rewrite_user(model: Model, graph: Graph, rows: Rows, user: Node) -> None:
    dtype = rows.dtype(graph)
    if user.op == "GatherV2":
        made = rows.add_gather(graph, rows.ids, rows.number_dtype, f"{user.name}/gather")
    else:
        data, numbers, number_dtype = rows.add_data(graph, rows.ids, user.name)
        attrs = {"T": dtype, "Tidx": number_dtype, "Tsegmentids": attribute(user, "Tsegmentids")}
        made = graph.add(user.op, [data, numbers, user.inputs[2]], name=f"{user.name}/combined", attrs=attrs).output()
    replace_output(model, user.output(), made, dtype, _WHY)
