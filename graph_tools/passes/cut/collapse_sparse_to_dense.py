# SPDX-License-Identifier: Apache-2.0
"""Keep columns dense that were converted to sparse and back."""

from __future__ import annotations

from collections.abc import Iterable

from graph_tools.graph import Output, attribute, constant
from graph_tools.model import Model
from graph_tools.recognition.lookups.columns import Column, find_column
from graph_tools.recognition.lookups.safe_lookup import Finders
from graph_tools.rewriting.chains import clone_chain
from graph_tools.rewriting.outcome import Found, Outcome, Refused
from graph_tools.rewriting.protocol import SitePass
from graph_tools.rewriting.replace import replace_output

_WHY = "the column was made sparse and then dense again"


class CollapseSparseToDense(SitePass[Column]):
    """Replace the conversion of a dense column to a sparse tensor and back by a Select.

    Before: `x → NotEqual '' → Where → GatherNd → hash → SparseToDense(default -1) → OneHot`, an indicator column.
    After: `Select(x ≠ '', hash(x), -1) → OneHot`.
    """

    name = "collapse_sparse_to_dense"

    def candidates(self, model: Model) -> Iterable[str]:
        return [node.name for node in model.graph.of("SparseToDense")]

    def match(self, model: Model, site: str) -> Outcome[Column]:
        node = model.graph[site]
        finders = Finders(model)
        found = find_column(model, node.inputs[0], node.inputs[2], node.inputs[1], finders)
        if not isinstance(found, Found):
            return found
        default = constant(model.graph, node.inputs[3])
        if default is None or default.ndim:
            return Refused(f"default value '{node.inputs[3]}' is not a constant")
        return found

    def rewrite(self, model: Model, site: str, found: Column) -> None:
        graph = model.graph
        node = graph[site]
        ids: Output = clone_chain(graph, found.chain, found.values, node.inputs[2], found.dense)
        attrs = {"T": attribute(node, "T")}
        made = graph.add("SelectV2", [found.present, ids, node.inputs[3]], name=f"{site}/select", attrs=attrs)
        replace_output(model, node.output(), made.output(), attribute(node, "T"), _WHY)
